#include "masks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core_ops.h"
#include "data.h"
#include "errors.h"
#include "rules/shape_rules.h"

namespace rabbet::python {

namespace {

void check_shape(const Op& op, const RbTensor& mask, const RbTensor& x, size_t first) {
  for (int d = 0; d < mask.ndim; ++d) {
    const size_t at = first + d;
    if (at < static_cast<size_t>(x.ndim) && mask.shape[d] == x.shape[at]) continue;
    raise(PyExc_IndexError,
          "%s: the shape of the mask %s at index %d does not match the shape of the indexed "
          "tensor %s at index %d",
          op.name.c_str(), shape_text(mask.ndim, mask.shape).c_str(), d,
          shape_text(x.ndim, x.shape).c_str(), static_cast<int>(at));
  }
}

void replace_in_list(const Op& op, const RbValue& input, RbValue* list, Arena& arena) {
  std::vector<RbTensor*> indices;
  bool any = false;
  for (uint32_t i = 0; i < list->len; ++i) {
    RbTensor* t = list->v.ts[i];
    if (!t || t->ndim == 0 || !is_mask_tensor(*t)) {
      indices.push_back(t);
      continue;
    }
    any = true;
    if (input.tag == RB_TENSOR) check_shape(op, *t, *input.v.t, indices.size());
    const TensorRef places = run_op(ops.nonzero, {value_tensor(t)});
    for (int d = 0; d < t->ndim; ++d) {
      TensorRef one = run_op(ops.select, {value_tensor(places.get()), value_int(1), value_int(d)});
      indices.push_back(one.get());
      arena.hold(std::move(one));
    }
  }
  if (!any) return;
  RbTensor** longer = arena.take<RbTensor*>(indices.size());
  std::copy(indices.begin(), indices.end(), longer);
  *list = value_tensors(longer, static_cast<int>(indices.size()));
}

void replace_condition(const Op& op, RbValue* condition, Arena& arena) {
  if (condition->v.t->dtype_id != RB_U8) return;
  static bool warned = false;  // guarded by the GIL
  if (!warned) {
    warned = true;
    warn((op.base + " received a uint8 condition tensor. This behavior is deprecated and will be "
                    "removed in a future version of PyTorch. Use a boolean condition instead.")
             .c_str());
  }
  TensorRef bools = cast_to(condition->v.t, RB_BOOL8);
  *condition = value_tensor(bools.get());
  arena.hold(std::move(bools));
}

}  // namespace

bool is_mask_tensor(const RbTensor& index) {
  if (index.dtype_id == RB_U8) {
    warn(
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
        "instead.");
  }
  return index.dtype_id == RB_BOOL8 || index.dtype_id == RB_U8;
}

void replace_masks(const Op& op, RbValue* values, Arena& arena) {
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (!(op.mask_args >> i & 1)) continue;
    if (values[i].tag == RB_TENSORS) replace_in_list(op, values[0], &values[i], arena);
    if (values[i].tag == RB_TENSOR) replace_condition(op, &values[i], arena);
  }
}

}  // namespace rabbet::python

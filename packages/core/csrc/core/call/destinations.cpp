#include "call/destinations.h"

#include <algorithm>
#include <cstring>

#include "call/core_functions.h"
#include "call/dispatch.h"
#include "call/kernel_arguments.h"
#include "layer/layers.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor/memory_format.h"
#include "tensor/overlap.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

void check_protection(const Op& op, const RbTensor* t, const char* what) {
  if (t->flags & RB_T_READONLY) {
    fail(RB_E_STATE,
         "%s: %s is read-only memory (it came from a read-only array, or a layer made it as a copy "
         "where a view of a composite tensor was asked for); clone() it first",
         op.name.c_str(), what);
  }
  if ((t->flags & RB_T_INFERENCE) && !(thread_state().tensor_flags & RB_T_INFERENCE)) {
    fail(RB_E_STATE,
         "%s: Inplace update to inference tensor outside InferenceMode is not allowed: %s was made "
         "in inference_mode(); clone() it to get a normal tensor",
         op.name.c_str(), what);
  }
}

namespace {
// Throw unless the tensor's memory can be written.
void check_memory(const Op& op, const RbTensor* t, const char* what) {
  if (t->flags & RB_T_COMPOSITE) {
    fail(RB_E_NOTIMPL,
         "%s: %s is a composite of the layer '%s', which has no memory to be written; a kernel of "
         "that layer can write it where it is also an argument (in-place calls)",
         op.name.c_str(), what, layer_entry(body_of(t).layer).name.c_str());
  }
  check_protection(op, t, what);
}
}  // namespace

void check_writable(const Op& op, const RbTensor* t, const char* what) {
  check_memory(op, t, what);
  for (int i = 0; t->numel && i < t->ndim; ++i) {
    if (t->strides[i] == 0 && t->shape[i] > 1) {
      fail(RB_E_ARG,
           "%s: several elements of %s refer to one place in memory (an expanded tensor); clone() "
           "it before writing",
           op.name.c_str(), what);
    }
  }
}

namespace {
bool is_argument(const RbTensor* t, const RbValue* args, int nargs) {
  return std::any_of(args, args + nargs,
                     [&](const RbValue& v) { return v.tag == RB_TENSOR && v.v.t == t; });
}

void check_separate(const Op& op, const RbTensor* target, const RbValue* args, int nargs) {
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR || !may_overlap(args[i].v.t, target)) continue;
    fail(RB_E_ARG,
         "%s: unsupported operation: some elements of '%s' and the destination refer to a single "
         "memory location. Please clone() the tensor before performing the operation.",
         op.name.c_str(), op.params[i].name);
  }
}

// As PyTorch: from where the tensor starts, in its memory if that is large enough.
void resize_destination(const Op& op, RbTensor* target, const TensorSpec& spec,
                        const int64_t* strides) {
  const bool by_rows = op.resize_rule == ResizeRule::kRows ||
                       (op.resize_rule == ResizeRule::kColumns && target->numel);
  if (by_rows) strides = nullptr;
  const Tensor* t = impl(target);
  const char* end = static_cast<const char*>(t->storage->data) + t->storage->nbytes;
  const int64_t bytes = count_elements(spec.ndim, spec.shape) * kDTypes[t->dtype_id].itemsize;
  int64_t row_major[kMaxDims];
  format_strides(MemoryFormat::kContiguous, spec.ndim, spec.shape, row_major);
  if (!strides) strides = row_major;
  const bool fits = bytes <= end - static_cast<const char*>(t->data);
  TensorRef other(
      fits ? tensor_share(t, spec.ndim, spec.shape, strides, t->data)
           : tensor_new(t->backend, t->device.id, t->dtype_id, spec.ndim, spec.shape, strides));
  tensor_set_data(impl(target), other.get());
}
}  // namespace

void check_destination(const Op& op, const RbTensor* target, const TensorSpec& spec, int backend,
                       int device, const RbValue* args, int nargs) {
  if (target->backend != backend || (backend != kMeta && target->device.id != device)) {
    fail(RB_E_DEVICE, "%s: the destination is on %s, but the result is on %s", op.name.c_str(),
         device_text(target->backend, target->device.id).c_str(),
         device_text(backend, device).c_str());
  }
  if (!can_cast(spec.dtype, target->dtype_id)) {
    fail(RB_E_TYPE, "%s: a result of dtype %s cannot be written to a destination of dtype %s",
         op.name.c_str(), kDTypes[spec.dtype].name, kDTypes[target->dtype_id].name);
  }
  if (op.real_out && is_complex(target->dtype_id) && !is_complex(spec.dtype)) {
    fail(RB_E_TYPE, "%s: expected a real destination for a result of dtype %s, got one of %s",
         op.name.c_str(), kDTypes[spec.dtype].name, kDTypes[target->dtype_id].name);
  }
  if (op.exact_out && spec.dtype != target->dtype_id) {
    fail(RB_E_TYPE, "%s: Expected out tensor to have dtype %s, but got %s instead", op.name.c_str(),
         kDTypes[spec.dtype].name, kDTypes[target->dtype_id].name);
  }
  if (op.separate_out) check_separate(op, target, args, nargs);
  if (!same_shape(target, spec) && is_argument(target, args, nargs)) {
    fail(RB_E_ARG, "%s: the destination has shape %s, but the result has shape %s", op.name.c_str(),
         shape_text(target->ndim, target->shape).c_str(),
         shape_text(spec.ndim, spec.shape).c_str());
  }
}

void prepare_destination(const Op& op, RbTensor* target, const TensorSpec& spec, int backend,
                         int device, const RbValue* args, int nargs, const int64_t* strides) {
  check_destination(op, target, spec, backend, device, args, nargs);
  check_writable(op, target, "the destination");
  if (!same_shape(target, spec)) resize_destination(op, target, spec, strides);
}

namespace {
bool suggest_all(const RbValue& v, MemoryFormat format) {
  if (v.tag == RB_TENSOR) return suggested_format(v.v.t) == format;
  bool all = v.tag == RB_TENSORS && v.len > 0;
  for (uint32_t k = 0; all && k < v.len; ++k)
    all = v.v.ts[k] && suggested_format(v.v.ts[k]) == format;
  return all;
}

// Of matrices (..., m, n) that lie one behind another.
const int64_t* column_strides(const TensorSpec& spec, int64_t* space) {
  const int rows = spec.ndim - 2, columns = spec.ndim - 1;
  space[rows] = 1;
  space[columns] = std::max<int64_t>(spec.shape[rows], 1);
  int64_t step = space[columns] * std::max<int64_t>(spec.shape[columns], 1);
  for (int d = rows - 1; d >= 0; --d) {
    space[d] = step;
    step *= std::max<int64_t>(spec.shape[d], 1);
  }
  return space;
}
}  // namespace

const int64_t* find_strides(const Op& op, bool elementwise, const RbValue* args, int nargs,
                            const TensorSpec& spec, int i, int64_t* space) {
  const RbTensor* operands[kMaxArgs];
  int n = 0;
  switch (op.layout_rule) {
    case LayoutRule::kRowMajor:
      for (int k = 0; elementwise && k < nargs; ++k) {
        if (args[k].tag == RB_TENSOR) operands[n++] = args[k].v.t;
      }
      return joint_strides(operands, n, spec.ndim, spec.shape, space) ? space : nullptr;
    case LayoutRule::kOrder: {
      if (static_cast<size_t>(i) >= op.layout_args.size()) return nullptr;
      const RbValue& v = args[op.layout_args[i]];
      if (v.tag != RB_TENSOR || v.v.t->ndim != spec.ndim) return nullptr;
      const RbTensor* like = v.v.t;
      return joint_strides(&like, 1, spec.ndim, spec.shape, space) ? space : nullptr;
    }
    case LayoutRule::kLike: {
      const RbTensor* t = args[op.layout_args[0]].v.t;
      return t->ndim == spec.ndim && preserved_strides(t, space) ? space : nullptr;
    }
    case LayoutRule::kColumns:
      if (!(op.column_rets >> i & 1) || spec.ndim < 2) return nullptr;
      return column_strides(spec, space);
    case LayoutRule::kChannels:
    case LayoutRule::kImages:
      break;
  }
  const bool images = op.layout_rule == LayoutRule::kImages;
  // Volumes (C, D, H, W) have as many dimensions as images (N, C, H, W), but windows of three.
  const auto has_other_rank = [&](int8_t index) {
    const RbValue& v = args[index];
    return (v.tag == RB_INTS && v.len != 2) || (v.tag == RB_INT && v.v.i != 2);
  };
  if (std::any_of(op.layout_args.begin(), op.layout_args.end(), has_other_rank)) return nullptr;
  if (spec.ndim != 4 && (images || spec.ndim != 5)) return nullptr;
  const MemoryFormat last =
      spec.ndim == 4 ? MemoryFormat::kChannelsLast : MemoryFormat::kChannelsLast3d;
  for (const int8_t index : op.layout_args) {
    if (!suggest_all(args[index], last)) continue;
    format_strides(last, spec.ndim, spec.shape, space);
    return space;
  }
  return nullptr;
}

namespace {
template <class F>
void each_mutated(const Op& op, const RbValue* args, int nargs, const F& f) {
  for (int i = 0; i < nargs; ++i) {
    if (!(op.params[i].flags & RB_ARG_MUTATED)) continue;
    if (args[i].tag == RB_TENSOR) f(args[i].v.t, i);
    for (uint32_t j = 0; args[i].tag == RB_TENSORS && j < args[i].len; ++j) f(args[i].v.ts[j], i);
  }
}
}  // namespace

void check_mutated(const Op& op, const RbValue* args, int nargs) {
  each_mutated(op, args, nargs,
               [&](const RbTensor* t, int i) { check_writable(op, t, op.params[i].name); });
}
void bump_mutated(const Op& op, const RbValue* args, int nargs) {
  each_mutated(op, args, nargs, [](const RbTensor* t, int) { bump_version(t); });
}

void write_result(const Op& op, RbTensor* result, RbTensor* target, const RbValue* args,
                  int nargs) {
  prepare_destination(op, target, spec_of(result), result->backend, result->device.id, args, nargs,
                      order_of(op, result));
  const RbValue copy_args[2] = {value_tensor(target), value_tensor(result)};
  RbValue ret = value_tensor(target);
  check(call(copy_op(), copy_args, 2, &ret, 1, RB_CALL_OUT));
}

void write_back(const Op& op, RbValue* results, int32_t nrets, RbValue* rets, const RbValue* args,
                int nargs) {
  for (int32_t i = 0; i < nrets; ++i) {
    TensorRef result(results[i].v.t);
    prepare_destination(op, rets[i].v.t, spec_of(result.get()), result->backend, result->device.id,
                        args, nargs, order_of(op, result.get()));
    copy_tensor(result.get(), rets[i].v.t);
  }
}

bool hazard(const Op& op, bool elementwise, const RbTensor* target, const RbValue* args,
            int nargs) {
  // Kernels of in-place operators find the first argument in the destination, except those of core
  // signatures and compositions, which may read it while they write.
  const bool first_is_target =
      op.as_inplace && op.core.args.empty() && op.info.kind != RB_KIND_COMPOSITE;
  auto clash = [&](const RbTensor* t, int i) {
    if (!t || !may_overlap(t, target)) return false;
    const bool exact = same_geometry(t, target) && t->dtype_id == target->dtype_id;
    return !(exact && (elementwise || (first_is_target && i == 0)));
  };
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR && clash(args[i].v.t, i)) return true;
    if (args[i].tag != RB_TENSORS) continue;
    for (uint32_t j = 0; j < args[i].len; ++j) {
      if (clash(args[i].v.ts[j], -1)) return true;
    }
  }
  return false;
}

void check_overlap(const Op& op, const RbTensor* target, const RbValue* args, int nargs) {
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR) continue;
    const RbTensor* t = args[i].v.t;
    if (!may_overlap(t, target) || same_geometry(t, target)) continue;
    if (!is_dense(t) || !is_dense(target)) continue;
    fail(RB_E_ARG,
         "%s: the destination and '%s' share some elements of their memory, but not all in the "
         "same places; clone() one of them first",
         op.name.c_str(), op.params[i].name);
  }
}

}  // namespace rabbet

#include "call/kernel_arguments.h"

#include "call/core_functions.h"
#include "tensor/dtype.h"
#include "tensor/overlap.h"
#include "thread/error.h"

namespace rabbet {

namespace {

TensorRef cast(const RbTensor* t, int dtype) {
  TensorRef out(tensor_new(t->backend, t->device.id, dtype, t->ndim, t->shape,
                           !(t->flags & RB_T_CONTIGUOUS) && is_dense(t) ? t->strides : nullptr));
  copy_tensor(t, out.get());
  return out;
}

TensorRef row_major(const RbTensor* t) {
  TensorRef out(tensor_new(t->backend, t->device.id, t->dtype_id, t->ndim, t->shape, nullptr));
  copy_tensor(t, out.get());
  return out;
}

}  // namespace

void prepare(const Op& op, const Handler& handler, int compute, Arguments& a, int nargs) {
  if (const uint64_t cast_args = cast_arguments(op, handler, compute)) {
    replace_tensors(a, nargs, [&](const RbTensor* t, int i) {
      return (cast_args >> i & 1) && t->dtype_id != compute ? cast(t, compute) : TensorRef();
    });
  }
  if (handler.flags & RB_K_CONTIGUOUS) {
    replace_tensors(a, nargs, [&](const RbTensor* t, int) {
      return t->flags & RB_T_CONTIGUOUS ? TensorRef() : row_major(t);
    });
  }
}

namespace {

std::string dtype_names(uint64_t mask) {
  std::string names;
  for (int d = 0; d < dtype_count(); ++d) {
    if (mask >> d & 1) names += (names.empty() ? "" : ", ") + std::string(kDTypes[d].name);
  }
  return names;
}

}  // namespace

void fail_dtype(const Op& op, const Handler& handler, int backend, int compute) {
  fail(RB_E_NOTIMPL, "%s on '%s' supports %s; got %s", op.name.c_str(), backend_name(backend),
       dtype_names(handler.dtype_mask).c_str(), kDTypes[compute].name);
}

// ---- devices

std::string device_text(int backend, int device) {
  const std::string name = backend_name(backend);
  return backend_traits[backend].known_devices > 1 && backend != kMeta
             ? name + ":" + std::to_string(device)
             : name;
}

namespace {

// A tensor of the arguments: of argument `arg`, and there the item `item` if that is a list.
struct Place {
  const RbTensor* tensor = nullptr;
  int arg = 0, item = -1;

  std::string text(const Op& op) const {
    const std::string at = item < 0 ? "" : "[" + std::to_string(item) + "]";
    return "'" + op.params[arg].name_text + at + "' is on " +
           device_text(tensor->backend, tensor->device.id);
  }
};
// Two tensors on different devices.
struct Mixed {
  Place first, other;
};
Mixed find_mixed(const RbValue* args, int nargs) {
  Mixed m;
  for (int i = 0; i < nargs; ++i) {
    const bool is_list = args[i].tag == RB_TENSORS;
    if (!is_list && args[i].tag != RB_TENSOR) continue;
    for (uint32_t j = 0; j < (is_list ? args[i].len : 1); ++j) {
      const RbTensor* t = is_list ? args[i].v.ts[j] : args[i].v.t;
      if (!t) continue;
      const RbTensor* first = m.first.tensor;
      const Place here{t, i, is_list ? static_cast<int>(j) : -1};
      if (!first) {
        m.first = here;
      } else if (t->backend != first->backend || t->device.id != first->device.id) {
        m.other = here;
        return m;
      }
    }
  }
  return m;
}

}  // namespace

void fail_mixed(const Op& op, const RbValue* args, int nargs) {
  const Mixed m = find_mixed(args, nargs);
  if (!m.other.tensor) fail(RB_E_DEVICE, "%s: expected all tensors on one device", op.name.c_str());
  fail(RB_E_DEVICE, "%s: expected all tensors on one device, but %s and %s", op.name.c_str(),
       m.first.text(op).c_str(), m.other.text(op).c_str());
}

bool mixes_indices(const RbValue* args, int nargs) { return find_mixed(args, nargs).other.tensor; }

void write_mutated(const Op& op, const RbValue* args, const Arguments& a, int nargs) {
  for (int i = 0; i < nargs; ++i) {
    if (!(op.params[i].flags & RB_ARG_MUTATED)) continue;
    const bool list = args[i].tag == RB_TENSORS;
    for (uint32_t k = 0; k < (list ? args[i].len : args[i].tag == RB_TENSOR); ++k) {
      RbTensor* own = list ? args[i].v.ts[k] : args[i].v.t;
      const RbTensor* written = list ? a.values[i].v.ts[k] : a.values[i].v.t;
      if (own && own != written) copy_tensor(written, own);
    }
  }
}

}  // namespace rabbet

// The operators that the binding itself calls, looked up once, and short ways to call them.
#pragma once
#include <initializer_list>

#include "call/dispatch.h"
#include "device/current.h"
#include "errors.h"
#include "record/op.h"

namespace rabbet::python {

// clang-format off
#define RABBET_BINDING_OPS(X)                                                                        \
  X(add) X(sub) X(mul) X(div) X(floor_divide) X(remainder) X(pow) X(matmul)                          \
  X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(bitwise_not) X(bitwise_left_shift)                   \
  X(bitwise_right_shift) X(neg) X(positive) X(abs) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(any)                    \
  X(t) X(mT) X(permute) X(conj) X(view_as_real) X(detach) X(unbind) X(select) X(slice) X(unsqueeze)  \
  X(expand) X(view) X(reshape) X(index) X(index_put) X(nonzero) X(masked_fill) X(copy) X(fill)       \
  X(cast) X(to_device) X(clone) X(contiguous_clone) X(full) X(zeros) X(ones) X(empty)
// clang-format on

struct CoreOps {
#define X(name) const Op* name = nullptr;
  RABBET_BINDING_OPS(X)
#undef X
  const Op* view_dtype = nullptr;  // an overload: view.dtype
};
extern CoreOps ops;

/// Look all of them up; false with a Python exception set if core lacks one.
bool init_core_ops();

/// Fill `values` up to the operator's number of parameters with its defaults.
inline void fill_defaults(const Op* op, RbValue* values, int given) {
  for (int i = given; i < op->info.nargs; ++i) values[i] = op->params[i].default_value;
}

constexpr int kMaxParams = RB_MAX_ARGS;

/// One owned tensor; missing trailing arguments take their defaults. Throws.
TensorRef run_op(const Op* op, std::initializer_list<RbValue> args);
/// In-place call that writes its first argument. Throws.
void run_inplace(const Op* op, std::initializer_list<RbValue> args);

inline RbValue value_ints(const int64_t* values, int n) {
  RbValue v;
  v.tag = RB_INTS;
  v.len = static_cast<uint32_t>(n);
  v.v.is = values;
  return v;
}
inline RbValue value_dtype(int dtype) {
  RbValue v = value_int(dtype);
  v.tag = RB_DTYPE;
  return v;
}
inline RbValue value_device(int backend, int index) {
  RbValue v;
  v.tag = RB_DEVICE;
  v.len = 0;
  v.v.dev.backend = backend;
  v.v.dev.index = index_or_current(backend, index);
  return v;
}
inline RbValue value_tensors(RbTensor* const* ts, int n) {
  RbValue v;
  v.tag = RB_TENSORS;
  v.len = static_cast<uint32_t>(n);
  v.v.ts = ts;
  return v;
}

}  // namespace rabbet::python

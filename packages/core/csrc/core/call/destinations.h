// Tensors that a call writes: whether they can be written, their layout, their version.
#pragma once
#include "rules/infer.h"
#include "tensor/tensor.h"

namespace rabbet {

inline void bump_version(const RbTensor* t) {
  impl(t)->storage->version.fetch_add(1, std::memory_order_relaxed);
}

/// Throw unless every element of `t` can be written; `what` names it.
void check_writable(const Op& op, const RbTensor* t, const char* what);
/// Throw unless a result of `spec` on that device can be written to `target`; an empty one is given
/// memory.
void check_destination(const Op& op, RbTensor* target, const TensorSpec& spec, int backend,
                       int device);
/// Strides of result `i` where it is not row-major, or null: those of an elementwise result follow
/// the inputs' (joint_strides), others the record's `layout`.
/// `space` is for kMaxDims strides.
const int64_t* find_strides(const Op& op, bool elementwise, const RbValue* args, int nargs,
                            const TensorSpec& spec, int i, int64_t* space);
inline const int64_t* inherited_strides(const Op& op, bool elementwise, const RbValue* args,
                                        int nargs, const TensorSpec& spec, int i, int64_t* space) {
  if (!elementwise && op.layout_rule == LayoutRule::kRowMajor) return nullptr;
  return find_strides(op, elementwise, args, nargs, spec, i, space);
}
/// Throw unless the arguments that the record says are written can be.
void check_mutated(const Op& op, const RbValue* args, int nargs);
void bump_mutated(const Op& op, const RbValue* args, int nargs);
/// Copy results, which are released, into the given destinations.
void write_back(const Op& op, RbValue* results, int32_t nrets, RbValue* rets);

}  // namespace rabbet

// Tensors that a call writes: whether they can be written, their layout, their version.
#pragma once
#include <algorithm>

#include "rules/infer.h"
#include "tensor/overlap.h"
#include "tensor/tensor.h"

namespace rabbet {

inline void bump_version(const RbTensor* t) {
  impl(t)->storage->version.fetch_add(1, std::memory_order_relaxed);
}

/// Throw where `t` is read-only, or where only inference mode may write it; `what` names it.
void check_protection(const Op& op, const RbTensor* t, const char* what);
/// Throw unless every element of `t` can be written; `what` names it.
void check_writable(const Op& op, const RbTensor* t, const char* what);
inline bool same_shape(const RbTensor* t, const TensorSpec& spec) {
  return t->ndim == spec.ndim && std::equal(t->shape, t->shape + t->ndim, spec.shape);
}
/// Throw unless `target` has the device, a dtype and, if it is one of the arguments (in-place
/// calls), the shape for a result of `spec`.
void check_destination(const Op& op, const RbTensor* target, const TensorSpec& spec, int backend,
                       int device, const RbValue* args, int nargs);
/// Throw unless a result of `spec` on that device can be written to `target`, which is given that
/// shape unless it is one of the arguments (in-place calls). `strides` are those of the result,
/// null if it is row-major; the record says whether the destination gets them.
void prepare_destination(const Op& op, RbTensor* target, const TensorSpec& spec, int backend,
                         int device, const RbValue* args, int nargs, const int64_t* strides);
/// The strides that a destination of another shape takes from a result: those of elementwise
/// operators, of compositions, and of operators whose kernels find the shape. Null for others.
inline const int64_t* order_of(const Op& op, const RbTensor* result) {
  const bool ordered = op.info.kind == RB_KIND_ELEMENTWISE || op.info.kind == RB_KIND_COMPOSITE ||
                       op.shape_rule == ShapeRule::kData;
  return ordered && is_dense(result) ? result->strides : nullptr;
}
/// Whether a destination that a kernel fills gets the strides of the result when it is resized.
inline bool resized_as_result(const Op& op, bool elementwise) {
  return elementwise || op.layout_rule == LayoutRule::kColumns;
}
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
/// Whether a kernel that fills `target` while it reads its arguments could read what it has
/// overwritten.
bool hazard(const Op& op, bool elementwise, const RbTensor* target, const RbValue* args, int nargs);
/// Refuse an elementwise result that shares some of its elements with an operand, other than each
/// with itself: an error as in PyTorch. Operands with gaps may interleave; `hazard` tells whether
/// these need a copy.
void check_overlap(const Op& op, const RbTensor* target, const RbValue* args, int nargs);
/// Throw unless the arguments that the record says are written can be.
void check_mutated(const Op& op, const RbValue* args, int nargs);
void bump_mutated(const Op& op, const RbValue* args, int nargs);
/// Copy a result to its destination by a full call: layers see the write.
void write_result(const Op& op, RbTensor* result, RbTensor* target, const RbValue* args, int nargs);
/// Copy results, which are released, into the given destinations.
void write_back(const Op& op, RbValue* results, int32_t nrets, RbValue* rets, const RbValue* args,
                int nargs);

}  // namespace rabbet

// What a destination shares with the arguments of its call.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Whether `t` fills its memory without gaps, in whatever order of dimensions.
bool is_dense(const RbTensor* t);

/// Whether a kernel that fills `target` while it reads its arguments could read what it has
/// overwritten.
bool hazard(const Op& op, bool elementwise, const RbTensor* target, const RbValue* args, int nargs);

/// Refuse an elementwise result that shares some of its elements with an operand, other than each
/// with itself: an error as in PyTorch. Operands with gaps may interleave; those take the way of
/// `hazard`.
void check_overlap(const Op& op, const RbTensor* target, const RbValue* args, int nargs);

}  // namespace rabbet

// Kernels of whole formulas (RbFormulaKernel).
#pragma once
#include <memory>

#include "record/op.h"

namespace rabbet {

/// What a kernel of a whole formula has to state (RbFormulaKernel.formula): the signature, the
/// lets, and the decomposition (argument -1) or the derivative for an argument; a line each.
std::string formula_text(const Op& op, int argument);

/// The derivative for an argument as an operator of its own, made of the formula: its arguments are
/// those of `op`, then the result and its gradient. Kernels of the formula are its kernels. The
/// registry makes it with the first of them.
std::unique_ptr<Op> derivative_op(const Op& op, int argument);
inline const Op* find_derivative(const Op& op, int argument) {
  return op.derivatives.empty() ? nullptr
                                : op.derivatives[argument].load(std::memory_order_acquire);
}

}  // namespace rabbet

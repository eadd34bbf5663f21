// Kernels of whole formulas (RbFormulaKernel): when one may run in place of the formula.
#pragma once
#include <atomic>

#include "record/op.h"
#include "rules/infer.h"

namespace rabbet {

/// Off: formulas are evaluated step by step, which gives the same bits. For tests and comparisons.
extern std::atomic<bool> formula_kernels;

/// Shape and dtype of the result of a formula kernel for a decomposition; false where the operands
/// are not plain, i.e. tensors of one floating dtype and real numbers. Throws Error (RB_E_ARG)
/// where the shapes do not broadcast.
bool infer_plain(const Op& op, const RbValue* args, int nargs, Inferred& out);

/// The derivative for one argument by a backend's kernel, an owned tensor in `result`; false where
/// there is none or the formula has to be evaluated. Throws Error.
bool run_vjp_kernel(const Op& op, int argument, const RbValue* args, int nargs, const RbValue* outs,
                    const RbValue* grads, RbValue* result);

}  // namespace rabbet

// How formulas call operators. The functions are defined in call/formulas.cpp: formulas know no
// dispatcher.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// A full call with checked values, of types that the formula was not written for perhaps. Throws
/// Error.
void call_operator(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets);
/// The last two dimensions of `x` swapped by the view operator `op`; null where a layer would have
/// to see the call.
Tensor* view_without_dispatch(const Op& op, const RbValue& x);

}  // namespace rabbet

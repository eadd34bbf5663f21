// The result dtypes that core infers for elementwise calls, cached by the kinds of the arguments.
#pragma once
#include "region/recording.h"

namespace compile {

/// The dtype of the result of a call whose tensors are row-major and have the shapes that `infer`
/// broadcasts; -1: the call fails, or its result is no new row-major tensor of the broadcast shape.
/// `dtype`: of the tensors that the operator computes with.
int result_dtype(const RbOp* op, const RbOpInfo& info, const RbPointwise& kernel, int dtype,
                 const RbValue* args, int32_t nargs, int64_t numel);

}  // namespace compile

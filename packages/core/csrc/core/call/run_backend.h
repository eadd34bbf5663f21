// The bottom of a call: rules, allocation, the kernel.
#pragma once
#include "call/plan.h"
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

int32_t run_backend(const CallPlan& call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets);

/// Throw what a kernel left in the error record, if it did not return RB_OK.
void check_kernel_result(const Op& op, int backend, const Handler& handler, int32_t rc);

/// The decomposition of call->op as full calls, also into given destinations (RB_CALL_OUT). Throws
/// Error.
void decompose(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
               int32_t nrets);

int32_t redispatch(const RbCall* call, int layer, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t nrets);
int32_t redispatch_new(const RbCall* call, int layer, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets);

}  // namespace rabbet

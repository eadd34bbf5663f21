// Calls with dtypes that the header does not have, which kernels do not know: elements move as
// integers of their size, and are computed with in the dtype's `compute`.
#pragma once
#include "record/op.h"

namespace rabbet {

/// Such a dtype that a tensor of the call has or an argument asks for; -1: there is none.
int find_added_dtype(const RbCall* c, const RbValue* args, int nargs, const RbValue* rets,
                     int nrets);

/// copy_tensor where one of the two has such a dtype.
void copy_converted(const RbTensor* src, RbTensor* dst);

/// Run such a call of an operator that has a kernel. Throws Error.
void run_added_dtype(const RbCall* c, const Op& op, const Handler& handler, const RbValue* args,
                     int nargs, RbValue* rets, int nrets);

/// Run a call none of whose tensors has such a dtype, but that is computed in one: float16 times an
/// imaginary number. Throws Error.
void run_into_added_dtype(const RbCall* c, const Op& op, int compute, const RbValue* args,
                          int nargs, RbValue* rets, int nrets);

}  // namespace rabbet

// A call that comes to the layer of a composite among its arguments: what core checks before and
// after the layer's handler, and the view records of the results.
#pragma once
#include "call/plan.h"

namespace rabbet {

/// Run the handler `fn` of the layer with key `bit`, for a call with composites of any layer among
/// its arguments. Returns a status code.
int32_t run_composite_handler(const CallPlan& c, int bit, RbFn fn, void* self, const RbValue* args,
                              int32_t nargs, RbValue* rets, int32_t nrets);

}  // namespace rabbet

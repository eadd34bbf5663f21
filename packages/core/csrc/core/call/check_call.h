// The values of a call, as plugins and formulas hand them over, checked against the record.
#pragma once
#include <string>

#include "record/op.h"

namespace rabbet {

/// Whether core can read the values of a call as the record says; else the error is set.
int32_t check_call(const Op* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags);
/// Sets the error of a call without the argument `i`, which has no default; returns its code.
int32_t missing_argument(const Op& op, int32_t i);

/// That the arguments and results that a derivative is computed from are there.
void check_derivative(const char* what, const Op& op, const RbValue* args, const RbValue* outs);
/// Whether it is a gradient or a tangent: a tensor, or RB_ZERO; else `fail_moved` says so.
bool is_moved(const RbValue& v);
[[noreturn]] void fail_moved(const char* what, const Op& op, const std::string& which,
                             const RbValue& v);

}  // namespace rabbet

// A call of an overload whose arguments are converted.
#pragma once
#include "arguments.h"
#include "call/dispatch.h"
#include "op_type.h"
#include "ref.h"

namespace rabbet::python {

/// Elements of the arguments, of creations those of the result.
inline int64_t elements(const Overload& overload, const RbValue* values) {
  int64_t total = 0;
  for (uint64_t rest = overload.op->tensor_args; rest; rest &= rest - 1) {
    const RbValue& v = values[__builtin_ctzll(rest)];
    if (v.tag == RB_TENSOR) {
      total += v.v.t->numel;
    } else if (v.tag == RB_TENSORS) {
      for (uint32_t j = 0; j < v.len; ++j) total += v.v.ts[j] ? v.v.ts[j]->numel : 0;
    }
  }
  for (uint64_t rest = overload.sizes; rest; rest &= rest - 1) {
    const RbValue& v = values[__builtin_ctzll(rest)];
    if (v.tag == RB_INTS) {
      int64_t size = 1;
      for (uint32_t j = 0; j < v.len && size < kLargeCall; ++j)
        size *= v.v.is[j] > 0 ? v.v.is[j] : 1;
      total += size;
    }
  }
  return total;
}

__attribute__((noinline)) inline int32_t run_unlocked(const Op* op, const RbValue* values,
                                                      RbValue* rets, uint32_t flags) {
  const WithoutGil unlocked;
  return call(op, values, op->info.nargs, rets, op->info.nrets, flags);
}

/// Call an operator with converted arguments, without Python's lock if they are large.
inline int32_t run(const Overload& overload, const RbValue* values, RbValue* rets, uint32_t flags) {
  if (__builtin_expect(elements(overload, values) >= kLargeCall, 0))
    return run_unlocked(overload.op, values, rets, flags);
  const RbOpInfo& info = overload.op->info;
  return call(overload.op, values, info.nargs, rets, info.nrets, flags);
}

}  // namespace rabbet::python

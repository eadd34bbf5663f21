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
  const int n = overload.op->info.nargs;
  for (int i = 0; i < n; ++i) {
    const RbValue& v = values[i];
    if (v.tag == RB_TENSOR) {
      total += v.v.t->numel;
    } else if (v.tag == RB_TENSORS) {
      for (uint32_t j = 0; j < v.len; ++j) total += v.v.ts[j] ? v.v.ts[j]->numel : 0;
    } else if (v.tag == RB_INTS && overload.creation) {
      int64_t size = 1;
      for (uint32_t j = 0; j < v.len && size < kLargeCall; ++j)
        size *= v.v.is[j] > 0 ? v.v.is[j] : 1;
      total += size;
    }
  }
  return total;
}

/// Call an operator with converted arguments, without Python's lock if they are large.
inline int32_t run(const Overload& overload, const RbValue* values, RbValue* rets, uint32_t flags) {
  const int nargs = overload.op->info.nargs;
  const int nrets = overload.op->info.nrets;
  if (__builtin_expect(elements(overload, values) < kLargeCall, 1)) {
    return call(overload.op, values, nargs, rets, nrets, flags);
  }
  const WithoutGil unlocked;
  return call(overload.op, values, nargs, rets, nrets, flags);
}

}  // namespace rabbet::python

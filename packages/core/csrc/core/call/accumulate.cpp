#include "call/accumulate.h"

#include <algorithm>
#include <utility>

#include "call/core_functions.h"
#include "call/dispatch.h"
#include "rules/infer.h"
#include "thread/error.h"

namespace rabbet {

bool has_narrow(const RbValue* values, int n) {
  return std::any_of(values, values + n, [](const RbValue& v) {
    if (v.tag == RB_TENSOR) return is_narrow(v.v.t->dtype_id);
    if (v.tag == RB_DTYPE) return is_narrow(static_cast<int>(v.v.i));
    return v.tag == RB_TENSORS && std::any_of(v.v.ts, v.v.ts + v.len, [](const RbTensor* t) {
             return t && is_narrow(t->dtype_id);
           });
  });
}

Widened::Widened(const RbValue* given, int n) : Arguments(given, n) {
  replace_tensors(*this, n, [](RbTensor* t, int) {
    return is_narrow(t->dtype_id) ? call_cast(t, RB_F32) : TensorRef();
  });
  for (int i = 0; i < n; ++i) {
    if (values[i].tag == RB_DTYPE && is_narrow(static_cast<int>(values[i].v.i)))
      values[i].v.i = RB_F32;
  }
}

WideResults::WideResults(const Op& op, const RbValue* args, int nargs, const RbValue* outs,
                         int nouts)
    : again_(nouts) {
  bool complete = has_narrow(outs, nouts) && nargs == op.info.nargs;
  for (int i = 0; complete && i < nargs; ++i) {
    if (op.tensor_args >> i & 1) complete = args[i].tag == RB_TENSOR;
  }
  if (complete) {
    check(call(&op, args, nargs, again_.values, nouts, 0));
  } else {
    widened_ = std::make_unique<Widened>(outs, nouts);
  }
}

void round_results(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  for (int i = 0; i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR || rets[i].v.t->dtype_id != RB_F32) continue;
    const int dtype = result_dtype(op, i, args, nargs);
    if (!is_narrow(dtype)) continue;
    const TensorRef wide(std::exchange(rets[i], value_none()).v.t);
    rets[i] = value_tensor(call_cast(wide.get(), dtype).release_ownership());
  }
}

}  // namespace rabbet

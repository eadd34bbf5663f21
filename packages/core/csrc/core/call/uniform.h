// Uniform calls (plan.h) that one kernel answers alone: a result like the arguments, then the
// kernel.
#pragma once
#include "call/formula_kernels.h"
#include "call/plan.h"
#include "device/backends.h"
#include "thread/error.h"

namespace rabbet {

inline bool is_formula(const Handler& handler) { return (handler.flags & kFormulaFlag) != 0; }
inline bool formula_is_off(const Handler& handler) {
  return is_formula(handler) && !formula_kernels.load(std::memory_order_relaxed);
}

/// Whether run_uniform does the call; `keys` are backends.
[[gnu::always_inline]] inline bool is_answered_alone(const CallPlan& c, const Op& op,
                                                     uint64_t keys) {
  const RbTensor* like = c.uniform;
  if (!like || keys & (keys - 1) || c.flags & RB_CALL_OUT) return false;
  const Handler& handler = op.table[like->backend];
  return (handler.uniform_dtypes >> like->dtype_id & 1) && handler.fn && !formula_is_off(handler);
}

/// In a `catch` block: store what a kernel let through; returns the code.
[[gnu::cold]] int32_t store_kernel_error(const Op& op, const Handler& handler,
                                         int backend) noexcept;
[[gnu::always_inline]] inline int32_t run_handler(const Op& op, const Handler& handler, int backend,
                                                  const RbCall* c, const RbValue* args,
                                                  int32_t nargs, RbValue* rets, int32_t nrets) {
  try {
    return handler.fn(handler.self, c, args, nargs, rets, nrets);
  } catch (...) {
    return store_kernel_error(op, handler, backend);
  }
}

/// What follows a kernel of a uniform call that did not return RB_OK, and left no result.
int32_t finish_uniform(const CallPlan& c, int32_t rc, const RbValue* args, int32_t nargs,
                       RbValue* rets);

/// As store_kernel_error. It finds the kernel again: the caller keeps nothing for it.
[[gnu::cold]] int32_t store_uniform_error(const CallPlan& c) noexcept;

[[gnu::always_inline]] inline int32_t run_uniform(const CallPlan& c, const Op& op,
                                                  const RbValue* args, int32_t nargs,
                                                  RbValue* rets) {
  const RbTensor* like = c.uniform;
  const Handler& handler = op.table[like->backend];
  RbValue result;
  try {
    result = value_tensor(
        tensor_like(like, op.dtype_rule == DTypeRule::kBoolean ? +RB_BOOL8 : +like->dtype_id));
  } catch (...) {
    return store_current_exception();
  }
  int32_t rc;
  try {
    rc = handler.fn(handler.self, &c, args, nargs, &result, 1);
  } catch (...) {
    rc = store_uniform_error(c);
  }
  if (__builtin_expect(rc != RB_OK, 0)) {
    release(result.v.t);
    return finish_uniform(c, rc, args, nargs, rets);
  }
  rets[0] = result;
  return RB_OK;
}

}  // namespace rabbet

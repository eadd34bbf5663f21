#include "call/formulas.h"

#include <optional>

#include "call/accumulate.h"
#include "call/check_call.h"
#include "call/decomp_functions.h"
#include "call/dispatch.h"
#include "call/formula_kernels.h"
#include "formula/formula.h"
#include "formula/formula_run.h"
#include "formula/operator_calls.h"
#include "rules/rule_functions.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

void call_operator(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  Converted converted;
  check(check_call(&op, args, nargs, rets, nrets, 0, converted));
  check(call(&op, args, nargs, rets, nrets));
}

Tensor* view_without_dispatch(const Op& op, const RbValue& x) {
  const RbTensor* t = x.v.t;
  const ThreadState& state = thread_state();
  const uint64_t layers = (t->keys[0] | state.include) & ~state.exclude & ~kBackendMask;
  if (layers || (t->flags & RB_T_VIEW)) return nullptr;
  Tensor* view = make_view(op, &x, 1);
  set_view_record(view, &op, &x, 1);
  return view;
}

namespace {

void release_all(RbValue* values, int n) {
  for (int i = 0; i < n; ++i) value_release(&values[i]);
}

// Whether a derivative computes in the accumulation dtype of its arguments.
inline bool accumulates(const Op& op, const RbValue* args, int nargs, const RbValue* others,
                        int nothers) {
  return __builtin_expect(op.accumulate == AccumulateRule::kAlways, 0) &&
         (has_narrow(args, nargs) || has_narrow(others, nothers));
}

RbValue take_tensor(Val& x, const std::string& where) {
  if (x.is_tensor()) return value_tensor(x.take());
  if (x.is_number()) {
    static const Op* const full = find_op("full");
    const RbValue args[4] = {value_ints(nullptr, 0), x.v, value_none(), value_none()};
    return value_tensor(call1(full, args, 4).release_ownership());
  }
  fail_formula(where, "a formula gave no tensor");
}

RbValue take_tensors(const Val& x, const std::string& where) {
  if (!x.is_list()) fail_formula(where, "a formula expected a list");
  RbValue out = value_none();
  out.tag = RB_TENSORS;
  RbTensor** array = tensors_new(static_cast<uint32_t>(x.size()));
  out.v.ts = array;
  try {
    for (size_t i = 0; i < x.size(); ++i) {
      Val item = x.at(i);
      if (item.tag() != RB_ZERO && item.tag() != RB_NONE)
        array[out.len] = take_tensor(item, where).v.t;
      ++out.len;
    }
  } catch (...) {
    value_release(&out);
    throw;
  }
  return out;
}

}  // namespace

void run_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  if (op.rules[kDecompRule].fn) return run_decomp_rule(op, args, nargs, rets, nrets);
  if (decomp_function(op)) return run_decomp_function(op, args, nargs, rets, nrets);
  const Formula& f = compiled(op);
  FormulaRun run(op, f, args, nargs);
  if (op.is_derivative) {  // the last arguments are the result and its gradient
    run.set_results(args + nargs - 2, 1);
    run.set_gradients(args + nargs - 1);
  }
  Val result = run.run(f.decomp);
  if (op.is_derivative && is_zero(result.v)) {
    static const Op* const zeros_like = find_op("zeros_like");
    rets[0] = value_tensor(call1(zeros_like, args + nargs - 1, 1).release_ownership());
  } else if (op.returns_list) {
    rets[0] = take_tensors(result, op.name);
  } else if (nrets == 1) {
    rets[0] = take_tensor(result, op.name);
  } else {
    if (!result.is_list() || static_cast<int>(result.size()) != nrets)
      fail_formula(op.name, "the decomposition must give " + std::to_string(nrets) + " results");
    for (int i = 0; i < nrets; ++i) {
      Val item = result.at(i);
      rets[i] = take_tensor(item, op.name);
    }
  }
}

void run_vjp(const Op& op, uint64_t wanted, const RbValue* args, int nargs, const RbValue* outs,
             int nouts, const RbValue* grads, RbValue* results) {
  // Who asked rounds the gradients, once they have the shapes of the arguments.
  if (accumulates(op, args, nargs, grads, nouts)) {
    const Widened wide(args, nargs), wide_grads(grads, nouts);
    const WideResults wide_outs(op, wide.values, nargs, outs, nouts);
    return run_vjp(op, wanted, wide.values, nargs, wide_outs.values(), nouts, wide_grads.values,
                   results);
  }
  if (op.rules[kVjpRule].fn)
    return run_vjp_rule(op, wanted, args, nargs, outs, nouts, grads, results);
  std::optional<FormulaRun> run;
  for (int i = 0; i < nargs; ++i) results[i] = value_none();
  try {
    for (int i = 0; i < nargs; ++i) {
      if (!(wanted >> i & 1)) continue;
      if (run_vjp_kernel(op, i, args, nargs, outs, grads, &results[i])) continue;
      const Formula& f = compiled(op);
      if (f.vjps[i] < 0) {
        fail(RB_E_NOTIMPL,
             "%s: no derivative is recorded for the argument '%s': add `vjp %s FORMULA` to its "
             "record, or detach() that argument",
             op.name.c_str(), op.params[i].name, op.params[i].name);
      }
      if (!run) {
        run.emplace(op, f, args, nargs);
        run->set_results(outs, nouts);
        run->set_gradients(grads);
      }
      Val v = run->run(f.vjps[i]);
      if (is_zero(v.v)) {
        results[i].tag = RB_ZERO;
      } else if (op.params[i].type == RB_A_TENSORS) {
        results[i] = take_tensors(v, op.name);
      } else {
        results[i] = take_tensor(v, op.name);
      }
    }
  } catch (...) {
    release_all(results, nargs);
    throw;
  }
}

void run_jvp(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
             const RbValue* tangents, RbValue* results) {
  if (accumulates(op, args, nargs, tangents, nargs)) {
    const Widened wide(args, nargs), wide_tangents(tangents, nargs);
    const WideResults wide_outs(op, wide.values, nargs, outs, nouts);
    return run_jvp(op, wide.values, nargs, wide_outs.values(), nouts, wide_tangents.values,
                   results);
  }
  if (op.rules[kJvpRule].fn) return run_jvp_rule(op, args, nargs, outs, nouts, tangents, results);
  const Formula& f = compiled(op);
  for (int i = 0; i < nouts; ++i) results[i] = value_none();
  try {
    FormulaRun run(op, f, args, nargs);
    run.set_results(outs, nouts);
    run.set_tangents(tangents);
    for (int i = 0; i < nouts; ++i) {
      Val v = f.jvps[i] < 0 ? Val::zero() : run.run(f.jvps[i]);
      if (is_zero(v.v)) {
        results[i].tag = RB_ZERO;
      } else {
        results[i] = take_tensor(v, op.name);
      }
    }
  } catch (...) {
    release_all(results, nouts);
    throw;
  }
}

}  // namespace rabbet

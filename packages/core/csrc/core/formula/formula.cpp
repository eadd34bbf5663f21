// What core asks of formulas: results, derivatives, dtypes and shapes.
#include "formula/formula.h"

#include <mutex>
#include <optional>

#include "call/dispatch.h"
#include "formula/accumulate.h"
#include "formula/formula_kernel.h"
#include "formula/formula_run.h"
#include "rules/rule_functions.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

namespace {

int expect_dtype(const Op& op, const Val& v) {
  if (v.tag() == RB_DTYPE) return static_cast<int>(v.v.v.i);
  const Described d = describe(v.v);
  if (d.known) return d.dtype;
  if (v.is_number()) return number_dtype(v.v);
  fail_formula(op.name, "a dtype rule gave no dtype");
}

void release_all(RbValue* values, int n) {
  for (int i = 0; i < n; ++i) value_release(&values[i]);
}

// Whether a derivative computes in the accumulation dtype of its arguments.
inline bool accumulates(const Op& op, const RbValue* args, int nargs, const RbValue* others,
                        int nothers) {
  return __builtin_expect(op.accumulate == AccumulateRule::kAlways, 0) &&
         (has_narrow(args, nargs) || has_narrow(others, nothers));
}

}  // namespace

const Formula& compiled(const Op& op) {
  static std::mutex mutex;
  Op& slot = const_cast<Op&>(op);
  if (const Formula* ready = __atomic_load_n(&slot.formula_ready, __ATOMIC_ACQUIRE)) return *ready;
  auto fresh = compile_formulas(op);
  std::lock_guard<std::mutex> lock(mutex);
  if (!slot.formula) {
    slot.formula = std::move(fresh);
    __atomic_store_n(&slot.formula_ready, slot.formula.get(), __ATOMIC_RELEASE);
  }
  return *slot.formula;
}

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

int eval_dtype(const Op& op, int ret, const RbValue* args, int nargs) {
  const Formula& f = compiled(op);
  return expect_dtype(op, FormulaRun(op, f, args, nargs).run(f.dtypes[ret]));
}

int eval_compute(const Op& op, const RbValue* args, int nargs) {
  const Formula& f = compiled(op);
  return expect_dtype(op, FormulaRun(op, f, args, nargs).run(f.compute));
}

int eval_shape(const Op& op, int ret, const RbValue* args, int nargs, int64_t* shape) {
  const Formula& f = compiled(op);
  FormulaRun run(op, f, args, nargs);
  const Val list = run.run(f.shapes[ret]);
  if (!list.is_list()) fail_formula(op.name, "the shape formula must give a list of ints");
  const int ndim = static_cast<int>(list.size());
  if (ndim > kMaxDims) fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  for (int i = 0; i < ndim; ++i) {
    const Val size = list.at(i);
    if (!size.is_integer()) {
      fail_formula(op.name, "the shape formula must give a list of ints, but entry " +
                                std::to_string(i) + " is none");
    }
    shape[i] = size.v.v.i;
    if (shape[i] < 0) {
      fail(RB_E_ARG, "%s: the result would have the negative size %lld", op.name.c_str(),
           (long long)shape[i]);
    }
  }
  return ndim;
}

void run_checks(const Op& op, const RbValue* args, int nargs) {
  const Formula& f = compiled(op);
  FormulaRun run(op, f, args, nargs);
  for (size_t i = 0; i < f.checks.size(); ++i) {
    const CheckBlocks& check = f.checks[i];
    if (__builtin_expect(truth(run.run(check.condition).v, op), 1)) continue;
    std::string message = op.name + ": " + check.texts[0];
    for (size_t k = 0; k < check.values.size(); ++k)
      message += value_text(run.run(check.values[k])) + check.texts[k + 1];
    fail(op.checks[i].code, "%s", message.c_str());
  }
}

void check_formulas(const std::vector<std::unique_ptr<Op>>& fresh) {
  const FreshOps known(fresh);
  for (const auto& op : fresh) {
    check_formulas(*op);
    if (is_loaded_decomp(*op))
      fail(RB_E_PLUGIN, "%s: %s: no decomposition function '%s'", op->file.c_str(),
           op->name.c_str(), decomp_function(*op));
    // Compiled anew once it is registered: some of `fresh` may stand for operators that are.
    op->formula_ready = nullptr;
    op->formula.reset();
  }
}

void check_formulas(const Op& op) {
  compiled(op);
  check_definitions(op);
}

}  // namespace rabbet

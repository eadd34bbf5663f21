// What core asks of formulas on host data: dtypes, shapes and checks.
#include "formula/formula.h"

#include <mutex>

#include "formula/formula_run.h"
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

}  // namespace

const char* decomp_function(const Op& op) {
  constexpr const char kHead[] = "function ";
  const size_t n = sizeof kHead - 1;
  return op.decomp_text.compare(0, n, kHead) ? nullptr : op.decomp_text.c_str() + n;
}

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

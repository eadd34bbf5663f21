// The interpreter of formula programs: host data by Python's rules, tensors through the
// dispatcher.
#pragma once
#include <new>

#include "formula/formula_program.h"
#include "formula/formula_value.h"

namespace rabbet {

/// Values in memory of their own; a few need none from the heap.
class Slots {
 public:
  explicit Slots(int count) : count_(count) {
    if (count > kFew) at_ = static_cast<Val*>(operator new(count * sizeof(Val)));
    for (int i = 0; i < count; ++i) new (&at_[i]) Val;
  }
  ~Slots() {
    for (int i = 0; i < count_; ++i) at_[i].~Val();
    if (count_ > kFew) operator delete(at_);
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  Val& operator[](int i) { return at_[i]; }
  Val* from(int i) { return at_ + i; }

 private:
  static constexpr int kFew = 8;
  alignas(Val) char few_[kFew * sizeof(Val)];
  Val* at_ = reinterpret_cast<Val*>(few_);
  int count_;
};

/// One evaluation: blocks of a program on the values of one call. What a `let` gives is kept for
/// the other blocks.
class FormulaRun {
 public:
  FormulaRun(const Op& op, const Formula& f, const RbValue* args, int nargs)
      : op_(op),
        f_(f),
        args_(args),
        nargs_(nargs),
        lets_(static_cast<int>(f.lets.size())),
        locals_(f.locals) {}

  void set_results(const RbValue* outs, int n) {
    outs_ = outs;
    nouts_ = n;
  }
  void set_gradients(const RbValue* grads) { grads_ = grads; }
  void set_tangents(const RbValue* tangents) { tangents_ = tangents; }

  /// The value of the block that begins at instruction `entry`. Throws Error.
  Val run(int32_t entry);

 private:
  [[noreturn]] void fail(const std::string& message) const;
  Val let(int32_t index);
  Val negate(const Callee& neg, const Val& x);
  Val binary(const Instruction& at, const Val& x, const Val& y);
  Val with_zero(Operator op, const Val& x, const Val& y);
  Val call(const Callee& callee, Val* values, int count);
  Val invoke(const Op& op, RbValue* values);
  Val of_numbers(const Op& callee, RbValue* values);
  Val transposed(const Callee& callee, const Val& x);
  Val like_meta(const Callee& callee, const Val& x);
  Val each(const Formula::Loop& loop, const Val* lists, int count);
  Val item(const Val& list, const Val& at, bool of_shape);
  Val slice(const Val& list, const Val& from, const Val& to);
  Val attribute(Val x, int which);

  const Op& op_;
  const Formula& f_;
  const RbValue* args_;
  const int nargs_;
  const RbValue *outs_ = nullptr, *grads_ = nullptr, *tangents_ = nullptr;
  int nouts_ = 0;
  uint64_t lets_done_ = 0;
  Slots lets_, locals_;
};

}  // namespace rabbet

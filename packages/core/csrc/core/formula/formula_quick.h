// The quick way through a derivative formula: no list objects, no memory of its own.
#pragma once
#include "formula/formula_nodes.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Evaluates the formulas of one derivative call on plain values. What it does not take (values
/// that were not saved, lists, complex numbers, functions on host data) is left to the general
/// evaluator. Operators in formulas are ordinary calls.
class QuickFormula {
 public:
  QuickFormula(const Op& op, const Formula& f, const RbValue* args, int nargs, const RbValue* outs,
               int nouts, const RbValue* grads)
      : op_(op), f_(f), args_(args), outs_(outs), grads_(grads), nargs_(nargs), nouts_(nouts) {}
  ~QuickFormula();
  QuickFormula(const QuickFormula&) = delete;
  QuickFormula& operator=(const QuickFormula&) = delete;

  /// The derivative for argument `arg` as RB_ZERO or an owned RB_TENSOR; false: not taken. Throws
  /// what the operators throw.
  bool vjp(int arg, RbValue* result);

 private:
  static constexpr int kLets = 16, kOwned = 24, kInts = 64;

  bool eval(int at, RbValue* out);
  bool let(int index, RbValue* out);
  bool unary(const Node& n, RbValue* out);
  bool binary(const Node& n, RbValue* out);
  bool with_zero(Operator op, RbValue* values, RbValue* out);
  bool call_op(const Node& n, RbValue* out);
  bool list(const Node& n, RbValue* out);
  bool index(const Node& n, RbValue* out);
  bool attribute(const Node& n, RbValue* out);
  bool run(const Op* op, RbValue* values, int given, RbValue* out);
  bool transposed(RbTensor* t, RbValue* out);
  bool as_parameter(const Param& p, RbValue* v);
  bool keep(RbTensor* owned, RbValue* out);
  bool never() {
    never_ = true;
    return false;
  }

  const Op& op_;
  const Formula& f_;
  const RbValue *args_, *outs_, *grads_;
  const int nargs_, nouts_;
  bool never_ = false;  // the formula has a part that is never taken here
  int nowned_ = 0, nints_ = 0;
  uint32_t lets_done_ = 0;
  RbTensor* owned_[kOwned];
  RbValue lets_[kLets];
  int64_t ints_[kInts];
};

}  // namespace rabbet

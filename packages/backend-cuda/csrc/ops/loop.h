// The loop around an elementwise expression, in the way that suits where the elements lie.
#pragma once
#include <string>

#include "launch/jit.h"
#include "rabbet/emit.h"

namespace rbcuda {

/// An expression of kernels/elementwise.cuh in a, b, c, chosen, p0 to p3 and i, with the loops
/// around it. Lives as long as the process: `functions` and the texts are told apart by address.
class Expression {
 public:
  enum Loop { kFlat, kRows, kPlaces, kPlaces64, kLoops };
  enum Reads { kOperands, kPosition };  // kPosition: also i
  /// `functions` are those that the expression calls, beside the primitives.
  explicit Expression(const std::string& text, const char* functions = "", Reads reads = kOperands);
  bool reads_position() const { return reads_ == kPosition; }
  const char* functions() const { return functions_; }
  const char* loop(Loop which) const { return loops_[which].c_str(); }

 private:
  const char* functions_;
  Reads reads_;
  std::string loops_[kLoops];
};

/// Twin of Call in elementwise.cuh.
struct Call {
  Number numbers[RB_EMIT_INPUTS], parameters[RB_EMIT_NUMBERS];
  int32_t is_number, is_single;
};

/// What a loop reads: tensors, numbers in the place of tensors, and other numbers.
struct Operands {
  const RbTensor* tensors[RB_EMIT_INPUTS] = {};  // null: the number
  Call call = {};

  void set(int k, const RbValue& value) {
    if (value.tag == RB_TENSOR) {
      tensors[k] = value.v.t;
    } else {
      call.numbers[k] = number_of(value);
    }
  }
};

/// out = expression at every position, computed in `dtype`. Tensors broadcast to `out`.
void loop(const char* op, const RbTensor& out, int dtype, const Expression& expression,
          Operands& operands);

}  // namespace rbcuda

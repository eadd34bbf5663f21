// The loop around an elementwise expression, in the way that suits where the elements lie.
#pragma once
#include <atomic>
#include <string>

#include "launch/jit.h"
#include "rabbet/emit.h"

namespace rbcuda {

/// An expression of kernels/elementwise.cuh in a, b, c, chosen, p0 to p3 and i, with the loops
/// around it and their functions. Lives as long as the process.
class Expression {
 public:
  enum Loop { kFlat, kRows, kPlaces, kPlaces64, kLoops };
  enum Reads { kOperands, kPosition };  // kPosition: also i
  /// `functions` are those that the expression calls, beside the primitives.
  explicit Expression(const std::string& text, const char* functions = "", Reads reads = kOperands);
  bool reads_position() const { return reads_ == kPosition; }

  /// Dtypes, loop and device in one number.
  using Key = uint64_t;
  static Key key(Loop loop, int device, int computed, int out, const int (&stored)[3]) {
    return Key{1} << 63 | static_cast<Key>(device) << 36 | static_cast<Key>(loop) << 32 |
           static_cast<Key>(computed) << 24 | static_cast<Key>(out) << 18 |
           static_cast<Key>(stored[0]) << 12 | static_cast<Key>(stored[1]) << 6 |
           static_cast<Key>(stored[2]);
  }
  CuFunction function(Device& device, const char* op, Key key) const {
    const Found* found = slot(key).load(std::memory_order_acquire);
    return __builtin_expect(found && found->key == key, 1) ? found->function
                                                           : find(device, op, key);
  }

 private:
  struct Found {
    Key key;
    CuFunction function;
  };
  // Written once; what finds its slot taken asks the process's table each time.
  static constexpr int kSlotBits = 4;
  std::atomic<const Found*>& slot(Key key) const {
    return slots_[key * 0x9e3779b97f4a7c15u >> (64 - kSlotBits)];
  }
  CuFunction find(Device& device, const char* op, Key key) const;

  const char* functions_;
  Reads reads_;
  std::string loops_[kLoops];
  mutable std::atomic<const Found*> slots_[1 << kSlotBits] = {};
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

/// out = expression at every position, computed in `dtype`. Tensors broadcast to `out`. `call`:
/// of which this is the kernel.
void loop(const char* op, const RbTensor& out, int dtype, const Expression& expression,
          Operands& operands, const RbCall* call = nullptr);

}  // namespace rbcuda

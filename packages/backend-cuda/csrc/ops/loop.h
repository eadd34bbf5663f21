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

  /// Dtypes, loop and device in one number; `stored`: see Operands.
  using Key = uint64_t;
  static Key key(Loop loop, int device, int computed, uint32_t stored) {
    return Key{1} << 63 | static_cast<Key>(device) << 36 | static_cast<Key>(loop) << 32 |
           static_cast<Key>(computed) << 24 | stored;
  }
  struct Found {
    Key key;
    CuFunction function;
    int log_pack;  // of the elements in 16 bytes of the widest dtype
  };
  Found function(Device& device, const char* op, Key key) const {
    const Found* found = slot(key).load(std::memory_order_acquire);
    return __builtin_expect(found && found->key == key, 1) ? *found : find(device, op, key);
  }

 private:
  // Written once; what finds its slot taken asks the process's table each time.
  static constexpr int kSlotBits = 4;
  std::atomic<const Found*>& slot(Key key) const {
    return slots_[key * 0x9e3779b97f4a7c15u >> (64 - kSlotBits)];
  }
  Found find(Device& device, const char* op, Key key) const;

  const char* functions_;
  Reads reads_;
  std::string loops_[kLoops];
  mutable std::atomic<const Found*> slots_[1 << kSlotBits] = {};
};

/// Twin of Call in elementwise.cuh. Numbers that no kernel reads are not set.
struct Call {
  Number numbers[RB_EMIT_INPUTS], parameters[RB_EMIT_NUMBERS];
  int32_t is_number, is_single;
};

/// A tensor that is read, as an argument of a call.
inline RbValue read_value(const RbTensor& t) { return rb::tensor_value(const_cast<RbTensor*>(&t)); }

/// Where a loop writes and what it reads: up to three tensors, or numbers in their place, and other
/// numbers. Knows what decides how the loop runs.
class Operands {
 public:
  Operands(const RbTensor& out, int count, const RbValue* values) : out(out) {
    uint32_t stored = out.dtype_id * 0x41041u, flags = out.flags;
    int is_number = (1 << RB_EMIT_INPUTS) - 1;
    auto addresses = reinterpret_cast<uintptr_t>(out.data);
    int64_t others = 0;
    const RbTensor* first = &out;
#pragma GCC unroll 3
    for (int k = 0; k < count; ++k) {
      const RbValue& value = values[k];
      if (__builtin_expect(value.tag != RB_TENSOR, 0)) {
        call.numbers[k] = number_of(value);
        continue;
      }
      const RbTensor& t = *value.v.t;
      tensors[k] = &t;
      if (first == &out) first = &t;
      data[k] = t.data;
      is_number ^= 1 << k;
      stored ^= static_cast<uint32_t>(t.dtype_id ^ out.dtype_id) << (12 - 6 * k);
      flags &= t.flags;
      addresses |= reinterpret_cast<uintptr_t>(t.data);
      others |= t.numel ^ out.numel;
    }
    call.is_number = is_number;
    call.is_single = 0;
    stored_ = stored;
    dtype_ = first->dtype_id;
    alike_ = (flags & RB_T_CONTIGUOUS) && !others && addresses % 16 == 0;
  }

  /// The operands'; the result's where they are numbers. A test has bool for its result.
  int dtype() const { return dtype_; }
  /// Tensors of one shape without gaps that begin where packs do, as in most calls.
  bool are_alike() const { return alike_; }
  /// Dtypes in memory, 6 bits each: the result's and the operands'.
  uint32_t stored() const { return stored_; }

  const RbTensor& out;
  const RbTensor* tensors[RB_EMIT_INPUTS] = {};  // null: the number
  const void* data[RB_EMIT_INPUTS] = {};
  Call call;

 private:
  uint32_t stored_;
  int dtype_;
  bool alike_;
};

/// operands.out = expression at every position, computed in `dtype`. Tensors broadcast to `out`.
/// `call`: of which this is the kernel.
void loop(const char* op, int dtype, const Expression& expression, Operands& operands,
          const RbCall* call = nullptr);

}  // namespace rbcuda

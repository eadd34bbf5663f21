// Kernels: text to a launch. A text is compiled once per device and process; how the cubin is found
// is image.h's.
#pragma once
#include <cstring>
#include <string>

#include "device/dtypes.h"
#include "device/failure.h"
#include "device/timing.h"
#include "launch/layout.h"

namespace rbcuda {

/// A dtype by the name that a kernel's text has for it, up to 7 letters: "typedef float T;".
struct TypeName {
  TypeName(const char* name, int dtype) : packed(static_cast<uint64_t>(dtype) << 56) {
    const size_t length = __builtin_strlen(name);
    std::memcpy(&packed, name, length < 7 ? length : 7);
  }
  TypeName() = default;
  int dtype() const { return static_cast<int>(packed >> 56); }
  std::string name() const;

  uint64_t packed = 0;  // the letters, then the dtype in the last byte
};
class Types {
 public:
  static constexpr int kMost = 6;
  Types(std::initializer_list<TypeName> names) : count_(static_cast<int>(names.size())) {
    if (count_ > kMost) rb::fail(RB_E_INTERNAL, "cuda: a kernel of %d dtypes", count_);
    for (int i = 0; i < count_; ++i) names_[i] = names.begin()[i];
  }
  const TypeName* begin() const { return names_; }
  const TypeName* end() const { return names_ + count_; }

 private:
  TypeName names_[kMost];
  int count_;
};

/// A piece of text that is told apart by its address: it is never changed or freed.
class Text {
 public:
  Text(const char* literal) : data_(literal) {}
  /// Equal ones have one copy, which is kept. Costs a search, under a lock.
  Text(const std::string& made);
  const char* data() const { return data_; }

 private:
  const char* data_;
};

/// The kernel `rb_kernel`: its dtypes, a text of kernels/, what that needs beside it, and what
/// comes behind both, such as a macro of the text with its arguments. Equal ones are compiled once.
/// `op` is for errors.
struct Kernel {
  const char* op;
  Types types;
  const char* text;  // kText_NAME
  Text behind;
  Text functions = "";  // between text and behind
};

/// A number of a call; kernels take the member that fits their dtype. Twin of Number in types.cuh.
struct Number {
  double real, imag;
  int64_t whole;
};
Number number_of(const RbValue& value);

struct Grid {
  unsigned x, y, z, threads;
};
/// Compile at the first call, and enqueue on the current stream. `arguments` point to the kernel's.
void launch(Device& device, const Kernel& kernel, Grid grid, void** arguments);
/// With a function that was found before, on `stream` of the entered device.
inline void enqueue(Device& device, CuStream stream, const char* op, CuFunction function, Grid grid,
                    void** arguments) {
  const Timed timed(device, stream, op);
  launched(device, stream, op,
           driver().launch(function, grid.x, grid.y, grid.z, grid.threads, 1, 1, 0, stream,
                           arguments, nullptr));
}
/// With a thread for each position.
void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments);

}  // namespace rbcuda

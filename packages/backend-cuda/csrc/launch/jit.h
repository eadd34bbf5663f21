// Kernels: text to module by NVRTC, once per device and text.
#pragma once
#include "device/device.h"
#include "launch/layout.h"

namespace rbcuda {

/// A dtype by the name that a kernel's text has for it: "typedef float T;" and the like.
struct TypeName {
  const char* name;  // one letter or a few; the text lives as long as the process
  int dtype;
};
class Types {
 public:
  Types(std::initializer_list<TypeName> names);
  const TypeName* begin() const { return names_; }
  const TypeName* end() const { return names_ + count_; }

 private:
  static constexpr int kMost = 6;
  TypeName names_[kMost];
  int count_;
};

/// The kernel `rb_kernel`: its dtypes, a text of kernels/, and what comes behind it, such as a
/// macro of the text with its arguments. Equal ones are compiled once. `op` is for errors.
struct Kernel {
  const char* op;
  Types types;
  const char* text;  // kText_NAME
  std::string behind;
};

/// A number of a call; kernels take the member that fits their dtype. Twin of Number in types.cuh.
struct Number {
  double real;
  int64_t whole;
};
Number number_of(const RbValue& value);

/// The dtype that kernels compute in for a stored one: float32 for 16 bits.
inline int computed(int dtype) { return dtype == RB_F16 || dtype == RB_BF16 ? +RB_F32 : dtype; }

struct Grid {
  unsigned x, y, z, threads;
};
/// Compile at the first call, and enqueue on the current stream. `arguments` point to the kernel's.
void launch(Device& device, const Kernel& kernel, Grid grid, void** arguments);
/// With a thread for each position.
void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments);

}  // namespace rbcuda

// Kernels: text to module by NVRTC, once per device and text.
#pragma once
#include "device.h"
#include "layout.h"

namespace rbcuda {

/// The kernel `rb_kernel`: the text of its dtypes, a text of kernels/, and what comes behind it;
/// `op` is for errors.
struct Kernel {
  const char* op;
  std::string dtypes;
  const char* text;
  std::string behind;
};

/// A number of a call; kernels take the member that fits their dtype. Twin of Number in types.cuh.
struct Number {
  double real;
  int64_t whole;
};
Number number_of(const RbValue& value);

/// "typedef float T;" and the like.
std::string type_text(const char* type, int dtype);
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

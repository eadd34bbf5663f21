// Kernels: text to module by NVRTC, once per device and text.
#pragma once
#include "device.h"
#include "layout.h"

namespace rbcuda {

extern const char* const kCommonText;  // kernels/common.cuh; written by the build

/// A kernel's name and what comes behind the common text; `op` is for errors.
struct Kernel {
  const char* op;
  std::string name;
  std::string text;
};

/// A number of a call; kernels take the member that fits their dtype. Twin of Number in common.cuh.
struct Number {
  double real;
  int64_t whole;
};
Number number_of(const RbValue& value);

/// "typedef float T;" and the like.
std::string type_text(const char* type, int dtype);

/// Compile at the first call, and enqueue one thread per position on the current stream.
/// `arguments` point to the kernel's arguments.
void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments);

}  // namespace rbcuda

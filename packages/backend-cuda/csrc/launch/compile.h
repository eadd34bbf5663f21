// NVRTC: text to cubin. RABBET_CUDA_LINEINFO=1: tools then name lines of the text (which
// RABBET_CUDA_KEEP_SOURCES keeps), as OP.cu:LINE.
#pragma once
#include <string>
#include <vector>

#include "device/device.h"

namespace rbcuda {

/// "sm_90", or "compute_90" for PTX, which the driver compiles on: what NVRTC can make for the
/// device, also for one that is newer than NVRTC.
std::string target_of(const Device& device);

/// Of a compilation; part of a kernel's key. Formulas that the CPU computes to the same bits are
/// not contracted: what core defines (elementwise operators, random numbers, optimizers),
/// reductions and scans, which must not depend on how a compiler pairs products with sums, and
/// products of matrices, which say fma themselves. Texts that define RB_CONTRACTED are compiled as
/// PyTorch's are, with contraction: norms, softmax, losses, attention, convolution, recurrent
/// cells.
std::vector<std::string> options_of(const std::string& text, const std::string& target);
/// "NVRTC 13.0"
std::string compiler_name();

struct Compiled {
  std::vector<char> image;  // empty: the text does not compile
  int status;
  std::string log;
};
/// Several threads may compile at once. `op`.cu is what logs and tools call the program.
Compiled compile(const char* op, const std::string& text, const std::string& target);

}  // namespace rbcuda

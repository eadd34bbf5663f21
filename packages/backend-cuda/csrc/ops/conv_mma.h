// Convolutions by kernels of ours on tensor cores: of 16-bit floats, and of float32 in TF32.
#pragma once
#include "ops/conv.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// The result of `c` from `from` and the weight: outputs, or (gradient) the input's gradient.
/// False, and nothing is written, where tensor cores do not compute it.
bool convolve_by_mma(const char* op, const Conv& c, bool gradient, const RbTensor& to,
                     const RbTensor& from, const RbTensor& weight, const RbTensor* bias);
/// The weight's gradient, likewise.
bool weights_by_mma(const char* op, const Conv& c, const RbTensor& dw, const RbTensor& x,
                    const RbTensor& g);

}  // namespace rbcuda

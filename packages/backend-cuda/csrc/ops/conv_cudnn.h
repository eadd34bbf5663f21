// Convolutions by cuDNN, where it is installed.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// One of the three products of a convolution: the one of `result` is computed from the other two.
/// Tensors are (N, C, ...), (O, C / groups, ...) and (N, O, ...), of one dtype and any strides.
struct Convolution {
  enum Result { kOutputs, kInputs, kWeights };
  const char* op;
  Result result;
  const RbTensor *x, *w, *y;
  rb::Span<int64_t> stride, padding, dilation;  // one for all directions, or one for each
  const RbTensor* bias = nullptr;               // added to the outputs
};

/// False, and nothing is written, where cuDNN is not there or does not know this one.
bool convolve_by_library(const Convolution& c);

}  // namespace rbcuda

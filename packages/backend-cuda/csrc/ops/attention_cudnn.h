// Attention and its derivative by cuDNN, where it is installed and knows the sizes.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// The calls of `attention` and `attention_backward`. False, and no result is written, where a
/// kernel of ours is to compute it. The logarithms of sums are those of our kernels.
bool attend_by_library(const rb::Args& a);
bool attend_backward_by_library(const rb::Args& a);

}  // namespace rbcuda

// Attention and its derivative by cuDNN, where it is installed and knows the sizes.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// The calls of `attention` and `attention_backward`. False, and no result is written, where a
/// kernel of ours is to compute it. The logarithms of sums are those of our kernels.
///
/// A plan takes about half a second to make. Our kernels therefore compute calls of few queries,
/// and of sizes that have not recurred, unless `only` says that they are switched off.
bool attend_by_library(const rb::Args& a, bool only);
bool attend_backward_by_library(const rb::Args& a, bool only);

}  // namespace rbcuda

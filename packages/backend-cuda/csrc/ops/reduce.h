// Reductions for other families.
#pragma once
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// A fold of kernels/reduce.cuh.
struct Fold {
  const char* text;  // a literal: "typedef ... Fold;\n"
  int compute;       // the dtype T
  int64_t state;     // bytes of its State
  double number = 0;
  bool ordered = false;  // it wants the elements' places
};
Fold sum_fold(int dtype);
/// Variance (the sum of squares divided by count - number), and the mean as the second result.
Fold moments_fold(int dtype);

/// Results of dimensions `reduced` of x; either result may be null if the fold allows it.
void reduce(const char* op, const Fold& fold, const RbTensor* out, const RbTensor* second,
            const RbTensor& x, const bool* reduced);

}  // namespace rbcuda

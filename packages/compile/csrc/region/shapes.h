// Broadcasting of row-major tensors.
#pragma once
#include "region/recording.h"

namespace compile {

/// The shape of an elementwise result.
struct Shape {
  int ndim = 0;
  int64_t dims[kMostDims];
  int64_t numel = 1;
};

/// A plain tensor of the CPU without gaps, its strides those of a new tensor of its shape.
bool is_row_major(const RbTensor* t);
/// Make `shape` that of its broadcast with `t`. False: they do not fit.
bool broadcast(Shape& shape, const RbTensor* t);
/// How `t` meets a result of `shape`; *cols becomes the length of a row, where it is a row or a
/// column. False: in no simple way.
bool extent_of(const RbTensor* t, const Shape& shape, Extent* extent, int64_t* cols);

}  // namespace compile

// Whether tensors share memory.
#pragma once
#include "tensor/tensor.h"

namespace rabbet {

/// Whether `t` fills its memory without gaps, in whatever order of dimensions.
bool is_dense(const RbTensor* t);
/// Whether two tensors have the same address, shape and strides.
bool same_geometry(const RbTensor* a, const RbTensor* b);
/// Whether the extents of two tensors in one storage overlap; tensors with gaps may interleave.
bool may_overlap(const RbTensor* a, const RbTensor* b);

}  // namespace rabbet

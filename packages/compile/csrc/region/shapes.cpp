#include "region/shapes.h"

#include <algorithm>

namespace compile {

bool is_row_major(const RbTensor* t) {
  if (t->backend != cpu || t->layout != RB_STRIDED || !(t->flags & RB_T_CONTIGUOUS) ||
      t->flags & (RB_T_WRAPPER | RB_T_COMPOSITE) || t->ndim > kMostDims || t->byte_offset)
    return false;
  // Results take over the strides of dimensions of size 1, which need not be those of new tensors.
  int64_t dense = 1;
  for (int d = t->ndim - 1; d >= 0; --d) {
    if (t->strides[d] != dense) return false;
    dense *= t->shape[d];
  }
  return t->numel > 0;
}

bool broadcast(Shape& shape, const RbTensor* t) {
  if (t->ndim > shape.ndim) {
    const int more = t->ndim - shape.ndim;
    std::copy_backward(shape.dims, shape.dims + shape.ndim, shape.dims + t->ndim);
    std::fill(shape.dims, shape.dims + more, 1);
    shape.ndim = t->ndim;
  }
  int64_t* dims = shape.dims + shape.ndim - t->ndim;
  for (int d = 0; d < t->ndim; ++d) {
    if (dims[d] == t->shape[d] || t->shape[d] == 1) continue;
    if (dims[d] != 1) return false;
    dims[d] = t->shape[d];
  }
  shape.numel = 1;
  for (int d = 0; d < shape.ndim; ++d) shape.numel *= shape.dims[d];
  return true;
}

bool extent_of(const RbTensor* t, const Shape& shape, Extent* extent, int64_t* cols) {
  if (t->numel == shape.numel) {
    *extent = Extent::kFull;
    return true;
  }
  if (t->numel == 1) {
    *extent = Extent::kOne;
    return true;
  }
  const int offset = shape.ndim - t->ndim;
  const auto size = [&](int d) { return d < offset ? 1 : t->shape[d - offset]; };
  int first = 0, last = shape.ndim;  // dimensions in which it does not have one element
  while (first < last && size(first) == 1) ++first;
  while (last > first && size(last - 1) == 1) --last;
  for (int d = first; d < last; ++d) {
    if (size(d) != shape.dims[d]) return false;
  }
  int64_t before = 1, after = 1;  // elements of the result along the others
  for (int d = 0; d < first; ++d) before *= shape.dims[d];
  for (int d = last; d < shape.ndim; ++d) after *= shape.dims[d];
  if (after == 1) {
    *extent = Extent::kRow;
    *cols = t->numel;
    return true;
  }
  *extent = Extent::kColumn;
  *cols = after;
  return before == 1;
}

}  // namespace compile

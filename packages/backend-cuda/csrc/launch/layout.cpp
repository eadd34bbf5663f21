#include "launch/layout.h"

#include <cstdlib>
#include <utility>

namespace rbcuda {

void sort_by_stride(int* dims, int count, const RbTensor& t, int ndim) {
  const auto far = [&](int d) { return std::abs(stride_at(t, d, ndim)); };
  for (int i = 1; i < count; ++i) {
    for (int at = i; at > 0 && far(dims[at - 1]) < far(dims[at]); --at)
      std::swap(dims[at - 1], dims[at]);
  }
}

Layout layout_over(const char* op, const int* dims, int count,
                   std::initializer_list<const RbTensor*> tensors) {
  const RbTensor& out = **tensors.begin();
  Layout layout = {};
  layout.n = 1;
  int ndim = 0;
  for (int at = 0; at < count; ++at) {
    const int64_t size = out.shape[dims[at]];
    if (size == 1) continue;
    layout.n *= size;
    int64_t step[kLayoutTensors] = {};
    bool joins = ndim > 0;
    int k = 0;
    for (const RbTensor* t : tensors) {
      if (t) step[k] = stride_at(*t, dims[at], out.ndim);
      joins = joins && layout.strides[k][ndim - 1] == step[k] * size;
      ++k;
    }
    if (joins) {
      layout.shape[ndim - 1] *= size;
    } else if (ndim == kLayoutDims) {
      rb::fail(RB_E_NOTIMPL,
               "%s on 'cuda': at most %d dimensions that do not lie one after another", op,
               kLayoutDims);
    } else {
      layout.shape[ndim++] = size;
    }
    for (k = 0; k < kLayoutTensors; ++k) layout.strides[k][ndim - 1] = step[k];
  }
  if (ndim == 0) layout.shape[ndim++] = 1;
  layout.ndim = ndim;
  return layout;
}

Layout layout_of(const char* op, std::initializer_list<const RbTensor*> tensors, Order order) {
  const RbTensor& out = **tensors.begin();
  int dims[RB_MAX_DIMS];
  for (int d = 0; d < out.ndim; ++d) dims[d] = d;
  if (order == Order::kMemory && !(out.flags & RB_T_CONTIGUOUS))
    sort_by_stride(dims, out.ndim, out, out.ndim);
  return layout_over(op, dims, out.ndim, tensors);
}

// q = (n * factor / 2**32 + n) / 2**shift with the least shift for which 2**shift >= value.
Divisor divisor_of(uint32_t value) {
  uint32_t shift = 0;
  while ((uint64_t{1} << shift) < value) ++shift;
  const uint64_t above = (uint64_t{1} << shift) - value;
  return {value, static_cast<uint32_t>((above << 32) / value + 1), shift};
}

bool fits_32(const Layout& layout, Layout32* narrow) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (layout.n > kMost) return false;
  for (const int64_t(&strides)[kLayoutDims] : layout.strides) {
    int64_t above = 0, below = 0;  // the farthest places on both sides
    for (int d = 0; d < layout.ndim; ++d)
      (strides[d] < 0 ? below : above) += strides[d] * (layout.shape[d] - 1);
    if (above > kMost || below < -kMost) return false;
  }
  *narrow = {};
  narrow->n = static_cast<uint32_t>(layout.n);
  narrow->ndim = layout.ndim;
  for (int d = 0; d < layout.ndim; ++d) {
    if (layout.n > 0) narrow->shape[d] = divisor_of(static_cast<uint32_t>(layout.shape[d]));
    for (int k = 0; k < kLayoutTensors; ++k)
      narrow->strides[k][d] = static_cast<int32_t>(layout.strides[k][d]);
  }
  return true;
}

}  // namespace rbcuda

#include "launch/layout.h"

#include <algorithm>
#include <cstdlib>

namespace rbcuda {

Layout layout_of(const char* op, std::initializer_list<const RbTensor*> tensors, Order order) {
  const RbTensor& out = **tensors.begin();
  const int count = static_cast<int>(tensors.size());
  Layout layout = {};
  layout.n = out.numel;
  int dims[RB_MAX_DIMS];
  for (int d = 0; d < out.ndim; ++d) dims[d] = d;
  if (order == Order::kMemory && !(out.flags & RB_T_CONTIGUOUS))
    std::stable_sort(dims, dims + out.ndim, [&](int a, int b) {
      return std::abs(out.strides[a]) > std::abs(out.strides[b]);
    });
  int ndim = 0;
  for (int at = 0; at < out.ndim; ++at) {
    const int d = dims[at];
    const int64_t size = out.shape[d];
    if (size == 1) continue;
    int64_t step[kLayoutTensors] = {};
    bool joins = ndim > 0;
    for (int k = 0; k < count; ++k) {
      const RbTensor* t = tensors.begin()[k];
      const int own = t ? d - (out.ndim - t->ndim) : -1;
      if (own >= 0 && t->shape[own] != 1) step[k] = t->strides[own];
      joins = joins && layout.strides[k][ndim - 1] == step[k] * size;
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
    for (int k = 0; k < count; ++k) layout.strides[k][ndim - 1] = step[k];
  }
  if (ndim == 0) layout.shape[ndim++] = 1;
  layout.ndim = ndim;
  return layout;
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

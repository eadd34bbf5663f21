// Where the elements of a call's tensors lie: the result's positions, with strides for each.
#pragma once
#include <initializer_list>

#include "rabbet/plugin.hpp"

namespace rbcuda {

constexpr int kLayoutDims = 8, kLayoutTensors = 4;

/// Twin of `Layout` in types.cuh. Dimensions that lie alike in all tensors are joined.
struct Layout {
  int64_t n;
  int32_t ndim, reserved;
  int64_t shape[kLayoutDims];
  int64_t strides[kLayoutTensors][kLayoutDims];  // in elements; 0 where a tensor broadcasts
};

/// kMemory: positions count in the order in which the first tensor lies in memory.
enum class Order { kRowMajor, kMemory };
/// Tensors broadcast to the shape of the first; a null one is a number. Throws RB_E_NOTIMPL if more
/// than 8 dimensions stay.
Layout layout_of(const char* op, std::initializer_list<const RbTensor*> tensors,
                 Order order = Order::kRowMajor);

/// The stride of `t` in dimension `d` of `ndim` to which it broadcasts.
inline int64_t stride_at(const RbTensor& t, int d, int ndim) {
  const int own = d - (ndim - t.ndim);
  return own >= 0 && t.shape[own] != 1 ? t.strides[own] : 0;
}
/// Sort dimensions `dims` of `ndim` as `t` lies in memory, the slowest first. Equal strides keep
/// their order.
void sort_by_stride(int* dims, int count, const RbTensor& t, int ndim);
/// The layout over dimensions `dims` alone, in that order. A null tensor is a number.
Layout layout_over(const char* op, const int* dims, int count,
                   std::initializer_list<const RbTensor*> tensors);

/// Division of numbers below 2**31 by multiplication. Twin of `Divisor` in block.cuh.
struct Divisor {
  uint32_t value, factor, shift;
};
Divisor divisor_of(uint32_t value);

/// Twin of `Layout32` in block.cuh.
struct Layout32 {
  uint32_t n;
  int32_t ndim;
  Divisor shape[kLayoutDims];
  int32_t strides[kLayoutTensors][kLayoutDims];
};
/// Whether positions and places fit into 31 bits; then `narrow` is the same layout.
bool fits_32(const Layout& layout, Layout32* narrow);

}  // namespace rbcuda

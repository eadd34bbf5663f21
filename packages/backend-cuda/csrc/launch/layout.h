// Where the elements of a call's tensors lie: the result's positions, with strides for each.
#pragma once
#include <initializer_list>

#include "rabbet/plugin.hpp"

namespace rbcuda {

constexpr int kLayoutDims = 8, kLayoutTensors = 4;

/// Twin of `Layout` in common.cuh. Dimensions that lie alike in all tensors are joined.
struct Layout {
  int64_t n;
  int32_t ndim, reserved;
  int64_t shape[kLayoutDims];
  int64_t strides[kLayoutTensors][kLayoutDims];  // in elements; 0 where a tensor broadcasts
};

/// Tensors broadcast to the shape of the first; a null one is a number. Throws RB_E_NOTIMPL if more
/// than 8 dimensions stay.
Layout layout_of(const char* op, std::initializer_list<const RbTensor*> tensors);

}  // namespace rbcuda

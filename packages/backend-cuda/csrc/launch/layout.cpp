#include "launch/layout.h"

namespace rbcuda {

Layout layout_of(const char* op, std::initializer_list<const RbTensor*> tensors) {
  const RbTensor& out = **tensors.begin();
  const int count = static_cast<int>(tensors.size());
  Layout layout = {};
  layout.n = out.numel;
  int ndim = 0;
  for (int d = 0; d < out.ndim; ++d) {
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

}  // namespace rbcuda

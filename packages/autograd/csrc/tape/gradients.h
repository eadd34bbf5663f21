// Gradients as tensors: added up, and made to fit what they belong to.
#pragma once
#include "node.h"

namespace tape {

inline bool same_device(const RbTensor* t, const RbMeta& m) {
  return t->backend == m.backend && t->device.id == m.device_index;
}
inline bool same_shape(const RbTensor* t, const RbMeta& m) {
  if (t->ndim != m.ndim) return false;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->shape[i] != m.shape[i]) return false;
  }
  return true;
}

int32_t sum(RbTensor* a, RbTensor* b, Ref& out);

int32_t fit_other(Ref& grad, const RbMeta& to, const Node* from, int32_t index);
/// Make gradient `index` of those that `from` gave (null: the caller) fit the tensor it belongs to:
/// sums over broadcast dimensions, dtype, complex to real; one of no dimensions is brought to its
/// device.
inline int32_t fit(Ref& grad, const RbMeta& to, const Node* from, int32_t index) {
  const RbTensor* g = grad.get();
  if (__builtin_expect(g->dtype_id == to.dtype_id && same_shape(g, to) && same_device(g, to), 1))
    return RB_OK;
  return fit_other(grad, to, from, index);
}

/// Zeros of this shape, dtype and device.
int32_t make_zeros(const RbMeta& like, Ref& out);

/// Make `grad`, a gradient that node `from` gave, depend with the derivative 0 on the arguments
/// that the record calls `flat`, as far as they are recorded.
int32_t depend_flatly(RbTensor*& grad, const Node* from);
/// Gradients of such a dependence: `grad` itself, and 0 for the others.
int32_t apply_flat(const Node* n, RbTensor* grad, RbTensor** results);

}  // namespace tape

#include "tensor/overlap.h"

#include <algorithm>
#include <cstring>

#include "tensor/dtype.h"

namespace rabbet {

namespace {

struct Extent {
  const char *low, *high;
};
Extent extent(const RbTensor* t) {
  int64_t low = 0, high = 1;
  for (int i = 0; i < t->ndim; ++i) {
    const int64_t reach = (t->shape[i] - 1) * t->strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t item = kDTypes[t->dtype_id].itemsize;
  const char* data = static_cast<const char*>(t->data);
  return {data + low * item, data + high * item};
}

}  // namespace

bool same_geometry(const RbTensor* a, const RbTensor* b) {
  return a->data == b->data && a->ndim == b->ndim &&
         !std::memcmp(a->shape, b->shape, a->ndim * sizeof(int64_t)) &&
         !std::memcmp(a->strides, b->strides, a->ndim * sizeof(int64_t));
}

bool may_overlap(const RbTensor* a, const RbTensor* b) {
  if (!same_memory(a, b) || a->numel == 0 || b->numel == 0) return false;
  const Extent x = extent(a), y = extent(b);
  return x.low < y.high && y.low < x.high;
}

bool is_dense(const RbTensor* t) {
  int order[kMaxDims];
  int n = 0;
  for (int i = 0; i < t->ndim; ++i) {
    if (t->strides[i] <= 0) return false;
    if (t->shape[i] != 1) order[n++] = i;
  }
  std::sort(order, order + n, [&](int a, int b) { return t->strides[a] < t->strides[b]; });
  int64_t dense = 1;
  for (int i = 0; i < n; ++i) {
    if (t->strides[order[i]] != dense) return false;
    dense *= t->shape[order[i]];
  }
  return true;
}

}  // namespace rabbet

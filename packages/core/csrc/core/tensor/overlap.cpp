#include "tensor/overlap.h"

#include <algorithm>
#include <cstring>

#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

bool same_geometry(const RbTensor* a, const RbTensor* b) {
  return a->data == b->data && a->ndim == b->ndim &&
         !std::memcmp(a->shape, b->shape, a->ndim * sizeof(int64_t)) &&
         !std::memcmp(a->strides, b->strides, a->ndim * sizeof(int64_t));
}

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

bool may_overlap(const RbTensor* a, const RbTensor* b) {
  if (!same_memory(a, b) || a->numel == 0 || b->numel == 0) return false;
  const Extent x = extent(a), y = extent(b);
  return x.low < y.high && y.low < x.high;
}

}  // namespace

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

bool hazard(const Op& op, bool elementwise, const RbTensor* target, const RbValue* args,
            int nargs) {
  // Kernels of in-place operators find the first argument in the destination, except those of core
  // signatures and compositions, which may read it while they write.
  const bool first_is_target =
      op.as_inplace && op.core.args.empty() && op.info.kind != RB_KIND_COMPOSITE;
  auto clash = [&](const RbTensor* t, int i) {
    if (!t || !may_overlap(t, target)) return false;
    const bool exact = same_geometry(t, target) && t->dtype_id == target->dtype_id;
    return !(exact && (elementwise || (first_is_target && i == 0)));
  };
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR && clash(args[i].v.t, i)) return true;
    if (args[i].tag != RB_TENSORS) continue;
    for (uint32_t j = 0; j < args[i].len; ++j) {
      if (clash(args[i].v.ts[j], -1)) return true;
    }
  }
  return false;
}

void check_overlap(const Op& op, const RbTensor* target, const RbValue* args, int nargs) {
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR) continue;
    const RbTensor* t = args[i].v.t;
    if (!may_overlap(t, target) || same_geometry(t, target)) continue;
    if (!is_dense(t) || !is_dense(target)) continue;
    fail(RB_E_ARG,
         "%s: the destination and '%s' share some elements of their memory, but not all in the "
         "same places; clone() one of them first",
         op.name.c_str(), op.params[i].name);
  }
}

}  // namespace rabbet

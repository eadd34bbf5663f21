#include "tensor/memory_format.h"

#include <algorithm>
#include <cstring>

#include "tensor/overlap.h"
#include "tensor/shape.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct Format {
  const char* name;
  int rank;      // 0: any
  int order[5];  // dimensions, innermost first
};
const Format kFormats[kMemoryFormats] = {{"contiguous_format", 0, {}},
                                         {"preserve_format", 0, {}},
                                         {"channels_last", 4, {1, 3, 2, 0}},
                                         {"channels_last_3d", 5, {1, 4, 3, 2, 0}}};
const Format& of(MemoryFormat format) { return kFormats[static_cast<int>(format)]; }

bool suggests(const Format& f, const RbTensor* t) {
  if (t->ndim != f.rank || t->strides[1] == 0) return false;
  int64_t least = 0;
  for (int k = 0; k < f.rank; ++k) {
    const int d = f.order[k];
    if (t->shape[d] == 0 || t->strides[d] < least) return false;
    // Of N111 tensors those with the strides of row-major ones are row-major.
    if (d == 0 && least == t->strides[1]) return false;
    least = t->strides[d] * std::max<int64_t>(t->shape[d], 1);
  }
  return true;
}

bool same_shape(const RbTensor* t, int ndim, const int64_t* shape) {
  return t->ndim == ndim && !std::memcmp(t->shape, shape, ndim * sizeof(int64_t));
}

// Stride of dimension `d` of the broadcast result; 0: the operand is broadcast along it.
int64_t broadcast_stride(const RbTensor* t, int ndim, const int64_t* shape, int d) {
  const int own = d - (ndim - t->ndim);
  if (own < 0 || (t->shape[own] == 1 && shape[d] != 1)) return 0;
  return t->strides[own];
}

// Positive: dimension `a` has to lie outside `b`; negative: inside; 0: undecided.
int compare(const RbTensor* const* operands, int n, int ndim, const int64_t* shape, int a, int b) {
  for (int i = 0; i < n; ++i) {
    const int64_t sa = broadcast_stride(operands[i], ndim, shape, a),
                  sb = broadcast_stride(operands[i], ndim, shape, b);
    if (sa == 0 || sb == 0) continue;
    if (sa != sb) return sa < sb ? -1 : 1;
    if (shape[a] > shape[b]) return 1;
  }
  return 0;
}

}  // namespace

const char* memory_format_name(MemoryFormat format) { return of(format).name; }

void check_memory_format(MemoryFormat format, int ndim, const int64_t* shape, const char* what) {
  const Format& f = of(format);
  if (!f.rank || f.rank == ndim) return;
  fail(RB_E_STATE, "%s: required rank %d tensor to use %s format, got shape %s", what, f.rank,
       f.name, shape_text(ndim, shape).c_str());
}

MemoryFormat numbered_format(int64_t number, int ndim, const char* what) {
  const auto format = static_cast<MemoryFormat>(number);
  if (number < 0 || number >= kMemoryFormats || format == MemoryFormat::kPreserve)
    fail(RB_E_ARG, "%s: %lld is no memory format to copy to", what, (long long)number);
  const int rank = of(format).rank;
  if (ndim < rank)
    fail(RB_E_ARG, "%s: %s format orders %d dimensions, the tensor has %d", what, of(format).name,
         rank, ndim);
  return format;
}

void format_strides(MemoryFormat format, int ndim, const int64_t* shape, int64_t* strides) {
  const Format& f = of(format);
  const int front = ndim - f.rank;
  int64_t dense = 1;
  for (int k = 0; k < ndim; ++k) {
    const int d = k < f.rank ? front + f.order[k] : ndim - 1 - k;
    strides[d] = dense;
    dense *= std::max<int64_t>(shape[d], 1);
  }
}

bool is_contiguous_in(MemoryFormat format, const RbTensor* t) {
  const Format& f = of(format);
  if (!f.rank) return (t->flags & RB_T_CONTIGUOUS) != 0;
  if (t->ndim != f.rank) return false;
  int64_t dense = 1;
  for (int k = 0; k < f.rank; ++k) {
    const int d = f.order[k];
    if (t->shape[d] == 1) continue;
    if (t->strides[d] != dense) return false;
    dense *= t->shape[d];
  }
  return true;
}

MemoryFormat suggested_format(const RbTensor* t) {
  for (MemoryFormat format : {MemoryFormat::kChannelsLast, MemoryFormat::kChannelsLast3d}) {
    if (suggests(of(format), t)) return format;
  }
  return MemoryFormat::kContiguous;
}

bool joint_strides(const RbTensor* const* operands, int n, int ndim, const int64_t* shape,
                   int64_t* strides) {
  bool row_major = true, whole = true, channels_last = true, alike = true;
  for (int i = 0; i < n; ++i) {
    const RbTensor* t = operands[i];
    row_major = row_major && (t->flags & RB_T_CONTIGUOUS);
    whole = whole && same_shape(t, ndim, shape);
    channels_last = channels_last && is_contiguous_in(MemoryFormat::kChannelsLast, t);
    alike =
        alike && whole && !std::memcmp(t->strides, operands[0]->strides, ndim * sizeof(int64_t));
  }
  if (row_major) return false;
  if (whole && channels_last) {
    format_strides(MemoryFormat::kChannelsLast, ndim, shape, strides);
    return true;
  }
  if (alike && is_dense(operands[0])) {
    std::copy(operands[0]->strides, operands[0]->strides + ndim, strides);
    return true;
  }
  int order[kMaxDims];  // innermost first
  for (int i = 0; i < ndim; ++i) order[i] = ndim - 1 - i;
  // Insertion, as `compare` is no order where it is undecided.
  for (int i = 1; i < ndim; ++i) {
    int at = i;
    for (int before = i - 1; before >= 0; --before) {
      const int outcome = compare(operands, n, ndim, shape, order[before], order[at]);
      if (outcome < 0) break;
      if (outcome == 0) continue;
      std::swap(order[before], order[at]);
      at = before;
    }
  }
  int64_t dense = 1;
  bool is_row_major = true;
  for (int i = 0; i < ndim; ++i) {
    is_row_major = is_row_major && order[i] == ndim - 1 - i;
    strides[order[i]] = dense;
    dense *= std::max<int64_t>(shape[order[i]], 1);
  }
  return !is_row_major;
}

bool preserved_strides(const RbTensor* t, int64_t* strides) {
  return joint_strides(&t, 1, t->ndim, t->shape, strides);
}

}  // namespace rabbet

// Geometry of a strided array inside kernels, and copying between two of them.
#pragma once
#include "common/dtype.h"
#include "common/loops.h"

namespace rbcpu {

/// A strided array; strides count elements, as in RbTensor.
struct View {
  char* data;
  int dtype;
  int ndim;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];

  int item() const { return kItemSize[dtype]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
};

inline View view_of(const RbTensor& t) {
  View v;
  v.data = static_cast<char*>(t.data);
  v.dtype = t.dtype_id;
  v.ndim = t.ndim;
  for (int d = 0; d < t.ndim; ++d) {
    v.shape[d] = t.shape[d];
    v.strides[d] = t.strides[d];
  }
  return v;
}
/// A row-major view of `data` in the shape of `like`.
inline View dense_view(void* data, int dtype, const View& like) {
  View v;
  v.data = static_cast<char*>(data);
  v.dtype = dtype;
  v.ndim = like.ndim;
  int64_t stride = 1;
  for (int d = like.ndim - 1; d >= 0; --d) {
    v.shape[d] = like.shape[d];
    v.strides[d] = stride;
    stride *= like.shape[d];
  }
  return v;
}
/// Elements [start, start + length * step) of dimension d.
inline View narrowed(View v, int d, int64_t start, int64_t length, int64_t step = 1) {
  v.data += start * v.strides[d] * v.item();
  v.shape[d] = length;
  v.strides[d] *= step;
  return v;
}
inline bool is_dense(const View& v) {
  int64_t stride = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    if (v.shape[d] != 1 && v.strides[d] != stride) return false;
    stride *= v.shape[d];
  }
  return true;
}
/// Offset of element `i`, in row-major order, of a space of `n` dimensions.
inline int64_t offset_at(int64_t i, int n, const int64_t* shape, const int64_t* strides) {
  if (n == 0) return 0;
  int64_t offset = 0;
  for (int d = n - 1; d > 0; --d) {
    offset += i % shape[d] * strides[d];
    i /= shape[d];
  }
  return offset + i * strides[0];
}

/// Whether (N, C, *) is dense with the channels of a position side by side.
inline bool is_channels_last(const RbTensor& t) {
  if (t.ndim < 3) return false;
  int64_t dense = 1;
  const auto follows = [&](int d) {
    const bool fits = t.shape[d] == 1 || t.strides[d] == dense;
    dense *= t.shape[d];
    return fits;
  };
  bool last = follows(1);
  for (int d = t.ndim - 1; d > 1; --d) last = follows(d) && last;
  return follows(0) && last;
}

/// Copy `from` to `to`, converting dtypes; `from` is broadcast to the shape of `to`.
void copy_view(const View& to, const View& from);
/// Fill with one element of to.dtype.
void fill_view(const View& to, const void* element);
/// Fill with a Python number.
void fill_view(const View& to, const RbValue& number);
/// The loop that copies from one dtype to another (null never).
Loop cast_loop(int to, int from);
/// For kernels that change a copy of an argument: nothing to do where the result is the argument
/// (in-place).
inline void copy_into_result(const RbTensor& out, const RbTensor& from) {
  if (out.data != from.data) copy_view(view_of(out), view_of(from));
}

}  // namespace rbcpu

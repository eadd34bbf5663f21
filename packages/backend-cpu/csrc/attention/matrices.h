// The operands of attention: tensors of matrices, one for each head.
#pragma once
#include <type_traits>

#include "attention/attention_rows.h"
#include "common/level.h"
#include "common/view.h"

namespace rbcpu {

template <class T>
const AttentionRows<T>& rows_of() {
  if constexpr (std::is_same_v<T, float>) {
    return RB_PICK_LEVEL(attention_table).f32;
  } else {
    return RB_PICK_LEVEL(attention_table).f64;
  }
}

// Offset of the matrix that belongs to matrix `index` of `batch` (its leading dimensions): sizes of
// 1 are broadcast, smaller numbers of heads are shared by as many neighbours. `matrix` is the
// number of v's own last dimensions.
inline int64_t head_offset(const View& v, int matrix, const View& batch, int batch_ndim,
                           int64_t index) {
  int64_t offset = 0;
  for (int d = batch_ndim - 1, k = v.ndim - matrix - 1; d >= 0; --d, --k) {
    const int64_t i = index % batch.shape[d];
    index /= batch.shape[d];
    if (k >= 0) offset += i * v.shape[k] / batch.shape[d] * v.strides[k];
  }
  return offset;
}

// A matrix inside a tensor: rows and columns through strides.
struct Matrix {
  char* data;
  int dtype;
  int64_t row, column;

  Matrix(const View& v, int64_t offset)
      : data(v.data + offset * v.item()),
        dtype(v.dtype),
        row(v.strides[v.ndim - 2]),
        column(v.strides[v.ndim - 1]) {}
  View view(int64_t begin, int64_t rows, int64_t columns) const {
    View v;
    v.data = data + begin * row * kItemSize[dtype];
    v.dtype = dtype;
    v.ndim = 2;
    v.shape[0] = rows;
    v.shape[1] = columns;
    v.strides[0] = row;
    v.strides[1] = column;
    return v;
  }
};

inline View plain_view(void* data, int dtype, int64_t rows, int64_t columns, int64_t row) {
  View v;
  v.data = static_cast<char*>(data);
  v.dtype = dtype;
  v.ndim = 2;
  v.shape[0] = rows;
  v.shape[1] = columns;
  v.strides[0] = row;
  v.strides[1] = 1;
  return v;
}

template <class T>
constexpr int dtype_of = std::is_same_v<T, float> ? RB_F32 : RB_F64;

// Some rows of a matrix as T, in place or copied into `space`: where the dtype is another one, or
// `along` asks for elements of a row side by side.
template <class T>
struct Rows {
  const T* data;
  int64_t row, column;

  Rows(const Matrix& m, int64_t begin, int64_t rows, int64_t columns, T* space,
       bool along = false) {
    if (m.dtype == dtype_of<T> && (!along || m.column == 1)) {
      data = reinterpret_cast<const T*>(m.data) + begin * m.row;
      row = m.row;
      column = m.column;
      return;
    }
    copy_view(plain_view(space, dtype_of<T>, rows, columns, columns), m.view(begin, rows, columns));
    data = space;
    row = columns;
    column = 1;
  }
};

// Number of matrices in the leading dimensions of `out`.
inline int64_t count_heads(const View& out, int matrix) {
  int64_t n = 1;
  for (int d = 0; d < out.ndim - matrix; ++d) n *= out.shape[d];
  return n;
}

}  // namespace rbcpu

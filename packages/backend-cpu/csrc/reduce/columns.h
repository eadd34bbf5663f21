// Vector kernels over columns that lie side by side, per instruction-set level (columns_simd.cpp):
// element i of column j is x[i * stride + j].
#pragma once
#include <stdint.h>

namespace rbcpu {

constexpr int64_t kMostColumns = 256;  // per call of the softmax kernels

template <class T>
struct IndexOf {  // as wide as T
  using type = int32_t;
};
template <>
struct IndexOf<double> {
  using type = int64_t;
};

template <class T>
struct Columns {
  using Index = typename IndexOf<T>::type;
  /// r = softmax or its logarithm along each column; r may be x. At most kMostColumns.
  void (*softmax)(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols);
  void (*log_softmax)(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols);
  void (*softmax_vjp)(const T* g, int64_t gs, const T* out, int64_t os, T* r, int64_t rs, int64_t n,
                      int64_t cols);
  void (*log_softmax_vjp)(const T* g, int64_t gs, const T* out, int64_t os, T* r, int64_t rs,
                          int64_t n, int64_t cols);
  /// lse = log(sum(exp(x))) of each column.
  void (*logsumexp)(const T* x, int64_t stride, int64_t n, int64_t cols, T* lse);
  /// r = exp(x - lse) * factor
  void (*softmax_from)(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols,
                       const T* lse, const T* factor);
  /// top = largest (smallest) of top and the column; NaN wins.
  void (*max)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top);
  void (*min)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top);
  /// Largest (smallest) of each column and where it stands first; NaN wins. n > 0.
  void (*argmax)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top, Index* at);
  void (*argmin)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top, Index* at);
  /// acc = acc + the column's elements that are not NaN, acc * the column.
  void (*nansum)(const T* x, int64_t stride, int64_t n, int64_t cols, double* acc);
  void (*prod)(const T* x, int64_t stride, int64_t n, int64_t cols, double* acc);
  /// r = running sums (products) of each column in double, begun with acc, which ends as the last.
  void (*cumsum)(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols, double* acc);
  void (*cumprod)(const T* x, int64_t xs, T* r, int64_t rs, int64_t n, int64_t cols, double* acc);
};
struct ColumnTable {
  Columns<float> f32;
  Columns<double> f64;
};
extern const ColumnTable column_table_v2, column_table_v3, column_table_v4;
const ColumnTable& column_table();

template <class T>
const Columns<T>& columns() {
  if constexpr (sizeof(T) == 8)
    return column_table().f64;
  else
    return column_table().f32;
}

}  // namespace rbcpu

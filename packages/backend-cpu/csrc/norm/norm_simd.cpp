// Runs of the normalisations: moments, scaling, gradients.
#include "common/level.h"
#include "norm/norm_rows.h"
#include "reduce/sum_simd.h"

namespace {

using rbcpu::GradientSums;
using rbcpu::NormRows;

constexpr int64_t kTile = 512;     // columns that are summed in T side by side
constexpr int64_t kRowBlock = 32;  // rows until those sums go to double

template <class T>
void moments(const T* x, int64_t n, double* mean, double* squares) {
  *mean = blocked_sum<T>(n, Elements<T>{x}) / static_cast<double>(n);
  *squares = run_squares(x, n, *mean);
}
template <class T, bool Weight, bool Bias>
struct Affine {
  const T *x, *w, *b;
  T mean, rstd;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    auto y = (read<Wide>(x + i) - mean) * rstd;
    if constexpr (Weight) y *= read<Wide>(w + i);
    if constexpr (Bias) y += read<Wide>(b + i);
    return y;
  }
  RB_INLINE_MEMBER void fetch(int64_t i) const { __builtin_prefetch(x + i); }
};
template <class T>
void affine(const T* x, const T* w, const T* b, T* y, int64_t n, T mean, T rstd, bool stream) {
  if (w && b) {
    fill_row(y, n, stream, Affine<T, true, true>{x, w, b, mean, rstd});
  } else if (w) {
    fill_row(y, n, stream, Affine<T, true, false>{x, w, b, mean, rstd});
  } else if (b) {
    fill_row(y, n, stream, Affine<T, false, true>{x, w, b, mean, rstd});
  } else {
    fill_row(y, n, stream, Affine<T, false, false>{x, w, b, mean, rstd});
  }
}
template <class T>
void scale(const T* x, T* y, int64_t n, T mean, T factor, T shift) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * factor + shift;
}

template <class T>
GradientSums sums(const T* g, const T* w, const T* x, int64_t n, T mean) {
  double found[3];
  if (w) {
    blocked_sums<T, 3>(n, GradientTerms<T, true>{g, w, x, mean}, found);
  } else {
    blocked_sums<T, 3>(n, GradientTerms<T, false>{g, w, x, mean}, found);
  }
  return {found[0], found[1], found[2]};
}
template <class T>
double sum(const T* x, int64_t n) {
  return blocked_sum<T>(n, Elements<T>{x});
}
// Adds to dw and db on the way.
template <class T, bool Weight>
struct Gradient {
  const T *g, *w, *x;
  T *dw, *db;
  T mean, rstd, a, b;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    const auto normal = (read<Wide>(x + i) - mean) * rstd;
    auto gi = read<Wide>(g + i);
    write<Wide>(dw + i, read<Wide>(dw + i) + gi * normal);
    write<Wide>(db + i, read<Wide>(db + i) + gi);
    if constexpr (Weight) gi *= read<Wide>(w + i);
    return (gi - a - normal * b) * rstd;
  }
  RB_INLINE_MEMBER void fetch(int64_t i) const {
    __builtin_prefetch(x + i);
    __builtin_prefetch(g + i);
  }
};
template <class T>
void gradient(const T* g, const T* w, const T* x, T* dx, T* dw, T* db, int64_t n, T mean, T rstd,
              T a, T b, bool stream) {
  if (w) {
    fill_row(dx, n, stream, Gradient<T, true>{g, w, x, dw, db, mean, rstd, a, b});
  } else {
    fill_row(dx, n, stream, Gradient<T, false>{g, w, x, dw, db, mean, rstd, a, b});
  }
}
template <class T>
void combine(const T* g, const T* x, T* dx, int64_t n, T mean, T a, T b, T c) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = g[i] * a + (x[i] - mean) * b + c;
}

template <class T>
void scale_columns(const T* x, T* y, int64_t n, const T* mean, const T* factor, const T* shift) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean[i]) * factor[i] + shift[i];
}
template <class T>
void combine_columns(const T* g, const T* x, T* dx, int64_t n, const T* mean, const T* a,
                     const T* b, const T* c) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dx[i] = g[i] * a[i] + (x[i] - mean[i]) * b[i] + c[i];
}

// Sums of columns, `Count` of them at a time: in T over kRowBlock rows, in double across. add(i,
// tile) adds row i to the tiles.
template <class T, int Count, class Add>
RB_INLINE void sum_columns(int64_t rows, int64_t n, double* const* totals, const Add& add) {
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    for (int64_t begin = 0; begin < rows; begin += kRowBlock) {
      const int64_t end = begin + kRowBlock < rows ? begin + kRowBlock : rows;
      alignas(64) T tile[Count][kTile] = {};
      for (int64_t i = begin; i < end; ++i) add(i, j, m, tile);
      for (int k = 0; k < Count; ++k) {
        for (int64_t c = 0; c < m; ++c) totals[k][j + c] += static_cast<double>(tile[k][c]);
      }
    }
  }
}
template <class T>
void column_sums(const T* x, int64_t stride, int64_t rows, int64_t n, double* sum) {
  double* const totals[] = {sum};
  sum_columns<T, 1>(rows, n, totals, [&](int64_t i, int64_t j, int64_t m, T(*tile)[kTile]) {
    const T* row = x + i * stride + j;
    T* to = tile[0];
#pragma GCC ivdep
    for (int64_t c = 0; c < m; ++c) to[c] += row[c];
  });
}
// What rounding `near` lost is in `sum`, the sum of the differences from it.
template <class T>
void column_deviations(const T* x, int64_t stride, int64_t rows, int64_t n, const T* near,
                       double* sum, double* squares) {
  double* const totals[] = {sum, squares};
  sum_columns<T, 2>(rows, n, totals, [&](int64_t i, int64_t j, int64_t m, T(*tile)[kTile]) {
    const T *row = x + i * stride + j, *centre = near + j;
    T *to = tile[0], *to_squares = tile[1];
#pragma GCC ivdep
    for (int64_t c = 0; c < m; ++c) {
      const T d = row[c] - centre[c];
      to[c] += d;
      to_squares[c] += d * d;
    }
  });
}
template <class T>
void column_gradients(const T* g, const T* x, int64_t stride, int64_t rows, int64_t n,
                      const T* mean, double* plain, double* scaled) {
  double* const totals[] = {plain, scaled};
  sum_columns<T, 2>(rows, n, totals, [&](int64_t i, int64_t j, int64_t m, T(*tile)[kTile]) {
    const T *row = x + i * stride + j, *grad = g + i * stride + j, *centre = mean + j;
    T *to = tile[0], *to_scaled = tile[1];
#pragma GCC ivdep
    for (int64_t c = 0; c < m; ++c) {
      to[c] += grad[c];
      to_scaled[c] += grad[c] * (row[c] - centre[c]);
    }
  });
}

template <class T>
constexpr NormRows<T> rows() {
  return {moments<T>,
          sum<T>,
          affine<T>,
          scale<T>,
          sums<T>,
          gradient<T>,
          combine<T>,
          scale_columns<T>,
          combine_columns<T>,
          column_sums<T>,
          column_deviations<T>,
          column_gradients<T>};
}

}  // namespace

namespace rbcpu {
extern const NormTable RB_LEVEL_NAME(norm_table) = {rows<float>(), rows<double>()};
}

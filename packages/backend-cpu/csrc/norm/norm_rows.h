// Vector kernels of the normalisations over contiguous runs, per instruction-set level
// (norm_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

/// Sums over a run: (x - mean)^2, the gradient g (times a weight), g (x - mean).
struct GradientSums {
  double squares, plain, scaled;
};

/// Where a kernel takes `stream`, its result is stored past the caches (stream.h), and the row
/// after the given one is fetched.
template <class T>
struct NormRows {
  /// Mean, and sum of squared deviations from it.
  void (*moments)(const T* x, int64_t n, double* mean, double* squares);
  double (*sum)(const T* x, int64_t n);
  /// y = (x - mean) * rstd * w + b; w and b may be null.
  void (*affine)(const T* x, const T* w, const T* b, T* y, int64_t n, T mean, T rstd, bool stream);
  /// y = (x - mean) * scale + shift
  void (*scale)(const T* x, T* y, int64_t n, T mean, T scale, T shift);
  /// w may be null.
  GradientSums (*sums)(const T* g, const T* w, const T* x, int64_t n, T mean);
  /// With xhat = (x - mean) * rstd: dx = rstd * (g w - a - b xhat), dw += g xhat, db += g; w may be
  /// null.
  void (*gradient)(const T* g, const T* w, const T* x, T* dx, T* dw, T* db, int64_t n, T mean,
                   T rstd, T a, T b, bool stream);
  /// dx = g * a + (x - mean) * b + c
  void (*combine)(const T* g, const T* x, T* dx, int64_t n, T mean, T a, T b, T c);
  /// The same, each column with its own numbers.
  void (*scale_columns)(const T* x, T* y, int64_t n, const T* mean, const T* scale, const T* shift);
  void (*combine_columns)(const T* g, const T* x, T* dx, int64_t n, const T* mean, const T* a,
                          const T* b, const T* c);
  /// Per column, over `rows` rows that lie `stride` apart: sum += x; sum += x - near and squares
  /// += (x - near)^2; plain += g, scaled += g (x - mean).
  void (*column_sums)(const T* x, int64_t stride, int64_t rows, int64_t n, double* sum);
  void (*column_deviations)(const T* x, int64_t stride, int64_t rows, int64_t n, const T* near,
                            double* sum, double* squares);
  void (*column_gradients)(const T* g, const T* x, int64_t stride, int64_t rows, int64_t n,
                           const T* mean, double* plain, double* scaled);
};
struct NormTable {
  NormRows<float> f32;
  NormRows<double> f64;
};
extern const NormTable norm_table_v2, norm_table_v3, norm_table_v4;
const NormTable& norm_table();

}  // namespace rbcpu

// Vector kernels over contiguous runs, per instruction-set level (simd_rows.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

struct RowTable {
  // Sum with lanes of the element type inside blocks of 512, double between blocks.
  double (*sum_f32)(const float* x, int64_t n);
  double (*sum_f64)(const double* x, int64_t n);
  // Sum of (x - mean)^2.
  double (*squares_f32)(const float* x, int64_t n, double mean);
  double (*squares_f64)(const double* x, int64_t n, double mean);
  // Largest and smallest; NaN wins. n > 0.
  float (*max_f32)(const float* x, int64_t n);
  float (*min_f32)(const float* x, int64_t n);
  double (*max_f64)(const double* x, int64_t n);
  double (*min_f64)(const double* x, int64_t n);
  // r = softmax(x), log(softmax(x)); r may be x.
  void (*softmax_f32)(const float* x, float* r, int64_t n);
  void (*log_softmax_f32)(const float* x, float* r, int64_t n);
  void (*softmax_f64)(const double* x, double* r, int64_t n);
  void (*log_softmax_f64)(const double* x, double* r, int64_t n);
  // Their derivatives: out * (g - sum(g * out)); g - exp(out) * sum(g).
  void (*softmax_vjp_f32)(const float* g, const float* out, float* r, int64_t n);
  void (*log_softmax_vjp_f32)(const float* g, const float* out, float* r, int64_t n);
  void (*softmax_vjp_f64)(const double* g, const double* out, double* r, int64_t n);
  void (*log_softmax_vjp_f64)(const double* g, const double* out, double* r, int64_t n);
  // r = (x - shift) * scale
  void (*standardize_f32)(const float* x, float* r, int64_t n, float shift, float scale);
  void (*standardize_f64)(const double* x, double* r, int64_t n, double shift, double scale);
};
extern const RowTable row_table_v2, row_table_v3, row_table_v4;
const RowTable& row_table();

}  // namespace rbcpu

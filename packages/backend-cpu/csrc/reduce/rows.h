// Vector kernels over contiguous runs, per instruction-set level (rows_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

/// Where a kernel takes `stream`, its result is stored past the caches (stream.h), and the row
/// after the given one is fetched.
template <class T>
struct Rows {
  /// Sum with lanes of T inside blocks, double between blocks.
  double (*sum)(const T* x, int64_t n);
  /// Sum of what is not NaN.
  double (*nansum)(const T* x, int64_t n);
  /// Product in lanes of double.
  double (*prod)(const T* x, int64_t n);
  /// Sum of (x - mean)^2.
  double (*squares)(const T* x, int64_t n, double mean);
  double (*dot)(const T* x, const T* y, int64_t n);
  /// Largest and smallest; NaN wins. n > 0.
  T (*max)(const T* x, int64_t n);
  T (*min)(const T* x, int64_t n);
  /// First position of `value`, one of the run; NaN finds NaN.
  int64_t (*find)(const T* x, int64_t n, T value);
  /// r = softmax(x), log(softmax(x)); r may be x. With `scratch`, n elements, softmax streams.
  void (*softmax)(const T* x, T* r, int64_t n, T* scratch);
  void (*log_softmax)(const T* x, T* r, int64_t n, bool stream);
  /// log(sum(exp(x))); n > 0.
  double (*logsumexp)(const T* x, int64_t n);
  /// r = exp(x - lse) * factor; r may be x.
  void (*softmax_from)(const T* x, T* r, int64_t n, T lse, T factor);
  /// Derivatives of softmax and its logarithm: out * (g - sum(g * out)); g - exp(out) * sum(g).
  void (*softmax_vjp)(const T* g, const T* out, T* r, int64_t n, bool stream);
  void (*log_softmax_vjp)(const T* g, const T* out, T* r, int64_t n, bool stream);
};
struct RowTable {
  Rows<float> f32;
  Rows<double> f64;
  /// The 16-bit floats, by their bits; rounding is to nearest even.
  void (*widen_bf16)(const uint16_t* x, float* r, int64_t n);
  void (*widen_f16)(const uint16_t* x, float* r, int64_t n);
  void (*narrow_bf16)(const float* x, uint16_t* r, int64_t n);
  void (*narrow_f16)(const float* x, uint16_t* r, int64_t n);
};
extern const RowTable row_table_v2, row_table_v3, row_table_v4;
const RowTable& row_table();

template <class T>
const Rows<T>& rows() {
  if constexpr (sizeof(T) == 8)
    return row_table().f64;
  else
    return row_table().f32;
}

}  // namespace rbcpu

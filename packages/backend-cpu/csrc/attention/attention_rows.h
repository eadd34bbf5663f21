// What attention does to one row of scores, per instruction-set level (attention_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

template <class T>
struct AttentionRows {
  /// x * scale + mask (may be null) for n keys becomes exp(. - top), and 0 up to `padded`; `top`
  /// and `total` go on from the keys seen before. Returns the factor for what was gathered with
  /// them.
  T (*softmax)(T* x, const T* mask, int64_t n, int64_t padded, T scale, T* top, T* total);
  /// x * scale + mask becomes exp(. - logsumexp), and 0 up to `padded`.
  void (*weights)(T* x, const T* mask, int64_t n, int64_t padded, T scale, T logsumexp);
  /// dp becomes p * (dp - delta) * scale.
  void (*score_grads)(const T* p, T* dp, int64_t n, T delta, T scale);
  /// to = x * factor; to may be x.
  void (*scaled)(const T* x, T* to, int64_t n, T factor);
  T (*dot)(const T* x, const T* y, int64_t n);
};
struct AttentionTable {
  AttentionRows<float> f32;
  AttentionRows<double> f64;
};
extern const AttentionTable attention_table_v2, attention_table_v3, attention_table_v4;

}  // namespace rbcpu

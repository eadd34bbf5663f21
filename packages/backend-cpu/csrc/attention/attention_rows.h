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
  /// x becomes x * factor where `kept` is not 0, else 0.
  void (*drop)(T* x, const uint8_t* kept, int64_t n, T factor);
  /// to = x * factor; to may be x.
  void (*scaled)(const T* x, T* to, int64_t n, T factor);
  T (*dot)(const T* x, const T* y, int64_t n);
};
/// Dropout of the weights of one head (rabbet/philox.h). Nothing is dropped where `factor` is 1.
struct Dropout {
  uint64_t seed = 0, matrix = 0;
  int64_t rows = 0, columns = 0;  // of the matrix
  uint32_t limit = 0;
  double factor = 1;  // of a weight that is kept

  bool any() const { return factor != 1; }
};
struct AttentionTable {
  AttentionRows<float> f32;
  AttentionRows<double> f64;
  /// 1 where weights [i, i + rows) x [j, j + columns) are kept, else 0. i and j are multiples of
  /// 16, and whole tiles of 16 x 16 are written.
  void (*kept)(const Dropout& d, int64_t i, int64_t rows, int64_t j, int64_t columns, uint8_t* to,
               int64_t pitch);
};
extern const AttentionTable attention_table_v2, attention_table_v3, attention_table_v4;

}  // namespace rbcpu

// Products of small tiles whose right operand is packed once and then used many times: attention,
// recurrent layers. Where every operand is used once, gemm.h is the right header.
#pragma once
#include <stdint.h>

namespace rbcpu {

/// Columns of packed operands and of results are padded to a multiple of this.
constexpr int64_t kTilePad = 16;
constexpr int64_t tile_padded(int64_t n) { return (n + kTilePad - 1) / kTilePad * kTilePad; }

/// c (+)= a b for m rows, n columns (rounded up to kTilePad in c) and depth k. `b` is packed and
/// may be larger: packed_k >= k, packed_n >= n. No row of c depends on how many rows there are.
template <class T>
struct TileProduct {
  int64_t m, n, k;
  const T* a;
  int64_t as_m, as_k;
  const T* b;
  int64_t packed_k, packed_n;
  T* c;
  int64_t ldc;
  bool add;
};

struct TileTable {
  /// b (k x n, through strides) into k * tile_padded(n) elements, zero beyond n.
  void (*pack_f32)(const float* b, int64_t bs_k, int64_t bs_n, int64_t k, int64_t n, float* to);
  void (*pack_f64)(const double* b, int64_t bs_k, int64_t bs_n, int64_t k, int64_t n, double* to);
  void (*multiply_f32)(const TileProduct<float>&);
  void (*multiply_f64)(const TileProduct<double>&);
};
extern const TileTable tile_table_v2, tile_table_v3, tile_table_v4;
const TileTable& tile_table();

inline void tile_pack(const float* b, int64_t bs_k, int64_t bs_n, int64_t k, int64_t n, float* to) {
  tile_table().pack_f32(b, bs_k, bs_n, k, n, to);
}
inline void tile_pack(const double* b, int64_t bs_k, int64_t bs_n, int64_t k, int64_t n,
                      double* to) {
  tile_table().pack_f64(b, bs_k, bs_n, k, n, to);
}
inline void tile_multiply(const TileProduct<float>& p) { tile_table().multiply_f32(p); }
inline void tile_multiply(const TileProduct<double>& p) { tile_table().multiply_f64(p); }

}  // namespace rbcpu

// Products with a packed right operand, once per instruction-set level. Compiled with contraction,
// so that a * b + c is one instruction where the level has it.
#include "common/level.h"
#include "matmul/gemm_pack.h"
#include "matmul/tiles.h"

namespace {

constexpr int kPanelVectors = kVectorBytes == 64 ? 4 : 2;
constexpr int kMaxRows = 6;
// A panel of b this deep stays in the first-level cache.
constexpr int64_t kDepth = 128;

template <class T>
constexpr int64_t kPanel = kPanelVectors * kLanes<T>;

using rbcpu::TileProduct;

// Rows x (Vectors * lanes) of c; the rows of b are ldb apart.
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void micro(int64_t depth, const T* a, int64_t as_m, int64_t as_k,
                                     const T* b, int64_t ldb, T* c, int64_t ldc, bool add) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  V sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[r][v] = V{};
  }
  const T* a3 = a + 3 * as_m;  // two bases: the others are reached by scaled addressing
  for (int64_t p = 0; p < depth; ++p) {
    V row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) row[v] = load_vector(b + v * L);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const T x = r < 3 ? a[r * as_m] : a3[(r - 3) * as_m];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += x * row[v];
    }
    a += as_k;
    a3 += as_k;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      T* out = c + r * ldc + v * L;
      store_vector(out, add ? load_vector(out) + sum[r][v] : sum[r][v]);
    }
  }
}

template <class T>
using Micro = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, T*, int64_t, bool);
template <class T, int Vectors>
constexpr Micro<T> kRows[] = {nullptr,
                              micro<T, 1, Vectors>,
                              micro<T, 2, Vectors>,
                              micro<T, 3, Vectors>,
                              micro<T, 4, Vectors>,
                              micro<T, 5, Vectors>,
                              micro<T, 6, Vectors>};

template <class T>
Micro<T> find_micro([[maybe_unused]] int64_t vectors, int64_t rows) {
#if defined(__AVX512F__)
  if (vectors == 1) return kRows<T, 1>[rows];
  if (vectors == 3) return kRows<T, 3>[rows];
  if (vectors == 4) return kRows<T, 4>[rows];
#endif
  return kRows<T, 2>[rows];
}

template <class T>
void multiply(const TileProduct<T>& g) {
  const int64_t n = rbcpu::tile_padded(g.n), packed_n = rbcpu::tile_padded(g.packed_n);
  const int64_t groups = (g.m + kMaxRows - 1) / kMaxRows;
  if (g.k == 0 && !g.add) {
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < n; ++j) g.c[i * g.ldc + j] = T(0);
    }
  }
  for (int64_t j = 0; j < n; j += kPanel<T>) {
    const int64_t width = packed_n - j < kPanel<T> ? packed_n - j : kPanel<T>;
    const int64_t vectors = (n - j < width ? n - j : width) / kLanes<T>;
    for (int64_t p = 0; p < g.k; p += kDepth) {
      const int64_t depth = g.k - p < kDepth ? g.k - p : kDepth;
      const T* b = g.b + j * g.packed_k + p * width;
      for (int64_t q = 0; q < groups; ++q) {  // of nearly equal height
        const int64_t i = g.m * q / groups, rows = g.m * (q + 1) / groups - i;
        find_micro<T>(vectors, rows)(depth, g.a + i * g.as_m + p * g.as_k, g.as_m, g.as_k, b, width,
                                     g.c + i * g.ldc + j, g.ldc, g.add || p > 0);
      }
    }
  }
}

template <class T>
void pack(const T* b, int64_t bs_k, int64_t bs_n, int64_t k, int64_t n, T* to) {
  const int64_t padded = rbcpu::tile_padded(n);
  for (int64_t j = 0; j < padded; j += kPanel<T>) {
    const int64_t width = padded - j < kPanel<T> ? padded - j : kPanel<T>;
    const int64_t used = n - j < 0 ? 0 : n - j < width ? n - j : width;
    pack_panel(b + j * bs_n, bs_k, bs_n, k, used, width, to);
    to += k * width;
  }
}

}  // namespace

namespace rbcpu {
extern const TileTable RB_LEVEL_NAME(tile_table) = {pack<float>, pack<double>, multiply<float>,
                                                    multiply<double>};
}

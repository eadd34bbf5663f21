// Matrix products c = a b (+ c, + bias) through strides: no transposed copies. simd_gemm.cpp holds
// the blocked kernels of float32 and float64 per instruction-set level; this header splits work
// into tiles for the pool.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "dtype.h"
#include "gemm_types.h"

namespace rbcpu {

/// Packing space of the calling thread.
void* gemm_workspace();
/// One product on the calling thread.
void gemm_run(const Gemm<float>& g);
void gemm_run(const Gemm<double>& g);

/// Any other dtype: rows of c gather multiples of rows of b.
template <class T>
void gemm_run(const Gemm<T>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    T* c = g.c + i * g.ldc;
    if (g.mode == kGemmStore) {
      for (int64_t j = 0; j < g.n; ++j) c[j] = g.bias ? g.bias[j] : T(0);
    }
    for (int64_t p = 0; p < g.k; ++p) {
      const T x = g.a[i * g.as_m + p * g.as_k];
      const T* b = g.b + p * g.bs_k;
      if (g.bs_n == 1) {
        for (int64_t j = 0; j < g.n; ++j) c[j] = T(c[j] + T(x * b[j]));
      } else {
        for (int64_t j = 0; j < g.n; ++j) c[j] = T(c[j] + T(x * b[j * g.bs_n]));
      }
    }
  }
}

/// Tiles of one product: their number follows from the sizes alone, so results do not depend on
/// threads.
struct GemmTiles {
  int64_t rows, cols;    // of a tile
  int64_t down, across;  // number of tiles
  int64_t grain;         // tiles per task

  GemmTiles(int64_t m, int64_t n, int64_t k) {
    constexpr double kTask = 1.5e6;
    constexpr int64_t kRows = 12, kCols = 32;  // multiples of the largest micro-kernel
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const double tiles = std::clamp(flops / kTask, 1.0, 64.0);
    down = std::clamp<int64_t>(
        std::llround(std::sqrt(tiles * static_cast<double>(m) / static_cast<double>(n))), 1,
        (m + kRows - 1) / kRows);
    down = std::min<int64_t>(down, std::llround(tiles));
    across = std::clamp<int64_t>(static_cast<int64_t>(tiles) / down, 1, (n + kCols - 1) / kCols);
    rows = down == 1 ? m : ((m + down - 1) / down + kRows - 1) / kRows * kRows;
    cols = across == 1 ? n : ((n + across - 1) / across + kCols - 1) / kCols * kCols;
    down = (m + rows - 1) / rows;
    across = (n + cols - 1) / cols;
    grain = std::max<int64_t>(
        1, static_cast<int64_t>(kTask / (flops / static_cast<double>(down * across) + 1.0)));
  }
};

/// `batch` products of one geometry, on the pool; at(i) gives the i-th as a Gemm<T>.
template <class T, class At>
void gemm_batch(int64_t batch, int64_t m, int64_t n, int64_t k, const At& at) {
  if (batch == 0 || m == 0 || n == 0) return;
  const GemmTiles tiles(m, n, std::max<int64_t>(k, 1));
  const int64_t each = tiles.down * tiles.across;
  rb::parallel_for(batch * each, tiles.grain, [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      Gemm<T> g = at(job / each);
      const int64_t tile = job % each, i = tile / tiles.across * tiles.rows,
                    j = tile % tiles.across * tiles.cols;
      g.m = std::min(tiles.rows, m - i);
      g.n = std::min(tiles.cols, n - j);
      g.a += i * g.as_m;
      g.b += j * g.bs_n;
      g.c += i * g.ldc + j;
      if (g.bias) g.bias += j;
      gemm_run(g);
    }
  });
}

}  // namespace rbcpu

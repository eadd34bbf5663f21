// Matrix products c = a b (+ c, + bias) through strides: no transposed copies. gemm_simd.cpp holds
// the blocked kernels of float32 and float64 per instruction-set level; this header splits work
// into tiles for the pool.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "common/dtype.h"
#include "matmul/gemm_types.h"

namespace rbcpu {

const GemmTable& gemm_table();
/// Packing space of the calling thread.
void* gemm_workspace();

/// One product, or a tile of one, whose shape is chosen, on the calling thread.
inline void gemm_tile(const Gemm<float>& g) { gemm_table().f32(g, gemm_workspace()); }
inline void gemm_tile(const Gemm<double>& g) { gemm_table().f64(g, gemm_workspace()); }
inline GemmShape gemm_shape(const Gemm<float>& g) { return gemm_table().shape_f32(g.m, g.n); }
inline GemmShape gemm_shape(const Gemm<double>& g) { return gemm_table().shape_f64(g.m, g.n); }

/// Other dtypes: rows of c gather multiples of rows of b.
template <class T>
GemmShape gemm_shape(const Gemm<T>&) {
  return kGemmBlock;
}
template <class T>
void gemm_tile(const Gemm<T>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    T* c = g.c + i * g.ldc;
    if (g.mode == kGemmStore) {
      for (int64_t j = 0; j < g.n; ++j) c[j] = g.bias ? g.bias[j] : T(0);
    }
    for (int64_t p = 0; p < g.k; ++p) {
      const T x = T(g.alpha * g.a[i * g.as_m + p * g.as_k]);
      const T* b = g.b + p * g.bs_k;
      if (g.bs_n == 1) {
        for (int64_t j = 0; j < g.n; ++j) c[j] = T(c[j] + T(x * b[j]));
      } else {
        for (int64_t j = 0; j < g.n; ++j) c[j] = T(c[j] + T(x * b[j * g.bs_n]));
      }
    }
  }
}

// Complex numbers: products of the real and imaginary parts, which are strided matrices.
template <class R>
void gemm_tile(const Gemm<std::complex<R>>& g) {
  const rb::Scratch<R> parts(2 * g.m * g.n);
  R* const real = parts.data();
  R* const imag = real + g.m * g.n;
  auto part = [&](int a, int b, R* c, GemmMode mode, R alpha) {
    Gemm<R> p{g.m,
              g.n,
              g.k,
              reinterpret_cast<const R*>(g.a) + a,
              2 * g.as_m,
              2 * g.as_k,
              reinterpret_cast<const R*>(g.b) + b,
              2 * g.bs_k,
              2 * g.bs_n,
              c,
              g.n,
              mode,
              nullptr,
              alpha,
              nullptr};
    gemm_tile(p);
  };
  part(0, 0, real, kGemmStore, R(1));
  part(1, 1, real, kGemmAccumulate, R(-1));
  part(0, 1, imag, kGemmStore, R(1));
  part(1, 0, imag, kGemmAccumulate, R(1));
  for (int64_t i = 0; i < g.m; ++i) {
    std::complex<R>* c = g.c + i * g.ldc;
    for (int64_t j = 0; j < g.n; ++j) {
      const std::complex<R> sum = g.alpha * std::complex<R>(real[i * g.n + j], imag[i * g.n + j]);
      c[j] = sum + (g.mode == kGemmAccumulate ? c[j] : g.bias ? g.bias[j] : std::complex<R>(0));
    }
  }
}

/// One product on the calling thread.
template <class T>
void gemm_run(Gemm<T> g) {
  g.shape = gemm_shape(g);
  gemm_tile(g);
}

/// Tiles of one product for the pool. They may follow the number of threads: no bit of the result
/// depends on them.
struct GemmTiles {
  int64_t rows, cols;    // of a tile
  int64_t down, across;  // number of tiles
  int64_t grain;         // tiles per task

  GemmTiles(int64_t m, int64_t n, int64_t k, int64_t batch, double task = 1.5e6) {
    const GemmTable& table = gemm_table();
    const double flops =
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const int threads = rb::host->num_threads();
    const double most = threads == 1 ? 1.0 : std::ceil(2.0 * threads / static_cast<double>(batch));
    const double tiles = std::clamp(flops / task, 1.0, most);
    // Every row of tiles packs b again, every column of tiles packs a.
    down = std::clamp<int64_t>(
        std::llround(std::sqrt(tiles * static_cast<double>(m) / static_cast<double>(n))), 1,
        (m + table.rows - 1) / table.rows);
    down = std::min<int64_t>(down, std::llround(tiles));
    across = std::clamp<int64_t>(static_cast<int64_t>(tiles) / down, 1,
                                 (n + table.cols - 1) / table.cols);
    rows = share(m, down, table.rows);
    cols = share(n, across, table.cols);
    down = (m + rows - 1) / rows;
    across = (n + cols - 1) / cols;
    grain = std::max<int64_t>(
        1, static_cast<int64_t>(task / (flops / static_cast<double>(down * across) + 1.0)));
  }

 private:
  static int64_t share(int64_t n, int64_t parts, int64_t unit) {
    return parts == 1 ? n : ((n + parts - 1) / parts + unit - 1) / unit * unit;
  }
};

/// f(index, i, j, rows, cols) for every tile of `batch` products, on the pool.
template <class F>
void for_tiles(int64_t batch, int64_t m, int64_t n, const GemmTiles& tiles, const F& f) {
  const int64_t each = tiles.down * tiles.across;
  rb::parallel_for(batch * each, tiles.grain, [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t tile = job % each, i = tile / tiles.across * tiles.rows,
                    j = tile % tiles.across * tiles.cols;
      f(job / each, i, j, std::min(tiles.rows, m - i), std::min(tiles.cols, n - j));
    }
  });
}

/// A loop in place over a tile of a result, while it is in the cache.
template <class T>
void activate(Loop loop, T* c, int64_t rows, int64_t cols, int64_t ldc) {
  LoopArgs row{};
  row.n = cols;
  row.out_stride = row.in_stride[0] = sizeof(T);
  for (int64_t i = 0; i < rows; ++i) {
    row.out = reinterpret_cast<char*>(c + i * ldc);
    row.in[0] = row.out;
    loop(&row);
  }
}

/// `batch` products of one geometry, on the pool; at(i) gives the i-th as a Gemm<T>. The activation
/// is applied to finished tiles.
template <class T, class At>
void gemm_batch(int64_t batch, int64_t m, int64_t n, int64_t k, const At& at) {
  if (batch == 0 || m == 0 || n == 0) return;
  const GemmTiles tiles(m, n, std::max<int64_t>(k, 1), batch);
  for_tiles(batch, m, n, tiles,
            [&](int64_t index, int64_t i, int64_t j, int64_t rows, int64_t cols) {
              Gemm<T> g = at(index);
              g.m = m;
              g.n = n;
              g.shape = gemm_shape(g);
              g.m = rows;
              g.n = cols;
              g.a += i * g.as_m;
              g.b += j * g.bs_n;
              g.c += i * g.ldc + j;
              if (g.bias) g.bias += j;
              gemm_tile(g);
              if (g.activation) activate(g.activation, g.c, rows, cols, g.ldc);
            });
}

}  // namespace rbcpu

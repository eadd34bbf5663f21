// Blocked matrix products of float32 and float64, once per instruction-set level. Compiled with
// contraction, so that a * b + c is one instruction where the level has it.
#include <stddef.h>

#include "gemm_types.h"
#include "level.h"

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kMaxRows = 12;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kMaxRows = 6;
#else
constexpr int kVectorBytes = 16, kMaxRows = 6;
#endif
// A packed panel of b (kDepth x 2 vectors) stays in the first-level cache, a block of a in the
// second.
constexpr int64_t kDepth = kVectorBytes == 64 ? 192 : 256;
constexpr int64_t kBlockRows = kMaxRows * 10;
constexpr int64_t kBlockCols = 512;

template <class T>
struct VectorOf;
// Under-aligned, so that any element may be the first.
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};
template <class T>
constexpr int kLanes = kVectorBytes / sizeof(T);
template <class T>
constexpr int kCols = 2 * kLanes<T>;

using rbcpu::Gemm;

// c (Rows x kCols, of which `cols` are wanted) from a packed panel of a and kCols columns of b.
template <class T, int Rows>
__attribute__((noinline)) void micro(int64_t depth, const T* a, const T* b, int64_t ldb, T* c,
                                     int64_t ldc, bool add, const T* bias, int cols) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  V lo[Rows], hi[Rows];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) lo[r] = hi[r] = V{};
  for (int64_t p = 0; p < depth; ++p) {
    const V b0 = *reinterpret_cast<const V*>(b), b1 = *reinterpret_cast<const V*>(b + L);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      lo[r] += a[r] * b0;
      hi[r] += a[r] * b1;
    }
    a += Rows;
    b += ldb;
  }
  if (cols == 2 * L) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      V* out = reinterpret_cast<V*>(c + r * ldc);
      V* out1 = reinterpret_cast<V*>(c + r * ldc + L);
      if (add) {
        lo[r] += *out;
        hi[r] += *out1;
      } else if (bias) {
        lo[r] += *reinterpret_cast<const V*>(bias);
        hi[r] += *reinterpret_cast<const V*>(bias + L);
      }
      *out = lo[r];
      *out1 = hi[r];
    }
    return;
  }
  alignas(64) T spill[Rows][2 * L];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    *reinterpret_cast<V*>(spill[r]) = lo[r];
    *reinterpret_cast<V*>(spill[r] + L) = hi[r];
  }
  for (int r = 0; r < Rows; ++r) {
    T* out = c + r * ldc;
    for (int j = 0; j < cols; ++j) out[j] = spill[r][j] + (add ? out[j] : bias ? bias[j] : T(0));
  }
}

template <class T>
using Micro = void (*)(int64_t, const T*, const T*, int64_t, T*, int64_t, bool, const T*, int);
template <class T>
constexpr Micro<T> kMicro[] = {
    nullptr,     micro<T, 1>, micro<T, 2>, micro<T, 3>,  micro<T, 4>,  micro<T, 5>, micro<T, 6>,
#if defined(__AVX512F__)
    micro<T, 7>, micro<T, 8>, micro<T, 9>, micro<T, 10>, micro<T, 11>, micro<T, 12>
#endif
};

// Blocks of 16-byte vectors turned by 90 degrees.
typedef float F4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double D2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef int64_t I2 __attribute__((vector_size(16)));

inline __attribute__((always_inline)) void transpose_block(const float* from, int64_t stride,
                                                           float* to, int64_t to_stride) {
  const F4 r0 = *reinterpret_cast<const F4*>(from),
           r1 = *reinterpret_cast<const F4*>(from + stride);
  const F4 r2 = *reinterpret_cast<const F4*>(from + 2 * stride),
           r3 = *reinterpret_cast<const F4*>(from + 3 * stride);
  const F4 a = __builtin_shuffle(r0, r1, I4{0, 4, 1, 5}),
           b = __builtin_shuffle(r0, r1, I4{2, 6, 3, 7});
  const F4 c = __builtin_shuffle(r2, r3, I4{0, 4, 1, 5}),
           d = __builtin_shuffle(r2, r3, I4{2, 6, 3, 7});
  *reinterpret_cast<F4*>(to) = __builtin_shuffle(a, c, I4{0, 1, 4, 5});
  *reinterpret_cast<F4*>(to + to_stride) = __builtin_shuffle(a, c, I4{2, 3, 6, 7});
  *reinterpret_cast<F4*>(to + 2 * to_stride) = __builtin_shuffle(b, d, I4{0, 1, 4, 5});
  *reinterpret_cast<F4*>(to + 3 * to_stride) = __builtin_shuffle(b, d, I4{2, 3, 6, 7});
}
inline __attribute__((always_inline)) void transpose_block(const double* from, int64_t stride,
                                                           double* to, int64_t to_stride) {
  const D2 r0 = *reinterpret_cast<const D2*>(from),
           r1 = *reinterpret_cast<const D2*>(from + stride);
  *reinterpret_cast<D2*>(to) = __builtin_shuffle(r0, r1, I2{0, 2});
  *reinterpret_cast<D2*>(to + to_stride) = __builtin_shuffle(r0, r1, I2{1, 3});
}

// to[p * to_stride + r] = from[r * stride + p] for r < rows, p < depth.
template <class T>
void transpose_into(const T* from, int64_t stride, int64_t rows, int64_t depth, T* to,
                    int64_t to_stride) {
  constexpr int64_t B = 16 / sizeof(T);
  int64_t r = 0;
  for (; r + B <= rows; r += B) {
    const T* row = from + r * stride;
    int64_t p = 0;
    for (; p + B <= depth; p += B)
      transpose_block(row + p, stride, to + p * to_stride + r, to_stride);
    for (; p < depth; ++p) {
      for (int64_t i = 0; i < B; ++i) to[p * to_stride + r + i] = row[i * stride + p];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t p = 0; p < depth; ++p) to[p * to_stride + r] = from[r * stride + p];
  }
}

// rows x depth of a as depth groups of `rows` elements.
template <class T>
void pack_a(const T* a, int64_t as_m, int64_t as_k, int64_t rows, int64_t depth, T* to) {
  if (as_k == 1) return transpose_into(a, as_m, rows, depth, to, rows);
  for (int64_t p = 0; p < depth; ++p) {
    for (int64_t r = 0; r < rows; ++r) to[p * rows + r] = a[p * as_k + r * as_m];
  }
}

// depth x cols of b as depth groups of kCols elements, zero beyond `cols`.
template <class T>
void pack_b(const T* b, int64_t bs_k, int64_t bs_n, int64_t depth, int64_t cols, T* to) {
  constexpr int64_t W = kCols<T>;
  if (bs_n == 1 && cols == W) {
    using V = typename VectorOf<T>::type;
    for (int64_t p = 0; p < depth; ++p) {
      *reinterpret_cast<V*>(to + p * W) = *reinterpret_cast<const V*>(b + p * bs_k);
      *reinterpret_cast<V*>(to + p * W + kLanes<T>) =
          *reinterpret_cast<const V*>(b + p * bs_k + kLanes<T>);
    }
    return;
  }
  if (bs_k == 1) {
    transpose_into(b, bs_n, cols, depth, to, W);
  } else {
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t j = 0; j < cols; ++j) to[p * W + j] = b[p * bs_k + j * bs_n];
    }
  }
  for (int64_t p = 0; p < depth && cols < W; ++p) {
    for (int64_t j = cols; j < W; ++j) to[p * W + j] = T(0);
  }
}

// y[i] = sum_p a[i, p] x[p] for one column or row of the result.
template <class T>
struct Gemv {
  int64_t m, k;
  const T* a;
  int64_t as_m, as_k;
  const T* x;
  int64_t xs;
  T* y;
  int64_t ys;
  bool add;
  const T* bias;
  int64_t bias_stride;
};

template <class T>
T start(const Gemv<T>& g, int64_t i) {
  return g.add ? g.y[i * g.ys] : g.bias ? g.bias[i * g.bias_stride] : T(0);
}

template <class T>
T horizontal(typename VectorOf<T>::type v) {
  T sum = v[0];
  for (int i = 1; i < kLanes<T>; ++i) sum += v[i];
  return sum;
}

// Rows of a run along memory: dot products, four rows at a time.
template <class T, int Rows>
void dot_rows(const Gemv<T>& g, int64_t i) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  V sum[Rows], sum1[Rows];
  for (int r = 0; r < Rows; ++r) sum[r] = sum1[r] = V{};
  int64_t p = 0;
  for (; p + 2 * L <= g.k; p += 2 * L) {
    const V x = *reinterpret_cast<const V*>(g.x + p), x1 = *reinterpret_cast<const V*>(g.x + p + L);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const T* row = g.a + (i + r) * g.as_m + p;
      sum[r] += *reinterpret_cast<const V*>(row) * x;
      sum1[r] += *reinterpret_cast<const V*>(row + L) * x1;
    }
  }
  for (int r = 0; r < Rows; ++r) {
    T total = horizontal<T>(sum[r] + sum1[r]);
    const T* row = g.a + (i + r) * g.as_m;
    for (int64_t q = p; q < g.k; ++q) total += row[q] * g.x[q];
    g.y[(i + r) * g.ys] = total + start(g, i + r);
  }
}

// Columns of a run along memory: four of them at a time are added to a block of sums in the
// first-level cache.
template <class T>
void axpy_columns(const Gemv<T>& g) {
  using V = typename VectorOf<T>::type;
  constexpr int L = kLanes<T>;
  constexpr int64_t kBlock = 8192 / sizeof(T);
  alignas(64) T sum[kBlock];
  for (int64_t i0 = 0; i0 < g.m; i0 += kBlock) {
    const int64_t n = g.m - i0 < kBlock ? g.m - i0 : kBlock;
    for (int64_t i = 0; i < n; ++i) sum[i] = T(0);
    int64_t p = 0;
    for (; p + 4 <= g.k; p += 4) {
      const T* c0 = g.a + i0 + p * g.as_k;
      const T *c1 = c0 + g.as_k, *c2 = c1 + g.as_k, *c3 = c2 + g.as_k;
      const T x0 = g.x[p * g.xs], x1 = g.x[(p + 1) * g.xs], x2 = g.x[(p + 2) * g.xs],
              x3 = g.x[(p + 3) * g.xs];
      int64_t i = 0;
      for (; i + L <= n; i += L) {
        V s = *reinterpret_cast<V*>(sum + i);
        s += x0 * *reinterpret_cast<const V*>(c0 + i);
        s += x1 * *reinterpret_cast<const V*>(c1 + i);
        s += x2 * *reinterpret_cast<const V*>(c2 + i);
        s += x3 * *reinterpret_cast<const V*>(c3 + i);
        *reinterpret_cast<V*>(sum + i) = s;
      }
      for (; i < n; ++i) {
        T s = sum[i];
        s += x0 * c0[i];
        s += x1 * c1[i];
        s += x2 * c2[i];
        s += x3 * c3[i];
        sum[i] = s;
      }
    }
    for (; p < g.k; ++p) {
      const T x = g.x[p * g.xs];
      const T* column = g.a + i0 + p * g.as_k;
      for (int64_t i = 0; i < n; ++i) sum[i] += x * column[i];
    }
    for (int64_t i = 0; i < n; ++i) g.y[(i0 + i) * g.ys] = sum[i] + start(g, i0 + i);
  }
}

template <class T>
void plain_rows(const Gemv<T>& g, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 64;
  T sum[kBlock];
  for (int64_t i0 = begin; i0 < end; i0 += kBlock) {
    const int64_t n = end - i0 < kBlock ? end - i0 : kBlock;
    for (int64_t i = 0; i < n; ++i) sum[i] = T(0);
    for (int64_t p = 0; p < g.k; ++p) {
      const T x = g.x[p * g.xs];
      const T* col = g.a + i0 * g.as_m + p * g.as_k;
      for (int64_t i = 0; i < n; ++i) sum[i] += x * col[i * g.as_m];
    }
    for (int64_t i = 0; i < n; ++i) g.y[(i0 + i) * g.ys] = sum[i] + start(g, i0 + i);
  }
}

template <class T>
void gemv(const Gemv<T>& g) {
  int64_t i = 0;
  if (g.as_k == 1 && g.xs == 1) {
    for (; i + 4 <= g.m; i += 4) dot_rows<T, 4>(g, i);
    for (; i < g.m; ++i) dot_rows<T, 1>(g, i);
    return;
  }
  if (g.as_m == 1) return axpy_columns(g);
  plain_rows(g, 0, g.m);
}

template <class T>
void gemm(const Gemm<T>& g, void* workspace) {
  const bool add = g.mode == rbcpu::kGemmAccumulate;
  if (g.n == 1) {
    return gemv<T>({g.m, g.k, g.a, g.as_m, g.as_k, g.b, g.bs_k, g.c, g.ldc, add, g.bias, 0});
  }
  if (g.m == 1) {
    return gemv<T>({g.n, g.k, g.b, g.bs_n, g.bs_k, g.a, g.as_k, g.c, 1, add, g.bias, 1});
  }
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m && !add; ++i) {
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] = g.bias ? g.bias[j] : T(0);
    }
    return;
  }
  constexpr int64_t W = kCols<T>;
  T* packed_a = static_cast<T*>(workspace);
  T* packed_b = packed_a + kBlockRows * kDepth;
  // Few rows would not repay packing b, if its rows run along memory.
  const bool direct_b = g.bs_n == 1 && g.m <= 2 * kMaxRows;
  for (int64_t j0 = 0; j0 < g.n; j0 += kBlockCols) {
    const int64_t nb = g.n - j0 < kBlockCols ? g.n - j0 : kBlockCols;
    for (int64_t p0 = 0; p0 < g.k; p0 += kDepth) {
      const int64_t depth = g.k - p0 < kDepth ? g.k - p0 : kDepth;
      const T* b_block = g.b + p0 * g.bs_k + j0 * g.bs_n;
      for (int64_t j = 0; j < nb; j += W) {
        const int64_t cols = nb - j < W ? nb - j : W;
        if (direct_b && cols == W) continue;
        pack_b<T>(b_block + j * g.bs_n, g.bs_k, g.bs_n, depth, cols, packed_b + j * depth);
      }
      for (int64_t i0 = 0; i0 < g.m; i0 += kBlockRows) {
        const int64_t mb = g.m - i0 < kBlockRows ? g.m - i0 : kBlockRows;
        // Panels of nearly equal height instead of full ones and a thin rest.
        const int64_t panels = (mb + kMaxRows - 1) / kMaxRows;
        for (int64_t q = 0; q < panels; ++q) {
          const int64_t r0 = mb * q / panels, rows = mb * (q + 1) / panels - r0;
          pack_a<T>(g.a + (i0 + r0) * g.as_m + p0 * g.as_k, g.as_m, g.as_k, rows, depth,
                    packed_a + r0 * depth);
        }
        for (int64_t j = 0; j < nb; j += W) {
          const int64_t cols = nb - j < W ? nb - j : W;
          const bool direct = direct_b && cols == W;
          const T* b = direct ? b_block + j : packed_b + j * depth;
          for (int64_t q = 0; q < panels; ++q) {
            const int64_t r0 = mb * q / panels, rows = mb * (q + 1) / panels - r0;
            kMicro<T>[rows](depth, packed_a + r0 * depth, b, direct ? g.bs_k : W,
                            g.c + (i0 + r0) * g.ldc + j0 + j, g.ldc, add || p0 > 0,
                            g.bias ? g.bias + j0 + j : nullptr, static_cast<int>(cols));
          }
        }
      }
    }
  }
}

}  // namespace

namespace rbcpu {
extern const GemmTable RB_LEVEL_NAME(gemm_table) = {
    static_cast<size_t>((kBlockRows + kBlockCols + kCols<float>)*kDepth) * sizeof(double),
    gemm<float>, gemm<double>};
}

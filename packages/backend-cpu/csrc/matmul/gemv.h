// Matrix times vector: limited by memory, so without packing. Internal linkage: for gemm_simd.cpp.
#pragma once
#include "common/vector.h"

namespace {

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
  T alpha;
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
    g.y[(i + r) * g.ys] = g.alpha * total + start(g, i + r);
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
    for (int64_t i = 0; i < n; ++i) g.y[(i0 + i) * g.ys] = g.alpha * sum[i] + start(g, i0 + i);
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
    for (int64_t i = 0; i < n; ++i) g.y[(i0 + i) * g.ys] = g.alpha * sum[i] + start(g, i0 + i);
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

}  // namespace

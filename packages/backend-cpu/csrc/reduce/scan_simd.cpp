// Running sums and products along a run, in double: eight elements are scanned by a tree of three
// steps, and the chain from one eight to the next is a single operation.
#if defined(__AVX512F__)
#include <immintrin.h>
// The intrinsics of GCC 12 pass on a register that they deliberately leave unset.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "common/level.h"
#include "reduce/scan.h"
#include "reduce/sum_simd.h"

namespace {

constexpr int kGroup = 8;

template <bool Product>
RB_INLINE double join(double a, double b) {
  return Product ? a * b : a + b;
}

// v[i] = v[0] op ... op v[i]
template <bool Product>
RB_INLINE void scan_group(double* v) {
#pragma GCC unroll 3
  for (int step = 1; step < kGroup; step *= 2) {
    double before[kGroup];
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) before[i] = i < step ? (Product ? 1.0 : 0.0) : v[i - step];
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) v[i] = join<Product>(v[i], before[i]);
  }
}

#if defined(__AVX512F__)
RB_INLINE void store_group(float* r, __m512d v) { _mm256_storeu_ps(r, _mm512_cvtpd_ps(v)); }
RB_INLINE void store_group(double* r, __m512d v) { _mm512_storeu_pd(r, v); }
template <bool Product>
RB_INLINE __m512d join_group(__m512d a, __m512d b) {
  return Product ? _mm512_mul_pd(a, b) : _mm512_add_pd(a, b);
}
template <int Step>
RB_INLINE __m512d shifted(__m512d v, __m512d fill) {
  return _mm512_castsi512_pd(
      _mm512_alignr_epi64(_mm512_castpd_si512(v), _mm512_castpd_si512(fill), kGroup - Step));
}
#endif

#if defined(__AVX512F__)
// The last elements of eight scanned groups, computed by the same tree as the scan.
template <bool Product, class T>
RB_INLINE __m512d last_of_groups(const T* x) {
  __m512d pairs[4], fours[2];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512d a = load_doubles(x + 2 * k * kGroup), b = load_doubles(x + (2 * k + 1) * kGroup);
    pairs[k] = join_group<Product>(_mm512_unpackhi_pd(a, b), _mm512_unpacklo_pd(a, b));
  }
  const auto halves = [](__m512d a, __m512d b) {  // each 128 bits hold two neighbours
    return join_group<Product>(_mm512_shuffle_f64x2(a, b, 0xdd), _mm512_shuffle_f64x2(a, b, 0x88));
  };
  fours[0] = halves(pairs[0], pairs[1]);
  fours[1] = halves(pairs[2], pairs[3]);
  return halves(fours[0], fours[1]);
}
#endif

template <class T, bool Product, bool Store>
RB_INLINE double scan_run(const T* x, T* r, int64_t n, double carry) {
  const double neutral = Product ? 1.0 : 0.0;
  double local = neutral;
  int64_t i = 0;
#if defined(__AVX512F__)
  const __m512d fill = _mm512_set1_pd(neutral), start = _mm512_set1_pd(carry);
  const __m512i last = _mm512_set1_epi64(kGroup - 1);
  if constexpr (!Store) {
    alignas(64) double last_ones[kGroup];
    for (; i + kGroup * kGroup <= n; i += kGroup * kGroup) {
      _mm512_store_pd(last_ones, last_of_groups<Product>(x + i));
#pragma GCC unroll 8
      for (int k = 0; k < kGroup; ++k) local = join<Product>(local, last_ones[k]);
    }
  }
  __m512d chain = _mm512_set1_pd(local);
  for (; i + kGroup <= n; i += kGroup) {
    __m512d v = load_doubles(x + i);
    v = join_group<Product>(v, shifted<1>(v, fill));
    v = join_group<Product>(v, shifted<2>(v, fill));
    v = join_group<Product>(v, shifted<4>(v, fill));
    if constexpr (Store)
      store_group(r + i, join_group<Product>(start, join_group<Product>(chain, v)));
    chain = join_group<Product>(chain, _mm512_permutexvar_pd(last, v));
  }
  local = _mm512_cvtsd_f64(chain);
#endif
  for (; i < n; i += kGroup) {
    const int m = n - i < kGroup ? static_cast<int>(n - i) : kGroup;
    double v[kGroup];
    for (int k = 0; k < kGroup; ++k) v[k] = k < m ? static_cast<double>(x[i + k]) : neutral;
    scan_group<Product>(v);
    if constexpr (Store) {
      for (int k = 0; k < m; ++k)
        r[i + k] = static_cast<T>(join<Product>(carry, join<Product>(local, v[k])));
    }
    local = join<Product>(local, v[kGroup - 1]);
  }
  return join<Product>(carry, local);
}

template <class T, bool Product>
double scan(const T* x, T* r, int64_t n, double carry) {
  return r ? scan_run<T, Product, true>(x, r, n, carry)
           : scan_run<T, Product, false>(x, r, n, carry);
}

}  // namespace

namespace rbcpu {
extern const ScanTable RB_LEVEL_NAME(scan_table) = {{scan<float, false>, scan<float, true>},
                                                    {scan<double, false>, scan<double, true>}};
}

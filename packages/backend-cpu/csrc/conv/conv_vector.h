// Vectors of the convolution kernels: runs of any length and parts of vectors. Everything here is
// internal to the file that includes it (level.h).
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <utility>

#include "common/vector.h"

namespace {

template <class T>
using Vec = typename VectorOf<T>::type;

// Some neighbouring lanes of a vector. Loads give 0 in the others, and neither loads nor stores
// touch their memory.
template <class T>
struct Lanes;
template <class T>
RB_ALWAYS int clip_lane(int64_t lane) {
  return lane < 0 ? 0 : lane < kLanes<T> ? static_cast<int>(lane) : kLanes<T>;
}
#if defined(__AVX512F__)
template <class T>
RB_ALWAYS unsigned lane_bits(int64_t begin, int64_t end) {
  return ((1u << clip_lane<T>(end)) - 1) & ~((1u << clip_lane<T>(begin)) - 1);
}
template <>
struct Lanes<float> {
  __mmask16 mask;
  Lanes() = default;
  RB_ALWAYS Lanes(int64_t begin, int64_t end)
      : mask(static_cast<__mmask16>(lane_bits<float>(begin, end))) {}
  RB_ALWAYS Vec<float> load(const float* p) const { return _mm512_maskz_loadu_ps(mask, p); }
  RB_ALWAYS void store(float* p, Vec<float> v) const { _mm512_mask_storeu_ps(p, mask, v); }
};
template <>
struct Lanes<double> {
  __mmask8 mask;
  Lanes() = default;
  RB_ALWAYS Lanes(int64_t begin, int64_t end)
      : mask(static_cast<__mmask8>(lane_bits<double>(begin, end))) {}
  RB_ALWAYS Vec<double> load(const double* p) const { return _mm512_maskz_loadu_pd(mask, p); }
  RB_ALWAYS void store(double* p, Vec<double> v) const { _mm512_mask_storeu_pd(p, mask, v); }
};
#elif defined(__AVX2__)
template <>
struct Lanes<float> {
  __m256i mask;
  Lanes() = default;
  RB_ALWAYS Lanes(int64_t begin, int64_t end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    mask = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(clip_lane<float>(begin)), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(clip_lane<float>(end)), lane));
  }
  RB_ALWAYS Vec<float> load(const float* p) const { return _mm256_maskload_ps(p, mask); }
  RB_ALWAYS void store(float* p, Vec<float> v) const { _mm256_maskstore_ps(p, mask, v); }
};
template <>
struct Lanes<double> {
  __m256i mask;
  Lanes() = default;
  RB_ALWAYS Lanes(int64_t begin, int64_t end) {
    const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    mask =
        _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_set1_epi64x(clip_lane<double>(begin)), lane),
                            _mm256_cmpgt_epi64(_mm256_set1_epi64x(clip_lane<double>(end)), lane));
  }
  RB_ALWAYS Vec<double> load(const double* p) const { return _mm256_maskload_pd(p, mask); }
  RB_ALWAYS void store(double* p, Vec<double> v) const { _mm256_maskstore_pd(p, mask, v); }
};
#else
template <class T>
struct Lanes {
  int begin, end;
  Lanes() = default;
  RB_ALWAYS Lanes(int64_t first, int64_t last)
      : begin(clip_lane<T>(first)), end(clip_lane<T>(last)) {}
  RB_ALWAYS Vec<T> load(const T* p) const {
    if (begin == 0 && end == kLanes<T>) return load_vector(p);
    Vec<T> v{};
    for (int i = begin; i < end; ++i) v[i] = p[i];
    return v;
  }
  RB_ALWAYS void store(T* p, Vec<T> v) const {
    if (begin == 0 && end == kLanes<T>) return store_vector(p, v);
    for (int i = begin; i < end; ++i) p[i] = v[i];
  }
};
#endif

template <class T, int... I>
RB_ALWAYS Vec<T> even_lanes(Vec<T> a, Vec<T> b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...);
}
// Every second element of a, then of b.
template <class T>
RB_ALWAYS Vec<T> even_lanes(Vec<T> a, Vec<T> b) {
  return even_lanes<T>(a, b, std::make_integer_sequence<int, kLanes<T>>());
}
template <class T, int First, int... I>
RB_ALWAYS Vec<T> zip_lanes(Vec<T> a, Vec<T> b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (First + I / 2 + I % 2 * kLanes<T>)...);
}
// Elements First, First + 1, ... of a and b in turn.
template <class T, int First>
RB_ALWAYS Vec<T> zip_lanes(Vec<T> a, Vec<T> b) {
  return zip_lanes<T, First>(a, b, std::make_integer_sequence<int, kLanes<T>>());
}

// Lanes [begin, end) of every Stride-th element (0: of any step).
template <class T, int Stride>
struct Strided {
  Lanes<T> low, high;
  Strided() = default;
  RB_ALWAYS Strided(int64_t begin, int64_t end, int64_t)
      : low(2 * begin, 2 * end - 1), high(2 * begin - kLanes<T>, 2 * end - 1 - kLanes<T>) {
    static_assert(Stride == 2);
  }
  RB_ALWAYS Vec<T> load(const T* p) const {
    return even_lanes<T>(low.load(p), high.load(p + kLanes<T>));
  }
};
template <class T>
struct Strided<T, 1> {
  Lanes<T> all;
  Strided() = default;
  RB_ALWAYS Strided(int64_t begin, int64_t end, int64_t) : all(begin, end) {}
  RB_ALWAYS Vec<T> load(const T* p) const { return all.load(p); }
};
template <class T>
struct Strided<T, 0> {
  int begin, end;
  int64_t step;
  Strided() = default;
  RB_ALWAYS Strided(int64_t first, int64_t last, int64_t stride)
      : begin(clip_lane<T>(first)), end(clip_lane<T>(last)), step(stride) {}
  RB_ALWAYS Vec<T> load(const T* p) const {
    Vec<T> v{};
    for (int i = begin; i < end; ++i) v[i] = p[i * step];
    return v;
  }
};

template <class T>
RB_ALWAYS void copy_run(const T* from, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store_vector(to + i, load_vector(from + i));
  if (i < n)
    store_part(to + i, load_part(from + i, static_cast<int>(n - i)), static_cast<int>(n - i));
}
template <class T>
RB_ALWAYS void clear_run(T* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store_vector(to + i, Vec<T>{});
  if (i < n) store_part(to + i, Vec<T>{}, static_cast<int>(n - i));
}
template <class T>
RB_ALWAYS T horizontal(Vec<T> v) {
  T sum = v[0];
  for (int i = 1; i < kLanes<T>; ++i) sum += v[i];
  return sum;
}

}  // namespace

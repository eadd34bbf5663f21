// Vectors of the widest kind that the level has, and turning blocks of them by 90 degrees. Internal
// linkage: for simd_*.cpp only (level.h).
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/level.h"

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Under-aligned, so that any element may be the first. (The vector type must not pass as a template
// argument: that drops its alignment.)
template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
RB_ALWAYS typename VectorOf<T>::type load_vector(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T>::type*>(p);
}
template <class T>
RB_ALWAYS void store_vector(T* p, typename VectorOf<T>::type v) {
  *reinterpret_cast<typename VectorOf<T>::type*>(p) = v;
}
// A register of elements as doubles.
RB_ALWAYS VectorOf<double>::type load_doubles(const double* p) { return load_vector(p); }
RB_ALWAYS VectorOf<double>::type load_doubles(const float* p) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm_loadu_ps(p));
#else
  return VectorOf<double>::type{p[0], p[1]};
#endif
}
// Past the caches (stream.h): p is aligned to the vector.
template <class T>
RB_ALWAYS void stream_vector(T* p, typename VectorOf<T>::type v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#elif defined(__x86_64__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), reinterpret_cast<__m128i>(v));
#else
  store_vector(p, v);
#endif
}

#if defined(__AVX512F__)
// The first n lanes; the others are 0, and their memory is not touched.
RB_ALWAYS VectorOf<float>::type load_part(const float* p, int n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
RB_ALWAYS VectorOf<double>::type load_part(const double* p, int n) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
}
RB_ALWAYS void store_part(float* p, VectorOf<float>::type v, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
RB_ALWAYS void store_part(double* p, VectorOf<double>::type v, int n) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), v);
}
#else
template <class T>
RB_ALWAYS typename VectorOf<T>::type load_part(const T* p, int n) {
  typename VectorOf<T>::type v = {};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
template <class T>
RB_ALWAYS void store_part(T* p, typename VectorOf<T>::type v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// Blocks of 16-byte vectors turned by 90 degrees.
typedef float F4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double D2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef int64_t I2 __attribute__((vector_size(16)));

RB_ALWAYS void transpose_block(const float* from, int64_t stride, float* to, int64_t to_stride) {
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
RB_ALWAYS void transpose_block(const double* from, int64_t stride, double* to, int64_t to_stride) {
  const D2 r0 = *reinterpret_cast<const D2*>(from),
           r1 = *reinterpret_cast<const D2*>(from + stride);
  *reinterpret_cast<D2*>(to) = __builtin_shuffle(r0, r1, I2{0, 2});
  *reinterpret_cast<D2*>(to + to_stride) = __builtin_shuffle(r0, r1, I2{1, 3});
}

#if defined(__AVX512F__)
// 16 rows of 16 four-byte elements turned: 16-byte pieces are gathered so that each lane of a
// register belongs to another four rows, then turned within lanes. Rows from `rows` on (4, 8, 12 or
// 16) are not read.
RB_ALWAYS void transpose16(const void* from, int64_t stride_bytes, int rows, __m512i out[16]) {
  const char* base = static_cast<const char*>(from);
  auto piece = [&](int row, int column) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(base + row * stride_bytes + column * 16));
  };
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    __m512i r[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      r[j] = _mm512_castsi128_si512(piece(j, c));
      if (rows > 4) r[j] = _mm512_inserti32x4(r[j], piece(j + 4, c), 1);
      if (rows > 8) r[j] = _mm512_inserti32x4(r[j], piece(j + 8, c), 2);
      if (rows > 12) r[j] = _mm512_inserti32x4(r[j], piece(j + 12, c), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]),
                  d = _mm512_unpacklo_epi32(r[2], r[3]), e = _mm512_unpackhi_epi32(r[2], r[3]);
    out[4 * c] = _mm512_unpacklo_epi64(a, d);
    out[4 * c + 1] = _mm512_unpackhi_epi64(a, d);
    out[4 * c + 2] = _mm512_unpacklo_epi64(b, e);
    out[4 * c + 3] = _mm512_unpackhi_epi64(b, e);
  }
}
#endif

}  // namespace

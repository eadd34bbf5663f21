// Vectors of the level a file is compiled for, for the convolution kernels: whole and partial
// loads and stores. Everything here is internal to the file that includes it (level.h).
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

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
using Vec = typename VectorOf<T>::type;
template <class T>
constexpr int kLanes = kVectorBytes / sizeof(T);

#define RB_CONV_INLINE inline __attribute__((always_inline))

template <class T>
RB_CONV_INLINE Vec<T> load(const T* p) {
  return *reinterpret_cast<const Vec<T>*>(p);
}
template <class T>
RB_CONV_INLINE void store(T* p, Vec<T> v) {
  *reinterpret_cast<Vec<T>*>(p) = v;
}
// The first n lanes; loads give 0 in the others.
#if defined(__AVX512F__)
RB_CONV_INLINE Vec<float> load_part(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
RB_CONV_INLINE Vec<double> load_part(const double* p, int64_t n) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
}
RB_CONV_INLINE void store_part(float* p, int64_t n, Vec<float> v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
RB_CONV_INLINE void store_part(double* p, int64_t n, Vec<double> v) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), v);
}
#else
template <class T>
RB_CONV_INLINE Vec<T> load_part(const T* p, int64_t n) {
  Vec<T> v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
template <class T>
RB_CONV_INLINE void store_part(T* p, int64_t n, Vec<T> v) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}
#endif

template <class T>
RB_CONV_INLINE void copy_run(const T* from, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(to + i, load(from + i));
  if (i < n) store_part(to + i, n - i, load_part(from + i, n - i));
}
template <class T>
RB_CONV_INLINE void clear_run(T* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(to + i, Vec<T>{});
  if (i < n) store_part(to + i, n - i, Vec<T>{});
}
template <class T>
RB_CONV_INLINE T horizontal(Vec<T> v) {
  T sum = v[0];
  for (int i = 1; i < kLanes<T>; ++i) sum += v[i];
  return sum;
}

}  // namespace

// Transforms of a few complex numbers in registers, and transposes of them. Internal linkage: for
// lines_simd.cpp.
#pragma once
#include <utility>

#include "common/vector.h"

namespace {

/// One complex number per lane.
template <class T>
struct Number {
  typename VectorOf<T>::type re, im;
};

template <class T>
RB_ALWAYS Number<T> operator+(const Number<T>& a, const Number<T>& b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
RB_ALWAYS Number<T> operator-(const Number<T>& a, const Number<T>& b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
RB_ALWAYS Number<T> times(const Number<T>& a, T re, T im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
template <class T>
RB_ALWAYS Number<T> times(const Number<T>& a, const Number<T>& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
RB_ALWAYS Number<T> times_minus_i(const Number<T>& a) {
  return {a.im, -a.re};
}

template <class T>
RB_ALWAYS void butterfly2(Number<T>& a, Number<T>& b) {
  const Number<T> sum = a + b;
  b = a - b;
  a = sum;
}

template <class T>
RB_ALWAYS void butterfly4(Number<T>& a, Number<T>& b, Number<T>& c, Number<T>& d) {
  const Number<T> s = a + c, t = a - c, u = b + d, v = times_minus_i(b - d);
  a = s + u;
  b = t + v;
  c = s - u;
  d = t - v;
}

/// a[k] = sum of a[j] exp(-2 pi i j k / R), for powers of two.
template <int R, class T>
RB_ALWAYS void butterfly(Number<T>* a) {
  if constexpr (R == 2) {
    butterfly2(a[0], a[1]);
  } else if constexpr (R == 4) {
    butterfly4(a[0], a[1], a[2], a[3]);
  } else if constexpr (R == 8) {
    constexpr T h = static_cast<T>(0.70710678118654752440L);
    butterfly4(a[0], a[2], a[4], a[6]);
    butterfly4(a[1], a[3], a[5], a[7]);
    const Number<T> x = a[3], y = a[7];
    a[3] = {(x.re + x.im) * h, (x.im - x.re) * h};
    a[5] = times_minus_i(a[5]);
    a[7] = {(y.im - y.re) * h, -(y.re + y.im) * h};
    const Number<T> e0 = a[0], e1 = a[2], e2 = a[4], e3 = a[6];
    const Number<T> o0 = a[1], o1 = a[3], o2 = a[5], o3 = a[7];
    a[0] = e0 + o0;
    a[1] = e1 + o1;
    a[2] = e2 + o2;
    a[3] = e3 + o3;
    a[4] = e0 - o0;
    a[5] = e1 - o1;
    a[6] = e2 - o2;
    a[7] = e3 - o3;
  } else {
    static_assert(R == 16);
    constexpr T c = static_cast<T>(0.92387953251128675613L),
                s = static_cast<T>(0.38268343236508977173L),
                h = static_cast<T>(0.70710678118654752440L);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) butterfly4(a[j], a[4 + j], a[8 + j], a[12 + j]);
    a[5] = times(a[5], c, -s);
    a[6] = times(a[6], h, -h);
    a[7] = times(a[7], s, -c);
    a[9] = times(a[9], h, -h);
    a[10] = times_minus_i(a[10]);
    a[11] = times(a[11], -h, -h);
    a[13] = times(a[13], s, -c);
    a[14] = times(a[14], -h, -h);
    a[15] = times(a[15], -c, s);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) butterfly4(a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3]);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 4
      for (int j = k + 1; j < 4; ++j) std::swap(a[4 * k + j], a[4 * j + k]);
    }
  }
}

/// The same for odd R, by sums and differences of conjugate roots; `roots` holds exp(-2 pi i k /
/// R).
template <class T>
RB_ALWAYS void odd_butterfly(Number<T>* a, int R, const T* roots) {
  Number<T> sum[16], difference[16];
  const int half = R / 2;
  const Number<T> first = a[0];
  for (int j = 1; j <= half; ++j) {
    sum[j] = a[j] + a[R - j];
    difference[j] = a[j] - a[R - j];
    a[0] = a[0] + sum[j];
  }
  for (int k = 1; k <= half; ++k) {
    Number<T> even = first, odd = {};
    int at = 0;
    for (int j = 1; j <= half; ++j) {
      at += k;
      if (at >= R) at -= R;
      const T c = roots[2 * at], s = roots[2 * at + 1];
      even.re += sum[j].re * c;
      even.im += sum[j].im * c;
      odd.re += difference[j].re * s;
      odd.im += difference[j].im * s;
    }
    a[k] = {even.re - odd.im, even.im + odd.re};
    a[R - k] = {even.re + odd.im, even.im - odd.re};
  }
}

// ---- shuffles

template <class T, size_t... I>
RB_ALWAYS typename VectorOf<T>::type even_lanes(typename VectorOf<T>::type a,
                                                typename VectorOf<T>::type b,
                                                std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...);
}
template <class T, size_t... I>
RB_ALWAYS typename VectorOf<T>::type odd_lanes(typename VectorOf<T>::type a,
                                               typename VectorOf<T>::type b,
                                               std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (2 * I + 1)...);
}
template <class T, size_t Start, size_t... I>
RB_ALWAYS typename VectorOf<T>::type woven_lanes(typename VectorOf<T>::type a,
                                                 typename VectorOf<T>::type b,
                                                 std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (Start + I / 2 + (I & 1) * kLanes<T>)...);
}

/// Loads adjacent complex numbers, one per lane.
template <class T>
RB_ALWAYS Number<T> load_pairs(const T* p) {
  constexpr auto all = std::make_index_sequence<kLanes<T>>();
  const auto a = load_vector(p), b = load_vector(p + kLanes<T>);
  return {even_lanes<T>(a, b, all), odd_lanes<T>(a, b, all)};
}
template <class T>
RB_ALWAYS void store_pairs(T* p, const Number<T>& x) {
  constexpr auto all = std::make_index_sequence<kLanes<T>>();
  store_vector(p, woven_lanes<T, 0>(x.re, x.im, all));
  store_vector(p + kLanes<T>, woven_lanes<T, kLanes<T> / 2>(x.re, x.im, all));
}

template <class T, size_t... I>
RB_ALWAYS Number<T> reversed_lanes(const Number<T>& x, std::index_sequence<I...>) {
  return {__builtin_shufflevector(x.re, x.re, (kLanes<T> - 1 - I)...),
          __builtin_shufflevector(x.im, x.im, (kLanes<T> - 1 - I)...)};
}
template <class T>
RB_ALWAYS Number<T> reversed(const Number<T>& x) {
  return reversed_lanes(x, std::make_index_sequence<kLanes<T>>());
}

/// Loads `count` of them, at least 1; the other lanes are 0.
template <class T>
RB_ALWAYS Number<T> load_some_pairs(const T* p, int count) {
  constexpr auto all = std::make_index_sequence<kLanes<T>>();
  const int first = 2 * count < kLanes<T> ? 2 * count : kLanes<T>;
  const auto a = load_part(p, first), b = load_part(p + first, 2 * count - first);
  return {even_lanes<T>(a, b, all), odd_lanes<T>(a, b, all)};
}
template <class T>
RB_ALWAYS void store_some_pairs(T* p, const Number<T>& x, int count) {
  constexpr auto all = std::make_index_sequence<kLanes<T>>();
  const int first = 2 * count < kLanes<T> ? 2 * count : kLanes<T>;
  store_part(p, woven_lanes<T, 0>(x.re, x.im, all), first);
  store_part(p + first, woven_lanes<T, kLanes<T> / 2>(x.re, x.im, all), 2 * count - first);
}

template <class T, size_t Half, size_t... I>
RB_ALWAYS void exchange(typename VectorOf<T>::type& a, typename VectorOf<T>::type& b,
                        std::index_sequence<I...>) {
  constexpr size_t n = kLanes<T>;
  const auto first = __builtin_shufflevector(a, b, (I & Half ? n + I - Half : I)...);
  b = __builtin_shufflevector(a, b, (I & Half ? n + I : I + Half)...);
  a = first;
}
template <class T, size_t Half>
RB_ALWAYS void transpose_stage(Number<T>* rows) {
  if constexpr (Half > 0) {
    constexpr auto all = std::make_index_sequence<kLanes<T>>();
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes<T>; ++i) {
      if (i & Half) continue;
      exchange<T, Half>(rows[i].re, rows[i + Half].re, all);
      exchange<T, Half>(rows[i].im, rows[i + Half].im, all);
    }
    transpose_stage<T, Half / 2>(rows);
  }
}
/// Transposes as many rows as there are lanes.
template <class T>
RB_ALWAYS void transpose(Number<T>* rows) {
  transpose_stage<T, kLanes<T> / 2>(rows);
}

}  // namespace

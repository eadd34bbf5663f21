// Pack<T, K>: K vector registers of T that act as one number. The functions of vecmath.h are
// written once for float, double and packs of them; several registers hide the latency of long
// polynomials. Operations that C++ lacks (minimum, rounding, multiply-add, widening) have overloads
// for numbers and for packs with the same results. Internal linkage, as in scalar.h.
#pragma once
#include <cstdint>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#if defined(__FMA__) || defined(__aarch64__)
#define RB_HAS_FMA 1
#endif
#define RB_INLINE static inline __attribute__((always_inline))
#define RB_FRIEND friend inline __attribute__((always_inline))
#define RB_MEMBER inline __attribute__((always_inline))
#define RB_LAMBDA __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int kRegister = 64;
// The masked forms of the 512-bit intrinsics: GCC 12 warns about the result that the others leave
// undefined.
constexpr __mmask16 kAllFloats = 0xffff;
constexpr __mmask8 kAll = 0xff;
#elif defined(__AVX2__)
constexpr int kRegister = 32;
#else
constexpr int kRegister = 16;
#endif

template <class T>
struct RegisterOf;
#define RB_REGISTER(T)                                                               \
  template <>                                                                        \
  struct RegisterOf<T> {                                                             \
    typedef T type __attribute__((vector_size(kRegister)));                          \
    typedef T memory __attribute__((vector_size(kRegister), aligned(1), may_alias)); \
  };
RB_REGISTER(float)
RB_REGISTER(double)
RB_REGISTER(int32_t)
RB_REGISTER(uint32_t)
RB_REGISTER(int64_t)
RB_REGISTER(uint64_t)

template <class T>
using SignedOf = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
template <class T>
using UnsignedOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

#define RB_PACK_BINARY(op) \
  RB_FRIEND Pack operator op(const Pack& x, const Pack& y) { return {x.lo op y.lo, x.hi op y.hi}; }
#define RB_PACK_COMPARE(op) \
  RB_FRIEND Mask operator op(const Pack& x, const Pack& y) { return {x.lo op y.lo, x.hi op y.hi}; }
template <class T, int K>
struct Pack {
  using Half = Pack<T, K / 2>;
  using Mask = Pack<SignedOf<T>, K>;
  Half lo, hi;
  Pack() = default;
  RB_MEMBER Pack(T c) : lo(c), hi(c) {}
  RB_MEMBER Pack(const Half& a, const Half& b) : lo(a), hi(b) {}
  RB_FRIEND Pack operator-(const Pack& x) { return {-x.lo, -x.hi}; }
  RB_FRIEND Pack operator<<(const Pack& x, int n) { return {x.lo << n, x.hi << n}; }
  RB_FRIEND Pack operator>>(const Pack& x, int n) { return {x.lo >> n, x.hi >> n}; }
  RB_PACK_BINARY(+)
  RB_PACK_BINARY(-)
  RB_PACK_BINARY(*)
  RB_PACK_BINARY(/)
  RB_PACK_BINARY(&)
  RB_PACK_BINARY(|)
  RB_PACK_BINARY(^)
  RB_PACK_COMPARE(<)
  RB_PACK_COMPARE(>)
  RB_PACK_COMPARE(<=)
  RB_PACK_COMPARE(>=)
  RB_PACK_COMPARE(==)
  RB_PACK_COMPARE(!=)
};
#undef RB_PACK_BINARY
#undef RB_PACK_COMPARE

#define RB_PACK_BINARY(op) \
  RB_FRIEND Pack operator op(const Pack& x, const Pack& y) { return Pack(x.v op y.v); }
#define RB_PACK_COMPARE(op) \
  RB_FRIEND Mask operator op(const Pack& x, const Pack& y) { return Mask(x.v op y.v); }
template <class T>
struct Pack<T, 1> {
  using R = typename RegisterOf<T>::type;
  using Mask = Pack<SignedOf<T>, 1>;
  R v;
  Pack() = default;
  RB_MEMBER Pack(T c) : v(c - R{}) {}  // not R{} + c: that loses the sign of zero
  RB_MEMBER explicit Pack(const R& r) : v(r) {}
  RB_FRIEND Pack operator-(const Pack& x) { return Pack(-x.v); }
  RB_FRIEND Pack operator<<(const Pack& x, int n) { return Pack(x.v << n); }
  RB_FRIEND Pack operator>>(const Pack& x, int n) { return Pack(x.v >> n); }
  RB_PACK_BINARY(+)
  RB_PACK_BINARY(-)
  RB_PACK_BINARY(*)
  RB_PACK_BINARY(/)
  RB_PACK_BINARY(&)
  RB_PACK_BINARY(|)
  RB_PACK_BINARY(^)
  RB_PACK_COMPARE(<)
  RB_PACK_COMPARE(>)
  RB_PACK_COMPARE(<=)
  RB_PACK_COMPARE(>=)
  RB_PACK_COMPARE(==)
  RB_PACK_COMPARE(!=)
};
#undef RB_PACK_BINARY
#undef RB_PACK_COMPARE

template <class V>
struct LaneOf {
  using type = V;
};
template <class T, int K>
struct LaneOf<Pack<T, K>> {
  using type = T;
};
/// The type of one element of V: V itself for numbers.
template <class V>
using lane_t = typename LaneOf<V>::type;
template <class V>
constexpr bool is_pack = !std::is_same<V, lane_t<V>>::value;
template <class V, class T>
struct WithLane {
  using type = T;
};
template <class U, int K, class T>
struct WithLane<Pack<U, K>, T> {
  using type = Pack<T, K* static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(U))>;
};
/// As many elements as V has, of type T.
template <class V, class T>
using with_lane = typename WithLane<V, T>::type;
template <class V>
constexpr int kLanesOf = static_cast<int>(sizeof(V) / sizeof(lane_t<V>));

template <class V>
RB_INLINE V pack_load(const lane_t<V>* p) {
  if constexpr (!is_pack<V>) {
    return *p;
  } else if constexpr (sizeof(V) == kRegister) {
    return V(static_cast<typename V::R>(
        *reinterpret_cast<const typename RegisterOf<lane_t<V>>::memory*>(p)));
  } else {
    using H = typename V::Half;
    return V(pack_load<H>(p), pack_load<H>(p + kLanesOf<H>));
  }
}
template <class V>
RB_INLINE void pack_store(lane_t<V>* p, const V& x) {
  if constexpr (!is_pack<V>) {
    *p = x;
  } else if constexpr (sizeof(V) == kRegister) {
    *reinterpret_cast<typename RegisterOf<lane_t<V>>::memory*>(p) = x.v;
  } else {
    pack_store(p, x.lo);
    pack_store(p + kLanesOf<typename V::Half>, x.hi);
  }
}

// ---- the same bits, or the same value, as another type

template <class To, class V>
RB_INLINE with_lane<V, To> vm_cast(const V& x) {
  static_assert(sizeof(To) == sizeof(lane_t<V>), "as many bits");
  if constexpr (!is_pack<V>) {
    return __builtin_bit_cast(To, x);
  } else if constexpr (sizeof(V) == kRegister) {
    using P = with_lane<V, To>;
    return P(reinterpret_cast<typename P::R>(x.v));
  } else {
    return {vm_cast<To>(x.lo), vm_cast<To>(x.hi)};
  }
}
/// int32 to float.
template <class V>
RB_INLINE with_lane<V, float> vm_to_float(const V& x) {
  if constexpr (!is_pack<V>) {
    return static_cast<float>(x);
  } else if constexpr (sizeof(V) == kRegister) {
    using P = with_lane<V, float>;
    return P(__builtin_convertvector(x.v, typename P::R));
  } else {
    return {vm_to_float(x.lo), vm_to_float(x.hi)};
  }
}
/// float to double: twice the registers.
template <class V>
RB_INLINE with_lane<V, double> vm_widen(const V& x) {
  if constexpr (!is_pack<V>) {
    return static_cast<double>(x);
  } else if constexpr (sizeof(V) == kRegister) {
    using D = Pack<double, 1>;
#if defined(__AVX512DQ__)
    return {D(_mm512_maskz_cvtps_pd(kAll, _mm512_maskz_extractf32x8_ps(kAll, x.v, 0))),
            D(_mm512_maskz_cvtps_pd(kAll, _mm512_maskz_extractf32x8_ps(kAll, x.v, 1)))};
#elif defined(__AVX2__)
    return {D(_mm256_cvtps_pd(_mm256_castps256_ps128(x.v))),
            D(_mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1)))};
#elif defined(__x86_64__)
    return {D(_mm_cvtps_pd(x.v)), D(_mm_cvtps_pd(_mm_movehl_ps(x.v, x.v)))};
#else
    return {D(D::R{x.v[0], x.v[1]}), D(D::R{x.v[2], x.v[3]})};
#endif
  } else {
    return {vm_widen(x.lo), vm_widen(x.hi)};
  }
}
/// double to float.
template <class V>
RB_INLINE with_lane<V, float> vm_narrow(const V& x) {
  if constexpr (!is_pack<V>) {
    return static_cast<float>(x);
  } else if constexpr (sizeof(V) == 2 * kRegister) {
    using F = Pack<float, 1>;
#if defined(__AVX512DQ__)
    return F(_mm512_maskz_insertf32x8(kAllFloats,
                                      _mm512_castps256_ps512(_mm512_maskz_cvtpd_ps(kAll, x.lo.v)),
                                      _mm512_maskz_cvtpd_ps(kAll, x.hi.v), 1));
#elif defined(__AVX2__)
    return F(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.lo.v)),
                                  _mm256_cvtpd_ps(x.hi.v), 1));
#elif defined(__x86_64__)
    return F(_mm_movelh_ps(_mm_cvtpd_ps(x.lo.v), _mm_cvtpd_ps(x.hi.v)));
#else
    return F(F::R{static_cast<float>(x.lo.v[0]), static_cast<float>(x.lo.v[1]),
                  static_cast<float>(x.hi.v[0]), static_cast<float>(x.hi.v[1])});
#endif
  } else {
    return {vm_narrow(x.lo), vm_narrow(x.hi)};
  }
}

// ---- operations by register: x86 has an instruction for each, and GCC no operator

#define RB_BY_REGISTER1(name)                      \
  template <class T, int K>                        \
  RB_INLINE Pack<T, K> name(const Pack<T, K>& x) { \
    if constexpr (K == 1)                          \
      return Pack<T, 1>(rg_##name(x.v));           \
    else                                           \
      return {name(x.lo), name(x.hi)};             \
  }
#define RB_BY_REGISTER2(name)                                           \
  template <class T, int K>                                             \
  RB_INLINE Pack<T, K> name(const Pack<T, K>& x, const Pack<T, K>& y) { \
    if constexpr (K == 1)                                               \
      return Pack<T, 1>(rg_##name(x.v, y.v));                           \
    else                                                                \
      return {name(x.lo, y.lo), name(x.hi, y.hi)};                      \
  }
using RF = RegisterOf<float>::type;
using RD = RegisterOf<double>::type;
#if defined(__AVX512DQ__)
#define RB_X86(f) _mm512_##f
#define RB_X86_FLOATS(f) _mm512_maskz_##f(kAllFloats,
#define RB_X86_DOUBLES(f) _mm512_maskz_##f(kAll,
#elif defined(__AVX2__)
#define RB_X86(f) _mm256_##f
#define RB_X86_FLOATS(f) _mm256_##f(
#define RB_X86_DOUBLES(f) _mm256_##f(
#elif defined(__x86_64__)
#define RB_X86(f) _mm_##f
#define RB_X86_FLOATS(f) _mm_##f(
#define RB_X86_DOUBLES(f) _mm_##f(
#endif
#if defined(__x86_64__)
RB_INLINE RF rg_vm_min(RF x, RF y) { return RB_X86_FLOATS(min_ps)x, y);
}
RB_INLINE RD rg_vm_min(RD x, RD y) { return RB_X86_DOUBLES(min_pd)x, y);
}
RB_INLINE RF rg_vm_max(RF x, RF y) { return RB_X86_FLOATS(max_ps)x, y);
}
RB_INLINE RD rg_vm_max(RD x, RD y) { return RB_X86_DOUBLES(max_pd)x, y);
}
RB_INLINE RF rg_vm_sqrt(RF x) { return RB_X86_FLOATS(sqrt_ps)x);
}
RB_INLINE RD rg_vm_sqrt(RD x) { return RB_X86_DOUBLES(sqrt_pd)x);
}
#else
RB_INLINE RF rg_vm_min(RF x, RF y) { return x < y ? x : y; }
RB_INLINE RD rg_vm_min(RD x, RD y) { return x < y ? x : y; }
RB_INLINE RF rg_vm_max(RF x, RF y) { return x > y ? x : y; }
RB_INLINE RD rg_vm_max(RD x, RD y) { return x > y ? x : y; }
#endif
// Of each element by itself, for levels without the instruction.
#define RB_BY_ELEMENT(name, function)                     \
  RB_INLINE RF rg_##name(RF x) {                          \
    for (int i = 0; i < 4; ++i) x[i] = function##f(x[i]); \
    return x;                                             \
  }                                                       \
  RB_INLINE RD rg_##name(RD x) {                          \
    for (int i = 0; i < 2; ++i) x[i] = function(x[i]);    \
    return x;                                             \
  }
#if !defined(__x86_64__)
RB_BY_ELEMENT(vm_sqrt, __builtin_sqrt)
#endif
#if defined(__AVX512DQ__)
#define RB_ROUND_FLOATS(x, mode) _mm512_maskz_roundscale_ps(kAllFloats, x, mode)
#define RB_ROUND_DOUBLES(x, mode) _mm512_maskz_roundscale_pd(kAll, x, mode)
#elif defined(__SSE4_1__)
#define RB_ROUND_FLOATS(x, mode) RB_X86(round_ps)(x, mode)
#define RB_ROUND_DOUBLES(x, mode) RB_X86(round_pd)(x, mode)
#endif
#if defined(RB_ROUND_FLOATS)
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
RB_INLINE RF rg_vm_rint(RF x) { return RB_ROUND_FLOATS(x, kNearest); }
RB_INLINE RD rg_vm_rint(RD x) { return RB_ROUND_DOUBLES(x, kNearest); }
RB_INLINE RF rg_vm_floor(RF x) { return RB_ROUND_FLOATS(x, kDown); }
RB_INLINE RD rg_vm_floor(RD x) { return RB_ROUND_DOUBLES(x, kDown); }
#else
RB_BY_ELEMENT(vm_rint, __builtin_rint)
RB_BY_ELEMENT(vm_floor, __builtin_floor)
#endif
#if defined(__FMA__)
RB_INLINE RF rg_vm_fma(RF x, RF y, RF z) { return RB_X86(fmadd_ps)(x, y, z); }
RB_INLINE RD rg_vm_fma(RD x, RD y, RD z) { return RB_X86(fmadd_pd)(x, y, z); }
#elif defined(__aarch64__)
RB_INLINE RF rg_vm_fma(RF x, RF y, RF z) {
  for (int i = 0; i < 4; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return z;
}
RB_INLINE RD rg_vm_fma(RD x, RD y, RD z) {
  for (int i = 0; i < 2; ++i) z[i] = __builtin_fma(x[i], y[i], z[i]);
  return z;
}
#else
RB_INLINE RF rg_vm_fma(RF x, RF y, RF z) { return x * y + z; }
RB_INLINE RD rg_vm_fma(RD x, RD y, RD z) { return x * y + z; }
#endif

/// The second where the comparison is false: a NaN in y stays.
RB_INLINE float vm_min(float x, float y) { return x < y ? x : y; }
RB_INLINE double vm_min(double x, double y) { return x < y ? x : y; }
RB_INLINE float vm_max(float x, float y) { return x > y ? x : y; }
RB_INLINE double vm_max(double x, double y) { return x > y ? x : y; }
RB_BY_REGISTER2(vm_min)
RB_BY_REGISTER2(vm_max)
RB_INLINE float vm_sqrt(float x) { return __builtin_sqrtf(x); }
RB_INLINE double vm_sqrt(double x) { return __builtin_sqrt(x); }
RB_BY_REGISTER1(vm_sqrt)
/// To the nearest integer, ties to even.
RB_INLINE float vm_rint(float x) { return __builtin_rintf(x); }
RB_INLINE double vm_rint(double x) { return __builtin_rint(x); }
RB_BY_REGISTER1(vm_rint)
RB_INLINE float vm_floor(float x) { return __builtin_floorf(x); }
RB_INLINE double vm_floor(double x) { return __builtin_floor(x); }
RB_BY_REGISTER1(vm_floor)

/// a * b + c, rounded once where the level has the instruction (v3, v4, arm64): explicit, since the
/// compiler contracts nothing by itself (docs/decisions/0008).
#if defined(RB_HAS_FMA)
RB_INLINE float vm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
RB_INLINE double vm_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
RB_INLINE float vm_fma(float a, float b, float c) { return a * b + c; }
RB_INLINE double vm_fma(double a, double b, double c) { return a * b + c; }
#endif
template <class T, int K>
RB_INLINE Pack<T, K> vm_fma(const Pack<T, K>& x, const Pack<T, K>& y, const Pack<T, K>& z) {
  if constexpr (K == 1)
    return Pack<T, 1>(rg_vm_fma(x.v, y.v, z.v));
  else
    return {vm_fma(x.lo, y.lo, z.lo), vm_fma(x.hi, y.hi, z.hi)};
}

#if defined(__AVX512DQ__)
// x = vm_mantissa(x) * 2^(...), the mantissa in [3/4, 3/2); vm_scalef(x, n) = x * 2^n.
RB_INLINE RF rg_vm_mantissa(RF x) {
  return _mm512_maskz_getmant_ps(kAllFloats, x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
}
RB_INLINE RF rg_vm_exponent(RF x) { return _mm512_maskz_getexp_ps(kAllFloats, x); }
RB_INLINE RF rg_vm_scalef(RF x, RF n) { return _mm512_maskz_scalef_ps(kAllFloats, x, n); }
RB_INLINE RD rg_vm_scalef(RD x, RD n) { return _mm512_maskz_scalef_pd(kAll, x, n); }
RB_BY_REGISTER1(vm_mantissa)
RB_BY_REGISTER1(vm_exponent)
RB_BY_REGISTER2(vm_scalef)
#endif

template <class V>
RB_INLINE V vm_select(bool mask, V x, V y) {
  return mask ? x : y;
}
template <class T, int K>
RB_INLINE Pack<T, K> vm_select(const Pack<SignedOf<T>, K>& mask, const Pack<T, K>& x,
                               const Pack<T, K>& y) {
  if constexpr (K == 1)
    return Pack<T, 1>(mask.v ? x.v : y.v);
  else
    return {vm_select(mask.lo, x.lo, y.lo), vm_select(mask.hi, x.hi, y.hi)};
}

/// Whether any lane of a mask is set.
template <class V>
RB_INLINE bool vm_any(const V& mask) {
  if constexpr (!is_pack<V>) {
    return mask;
  } else if constexpr (sizeof(V) == kRegister) {
#if defined(__AVX512DQ__)
    const __m512i bits = reinterpret_cast<__m512i>(mask.v);
    return sizeof(lane_t<V>) == 4 ? _mm512_movepi32_mask(bits) != 0
                                  : _mm512_movepi64_mask(bits) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask.v)) != 0;
#elif defined(__x86_64__)
    return _mm_movemask_epi8(reinterpret_cast<__m128i>(mask.v)) != 0;
#else
    lane_t<V> lanes[kLanesOf<V>], any = 0;
    pack_store(lanes, mask);
    for (int i = 0; i < kLanesOf<V>; ++i) any |= lanes[i];
    return any != 0;
#endif
  } else {
    return vm_any(mask.lo | mask.hi);
  }
}

}  // namespace

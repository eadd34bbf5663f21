// Remainders and rounded quotients of floating-point numbers. Numbers and packs give the same bits.
#pragma once
#include "common/vecmath.h"

namespace {

RB_INLINE float m_fmod(float x, float y) { return __builtin_fmodf(x, y); }
RB_INLINE double m_fmod(double x, double y) { return __builtin_fmod(x, y); }

template <class V>
RB_INLINE V vm_fmod_by_lane(const V& x, const V& y) {
  alignas(64) lane_t<V> dividend[kLanesOf<V>], divisor[kLanesOf<V>];
  pack_store(dividend, x);
  pack_store(divisor, y);
  for (int i = 0; i < kLanesOf<V>; ++i) dividend[i] = m_fmod(dividend[i], divisor[i]);
  return pack_load<V>(dividend);
}

// The remainder is exactly representable, so every correct method gives the same bits. Below
// 2^(digits - 1) the rounded quotient of |x| and |y| is at most one too large, and a fused
// multiply-add computes |x| - quotient * |y| without rounding. libm computes packs with larger
// quotients, infinities or NaNs, and all packs on levels without that instruction.
template <class V>
RB_INLINE V vm_fmod(const V& x, const V& y) {
  if constexpr (!is_pack<V>) {
    return m_fmod(x, y);
  } else {
#if defined(RB_HAS_FMA)
    constexpr lane_t<V> most =
        std::is_same<lane_t<V>, float>::value ? lane_t<V>(8388608) : lane_t<V>(4503599627370496);
    const V a = vm_abs(x), b = vm_abs(y), quotient = vm_floor(a / b);
    const auto fits = (quotient < V(most)) & (b < V(vm_inf<V>));
    if (__builtin_expect(vm_any(fits == typename V::Mask(0)), 0)) return vm_fmod_by_lane(x, y);
    const V rest = vm_fma(-quotient, b, a);
    return vm_with_sign(vm_select(rest < V(0), rest + b, rest), x);
#else
    return vm_fmod_by_lane(x, y);
#endif
  }
}

// The remainder with the sign of the divisor.
template <class V>
RB_INLINE V vm_remainder(const V& x, const V& y) {
  const V rest = vm_fmod(x, y);
  return vm_select((rest != V(0)) & ((y < V(0)) ^ (rest < V(0))), rest + y, rest);
}

template <class V>
RB_INLINE V vm_div_floor(const V& x, const V& y) {
  const V zero(0), one(1), rest = vm_fmod(x, y);
  V quotient = (x - rest) / y;  // near an integer
  quotient = vm_select((rest != zero) & ((y < zero) ^ (rest < zero)), quotient - one, quotient);
  V floored = vm_floor(quotient);
  floored = vm_select(quotient - floored > V(0.5), floored + one, floored);
  floored = vm_select(quotient == zero, vm_copysign(zero, x / y), floored);
  return vm_select(y == zero, x / y, floored);
}

}  // namespace

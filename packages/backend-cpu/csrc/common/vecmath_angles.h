// tan, the inverse trigonometric functions, sinh and cosh, for float and double from one text;
// their polynomials come from tools/minimax.py. Bounds in ulp, with hardware multiply-add and
// without (tests/test_native_vecmath.py checks them): tan 1.8, atan 1.4, atan2 1.8, asin 1.3,
// acos 1.3, sinh 1.8, cosh 1.8. The most found in about a million arguments of each, even ones and
// ones of all magnitudes, beside long double: 1.76, 1.3, 1.17, 1.17, 1.61, 1.71.
#pragma once
#include "common/vecmath64.h"

namespace {

// g(x) = x + x^3 P(x^2): P of the odd functions tan, atan, asin and sinh.
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_tan_tail(const V& z) {
  return vm_poly(z, 0.00437249104f, 9.86043669e-5f, 0.0108272173f, 0.0212862696f, 0.0540589057f,
                 0.133326754f, 0.333333492f);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_tan_tail(const V& z) {
  return vm_poly(z, 2.0849226830059408e-5, -4.4817942396154082e-5, 8.9343117120825233e-5,
                 -2.6266424412275183e-5, 0.00013643973363175617, 0.00022242203891060662,
                 0.00059505015487107459, 0.0014547615156082772, 0.0035922884786144171,
                 0.0088632192329355271, 0.021869489603929662, 0.053968253926890745,
                 0.13333333333414121, 0.33333333333332782);
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_atan_tail(const V& z) {
  return vm_poly(z, -0.00178222824f, 0.0108665684f, -0.0310939439f, 0.0578791462f, -0.0839921683f,
                 0.109508626f, -0.142640144f, 0.199985296f, -0.333332986f);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_atan_tail(const V& z) {
  return vm_poly(z, 1.3267224109775695e-5, -0.00015255580290336526, 0.00083300683019978908,
                 -0.0028892430882774631, 0.0072039293315604418, -0.013909525145357213,
                 0.021992615194524917, -0.029908658498125244, 0.036643951767933211,
                 -0.042192311958054583, 0.047223251041983674, -0.052535151622939258,
                 0.058805263879576075, -0.066664037751043764, 0.076922798103154055,
                 -0.090909070020402105, 0.11111111007116893, -0.14285714282584636,
                 0.19999999999951751, -0.33333333333333071);
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_asin_tail(const V& z) {
  return vm_poly(z, 0.0421593674f, 0.0241843946f, 0.0454691835f, 0.0749530941f, 0.166667521f);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_asin_tail(const V& z) {
  return vm_poly(z, 0.031915068991920995, -0.016228171399517842, 0.019530653656880222,
                 0.0065271437473038516, 0.012169393933095364, 0.013885209309436345,
                 0.017359707236558688, 0.022371757899030238, 0.03038195914271041,
                 0.044642856828203868, 0.075000000003371467, 0.16666666666665408);
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_sinh_tail(const V& z) {
  return vm_poly(z, 0.000199741189f, 0.00833317544f, 0.166666672f);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_sinh_tail(const V& z) {
  return vm_poly(z, 1.7593979758431436e-10, 2.5046735179601667e-8, 2.7557326272359364e-6,
                 0.00019841269837066143, 0.0083333333333344278, 0.16666666666666666);
}
// cosh(x) = 1 + x^2 / 2 + x^4 P(x^2)
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_cosh_tail(const V& z) {
  return vm_poly(z, 0.00139330653f, 0.0416664854f);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_cosh_tail(const V& z) {
  return vm_poly(z, 2.0921770478162167e-9, 2.755725181871414e-7, 2.480158734920252e-5,
                 0.0013888888888873283, 0.041666666666666685);
}

// pi / 2 and what its rounding lost.
template <class V>
constexpr lane_t<V> kRightAngle = static_cast<lane_t<V>>(1.5707963267948966);
template <class V>
constexpr lane_t<V> kRightAngleLow =
    std::is_same<lane_t<V>, float>::value ? static_cast<lane_t<V>>(-4.37113883e-08)
                                          : static_cast<lane_t<V>>(6.123233995736766e-17);

// For |x| < kTrigLimit, as sin and cos.
template <class V>
RB_INLINE V vm_tan(const V& x) {
  using U = with_lane<V, UnsignedOf<lane_t<V>>>;
  Turn<V> turn = vm_reduce_turn(x);
  V r = turn.r, z = r * r;
  V t = r + vm_fma(r * z, vm_tan_tail(z), vm_fma(turn.low, z, turn.low));
  V y = vm_select((turn.quarter & U(1u)) != U(0u), V(-1) / t, t);
  return vm_select(z == V(0), x, y);
}

// atan(x) = pi / 2 - atan(1 / x) beyond 1.
template <class V>
RB_INLINE V vm_atan(const V& x) {
  V a = vm_abs(x);
  auto far = a > V(1);
  V t = vm_select(far, V(1) / a, a), z = t * t;
  V q = t * z * vm_atan_tail(z);
  V y = vm_select(far, (V(kRightAngle<V>) - t) - (q - V(kRightAngleLow<V>)), t + q);
  return vm_with_sign(y, x);
}

// The angle of the point (x, y): atan of the quotient of the smaller and the larger coordinate,
// added to or subtracted from 0, pi / 2 or pi.
template <class V>
RB_INLINE V vm_atan2(const V& y, const V& x) {
  using U = with_lane<V, UnsignedOf<lane_t<V>>>;
  const V zero(0), inf(vm_inf<V>), right(kRightAngle<V>), right_low(kRightAngleLow<V>);
  V a = vm_abs(x), b = vm_abs(y);
  auto steep = b > a, left = vm_sign(x) != U(0u);
  V low = vm_select(steep, a, b), high = vm_select(steep, b, a);
  V t = vm_select(high == zero, zero, vm_select(low == inf, V(1), low / high)), z = t * t;
  V q = t * z * vm_atan_tail(z);
  V base = vm_select(steep, right, vm_select(left, right + right, zero));
  V base_low = vm_select(steep, right_low, vm_select(left, right_low + right_low, zero));
  auto back = steep ^ left;
  V angle = (base + vm_select(back, -t, t)) + (vm_select(back, -q, q) + base_low);
  return vm_select((x != x) | (y != y), x + y, vm_with_sign(angle, y));
}

// Beyond 1/2: asin(a) = pi / 2 - 2 asin(sqrt((1 - a) / 2)).
template <class V>
struct Arc {
  decltype(V() > V()) far;
  V w, q;  // asin of the reduced argument is w + q
};
template <class V>
RB_INLINE Arc<V> vm_arc(const V& a) {
  auto far = a > V(0.5);
  V z = vm_select(far, (V(1) - a) * V(0.5), a * a);
  V w = vm_select(far, vm_sqrt(z), a);
  return {far, w, w * z * vm_asin_tail(z)};
}
template <class V>
RB_INLINE V vm_asin(const V& x) {
  Arc<V> c = vm_arc(vm_abs(x));
  V w = c.w + c.w, h = V(kRightAngle<V>) - w, lost = (V(kRightAngle<V>) - h) - w;
  V far = h - ((c.q + c.q - V(kRightAngleLow<V>)) - lost);
  return vm_with_sign(vm_select(c.far, far, c.w + c.q), x);
}
template <class V>
RB_INLINE V vm_acos(const V& x) {
  constexpr lane_t<V> half_turn = 2 * kRightAngle<V>, half_turn_low = 2 * kRightAngleLow<V>;
  Arc<V> c = vm_arc(vm_abs(x));
  V w = c.w + c.w, q = c.q + c.q;
  V far = vm_select(x < V(0), (V(half_turn) - w) - (q - V(half_turn_low)), w + q);
  V near = (V(kRightAngle<V>) - x) - (vm_copysign(c.q, x) - V(kRightAngleLow<V>));
  return vm_select(c.far, far, near);
}

// x = n log(2) + r: sinh(x) = S cosh(r) + C sinh(r) and cosh(x) = C cosh(r) + S sinh(r), with S and
// C the sinh and cosh of n log(2), here halves of them: the largest results would not fit else.
template <class V>
struct Hyperbolic {
  V s, c, r, sinh, cosh;  // sinh(r) - r and cosh(r) - 1
};
template <class V>
RB_INLINE Hyperbolic<V> vm_hyperbolic(const V& a) {
  constexpr bool single = std::is_same<lane_t<V>, float>::value;
  constexpr int bias = single ? 125 : 1021, digits = single ? 23 : 52;
  constexpr lane_t<V> round = static_cast<lane_t<V>>(single ? double{kRound} : kRound64) + bias;
  Reduced<V> x = vm_reduce_exp<bias>(vm_min(V(static_cast<lane_t<V>>(single ? 89.5 : 710.5)), a));
  V grown = vm_cast<lane_t<V>>(x.bits << digits);  // 2^(n - 2)
  V shrunk = vm_cast<lane_t<V>>(vm_bits(V(round) - vm_min(V(60), x.n)) << digits);
  V z = x.r * x.r;
  return {grown - shrunk, grown + shrunk, x.r, vm_fma(x.r * z, vm_sinh_tail(z), x.low),
          z * vm_fma(z, vm_cosh_tail(z), V(0.5))};
}
template <class V>
RB_INLINE V vm_sinh(const V& x) {
  V a = vm_abs(x);
  Hyperbolic<V> h = vm_hyperbolic(a);
  V y = vm_fma(h.c, h.r, h.s) + vm_fma(h.c, h.sinh, h.s * h.cosh);
  return vm_with_sign(vm_select(a < V(static_cast<lane_t<V>>(1e-10)), a, y + y), x);
}
template <class V>
RB_INLINE V vm_cosh(const V& x) {
  Hyperbolic<V> h = vm_hyperbolic(vm_abs(x));
  V y = h.c + (h.s * h.r + vm_fma(h.c, h.cosh, h.s * h.sinh));
  return y + y;
}

}  // namespace

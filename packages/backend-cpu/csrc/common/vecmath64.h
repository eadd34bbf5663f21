// The functions of vecmath.h for double. Bounds in ulp, with hardware multiply-add and without:
//   exp 1.1, expm1 1.5, log 1, log1p 1, tanh 2.5, sigmoid 2.5, erf 3, sin and cos 2.5, pow 1.8.
#pragma once
#include "common/vecmath.h"

namespace {

constexpr double kRound64 = 6755399441055744.0;  // 1.5 * 2^52

template <int Bias, class V, RB_DOUBLE_ONLY(V)>
RB_INLINE Reduced<V> vm_reduce_exp(const V& x) {
  V shifted = vm_fma(x, V(1.4426950408889634), V(kRound64 + Bias));
  V n = shifted - V(kRound64 + Bias);
  // log(2) in two parts; n times the first is exact.
  V exact = vm_fma(n, V(-0.69314718048553914), x);
  V r = vm_fma(n, V(-7.4406171100123968e-11), exact);
  return {r, vm_fma(n, V(-7.4406171100123968e-11), exact - r), n, vm_bits(shifted)};
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_exp_poly(const V& r) {
  return vm_poly(r, 2.5113075244660099e-08, 2.7626826191092191e-07, 2.7557232426128728e-06,
                 2.4801503339622225e-05, 0.00019841269897983459, 0.0013888888933130691,
                 0.0083333333333169245, 0.041666666666572108, 0.16666666666666682,
                 0.50000000000000056);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_expm1_core(const V& r) {
  return vm_fma(vm_exp_poly(r), r * r, r);
}
// p * 2^n in two factors; Bias 2046.
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_scale(const V& p, const Reduced<V>& x) {
#if defined(__AVX512DQ__)
  if constexpr (is_pack<V>) return vm_scalef(p, x.n);
#endif
  auto half = x.bits >> 1;
  return (p * vm_cast<double>(half << 52)) * vm_cast<double>((x.bits - half) << 52);
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_exp(const V& x) {
  Reduced<V> c = vm_reduce_exp<2046>(vm_max(V(-746.0), vm_min(V(710.0), x)));
  return vm_scale(V(1.0) + vm_expm1_core(c.r), c);
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_expm1(const V& x) {
  Reduced<V> c = vm_reduce_exp<1022>(vm_max(V(-40.0), vm_min(V(710.0), x)));
  V s = vm_cast<double>(c.bits << 52);  // 2^(n - 1)
  V tail = vm_fma(vm_exp_poly(c.r), c.r * c.r, c.low);
  V y = V(2.0) * vm_fma(s, tail, vm_fma(s, c.r, s - V(0.5)));
  return vm_select(vm_abs(x) < V(1e-18), x, y);
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_sigmoid(const V& x) {
  return V(1) / (V(1) + vm_exp(-x));
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE Split<V> vm_split(const V& x) {
  using U = with_lane<V, uint64_t>;
  auto tiny = x < V(2.2250738585072014e-308);
  U biased = vm_bits(vm_select(tiny, x * V(18014398509481984.0), x)) + U(0x0008000000000000ull);
  V e = vm_cast<double>((biased >> 52) | U(0x4330000000000000ull)) -
        vm_select(tiny, V(4503599627370496.0 + 1023.0 + 54.0), V(4503599627370496.0 + 1023.0));
  V f = vm_cast<double>((biased & U(0x000fffffffffffffull)) + U(0x3fe8000000000000ull)) - V(1.0);
  return {e, f};
}
// log(1 + f) = 2 s + s z R(z) with s = f / (2 + f) and z = s s; written with f itself, which is
// exact: log(1 + f) = f - (f f / 2 - s (f f / 2 + z R)).
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_log_sum(const Split<V>& x) {
  V f = x.f, s = f / (V(2.0) + f), z = s * s, half = V(0.5) * f * f;
  V r = z * vm_poly(z, 0.138434169894426, 0.13173551225731051, 0.15391114276995191,
                    0.18181665823233029, 0.22222224296981566, 0.28571428555827311,
                    0.40000000000056668, 0.66666666666666596);
  V low = vm_fma(s, half + r, x.e * V(7.4406171100123968e-11));
  return vm_fma(x.e, V(0.69314718048553914), f - (half - low));
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_log(const V& x) {
  return vm_log_edge(x, vm_log_sum(vm_split(x)));
}
// As for float.
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_log1p(const V& x) {
  using U = with_lane<V, uint64_t>;
  V u = V(1.0) + x;
  U biased = vm_bits(u) + U(0x0008000000000000ull);
  U exponent = biased >> 52;
  V s = vm_cast<double>((U(2046ull) - exponent) << 52);  // 2^-e
  V near = vm_fma(x, s, s - V(1.0));
  V far = vm_cast<double>((biased & U(0x000fffffffffffffull)) + U(0x3fe8000000000000ull)) - V(1.0);
  V e = vm_cast<double>(exponent | U(0x4330000000000000ull)) - V(4503599627370496.0 + 1023.0);
  V y = vm_log_sum(Split<V>{e, vm_select(u > V(1e18), far, near)});
  return vm_select(vm_abs(x) < V(1e-18), x, vm_log_edge(u, y));
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_tanh(const V& x) {
  V c = vm_min(V(20.0), vm_abs(x));
  Reduced<V> d = vm_reduce_exp<1023>(c + c);
  V s = vm_cast<double>(d.bits << 52);
  V t = vm_fma(s, vm_expm1_core(d.r), s - V(1.0));
  return vm_with_sign(t / (t + V(2.0)), x);
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_erf(const V& x) {
  V c = vm_min(V(5.95), vm_abs(x));
  V q = vm_poly(c, -7.8327831550436186e-16, 3.8498570448295748e-14, -8.8441024603490853e-13,
                1.2609016513274027e-11, -1.2482265708395187e-10, 9.0809916975709864e-10,
                -4.9970744752075001e-09, 2.0960165355711046e-08, -6.572576340465742e-08,
                1.4174286920889852e-07, -1.3714439682935329e-07, -3.3642449719722844e-07,
                1.7416236482962447e-06, -2.8352175640205665e-06, -3.407203493606496e-06,
                2.9724007487511539e-05, -6.449184245191391e-05, -2.5878610792319861e-05,
                0.00059012555455383129, -0.0016962063860362269, 0.0002091946948754189,
                0.019128447005068171, -0.1027726033017887, -0.6366197723675836,
                -0.0033791670955125737);
  Reduced<V> d = vm_reduce_exp<1023>(vm_fma(c, V(-1.125), c * q));
  V s = vm_cast<double>(d.bits << 52);
  return vm_with_sign(vm_fma(-s, vm_expm1_core(d.r), V(1.0) - s), x);
}

// pi / 2 in three parts of 33 bits: products with n are exact.
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE Turn<V> vm_reduce_turn(const V& x) {
  constexpr double middle = 6.077100506303966e-11, last = 2.0222662487959506e-21;
  V shifted = vm_fma(x, V(0.63661977236758134), V(kRound64));
  V n = shifted - V(kRound64);
  V exact = vm_fma(n, V(-1.5707963267341256), x);
  V r = vm_fma(n, V(-last), vm_fma(n, V(-middle), exact));
  V p = n * V(middle), b = exact - p, t = b - exact;
  V lost = (exact - (b - t)) - (p + t);  // by b
  V low = (b - r) + (lost - n * V(last));
  return {r, low, vm_bits(shifted)};
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_sincos(const V& x, uint32_t quarter) {
  using U = with_lane<V, uint64_t>;
  Turn<V> turn = vm_reduce_turn(x);
  U q = turn.quarter + U(quarter);
  V r = turn.r;
  V u = r * r;
  V s = vm_poly(u, 1.5896705902437242e-10, -2.5050757137741671e-08, 2.7557313690266484e-06,
                -0.00019841269829820688, 0.0083333333333224617, -0.16666666666666632);
  V c = vm_poly(u, -1.1359834578326732e-11, 2.0875727658665915e-09, -2.7557314391571693e-07,
                2.480158728964844e-05, -0.0013888888888874454, 0.041666666666666602);
  s = vm_with_sign(vm_fma(r * u, s, r), r);  // also of zero
  // 1 - u / 2 first, with what its rounding lost.
  V h = V(0.5) * u, w = V(1.0) - h;
  c = w + vm_fma(u * u, c, (V(1.0) - w) - h);
  V y = vm_select((q & U(1u)) != U(0u), c, s);
  return vm_cast<double>(vm_bits(y) ^ ((q & U(2u)) << 62));
}

// ---- pow: exp(y log|x|), the logarithm and the product in two parts

// x y - p without rounding.
template <class V>
RB_INLINE V vm_residual(const V& x, const V& y, const V& p) {
#if defined(RB_HAS_FMA)
  return vm_fma(x, y, -p);
#else
  const V split(134217729.0);  // 2^27 + 1: halves whose products are exact
  V cx = split * x, cy = split * y;
  V hx = cx - (cx - x), hy = cy - (cy - y), lx = x - hx, ly = y - hy;
  return ((hx * hy - p) + hx * ly + lx * hy) + lx * ly;
#endif
}

template <class V>
struct TwoParts {
  V high, low;
};
// The sum of x and y, |x| >= |y| or x = 0.
template <class V>
RB_INLINE TwoParts<V> vm_sum(const V& x, const V& y) {
  V high = x + y;
  return {high, y - (high - x)};
}
template <class V>
RB_INLINE TwoParts<V> vm_product(const V& x, const V& y) {
  V high = x * y;
  return {high, vm_residual(x, y, high)};
}
// log(2^e (1 + f)) to about 2^-64 of itself: 2 s + s z (2/3 + z R(z)), all but z R in two parts.
template <class V>
RB_INLINE TwoParts<V> vm_log_parts(const Split<V>& x) {
  const V f = x.f, d = V(2.0) + f, inverse = V(1.0) / d;
  const V s = f * inverse;
  const V s_low = (-vm_residual(s, d, f) - s * (f - (d - V(2.0)))) * inverse;
  TwoParts<V> z = vm_product(s, s);
  z.low = vm_fma(s + s, s_low, z.low);
  const V r = z.high * vm_poly(z.high, 0.12427953028845428, 0.11617860303973722, 0.1333928699227274,
                               0.15384477859521499, 0.18181819993423865, 0.22222222209447765,
                               0.28571428571469643, 0.3999999999999996);
  TwoParts<V> factor = vm_sum(V(0.66666666666666663), r);
  factor.low = factor.low + V(3.7007434154171886e-17);
  TwoParts<V> cube = vm_product(z.high, s);
  cube.low = vm_fma(z.high, s_low, vm_fma(z.low, s, cube.low));
  TwoParts<V> tail = vm_product(cube.high, factor.high);
  tail.low = vm_fma(cube.high, factor.low, vm_fma(cube.low, factor.high, tail.low));
  TwoParts<V> one = vm_sum(x.e * V(0.69314718048553914), s + s);
  TwoParts<V> all = vm_sum(one.high, tail.high);
  all.low =
      all.low + (one.low + vm_fma(x.e, V(7.4406171100123968e-11), tail.low + (s_low + s_low)));
  return vm_sum(all.high, all.low);
}

template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_pow(const V& x, const V& y) {
  using U = with_lane<V, uint64_t>;
  const V inf(vm_inf<V>), zero(0.0), one(1.0);
  V a = vm_abs(x);
  TwoParts<V> log = vm_log_parts(vm_split(a));
  log.high = vm_select(a == zero, -inf, vm_select(a == inf, inf, log.high));
  // Larger exponents give 0, 1 or infinity as well.
  V power = vm_max(V(-1e19), vm_min(V(1e19), y));
  TwoParts<V> t = vm_product(power, log.high);
  t.low = vm_select(vm_abs(t.high) < V(800.0), vm_fma(power, log.low, t.low), zero);
  Reduced<V> c = vm_reduce_exp<2046>(vm_max(V(-746.0), vm_min(V(710.0), t.high)));
  V r = vm_scale(one + vm_expm1_core(c.r + (c.low + t.low)), c);
  V half = y * V(0.5);
  auto whole = vm_rint(y) == y;
  auto odd = whole & (vm_rint(half) != half);
  r = vm_cast<double>(vm_bits(r) ^ vm_select(odd, vm_sign(x), U(0u)));
  r = vm_select((x < zero) & (a != inf) & (vm_rint(y) != y), V(vm_nan<V>), r);
  r = vm_select(x != x, x, r);
  auto always_one = (y == zero) | (x == one) | ((a == one) & (vm_abs(y) == inf));
  return vm_select(always_one, one, r);
}

}  // namespace

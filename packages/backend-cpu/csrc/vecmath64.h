// The functions of vecmath.h for double. Bounds in ulp, with hardware multiply-add and without:
//   exp 1.1, log 1, tanh 2.5, sigmoid 2.5, erf 3, sin and cos 2.5.
#pragma once
#include "vecmath.h"

namespace {

constexpr double kRound64 = 6755399441055744.0;  // 1.5 * 2^52

template <int Bias, class V, RB_DOUBLE_ONLY(V)>
RB_INLINE Reduced<V> vm_reduce_exp(const V& x) {
  V shifted = vm_fma(x, V(1.4426950408889634), V(kRound64 + Bias));
  V n = shifted - V(kRound64 + Bias);
  // log(2) in two parts; n times the first is exact.
  V r = vm_fma(n, V(-7.4406171100123968e-11), vm_fma(n, V(-0.69314718048553914), x));
  return {r, n, vm_bits(shifted)};
}
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_expm1_core(const V& r) {
  V p = vm_poly(r, 2.5113075244660099e-08, 2.7626826191092191e-07, 2.7557232426128728e-06,
                2.4801503339622225e-05, 0.00019841269897983459, 0.0013888888933130691,
                0.0083333333333169245, 0.041666666666572108, 0.16666666666666682,
                0.50000000000000056);
  return vm_fma(p, r * r, r);
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
RB_INLINE V vm_sigmoid(const V& x) {
  return V(1) / (V(1) + vm_exp(-x));
}

// log(1 + f) = 2 s + s z R(z) with s = f / (2 + f) and z = s s; written with f itself, which is
// exact: log(1 + f) = f - (f f / 2 - s (f f / 2 + z R)).
template <class V, RB_DOUBLE_ONLY(V)>
RB_INLINE V vm_log(const V& x) {
  using U = with_lane<V, uint64_t>;
  auto tiny = x < V(2.2250738585072014e-308);
  U biased = vm_bits(vm_select(tiny, x * V(18014398509481984.0), x)) + U(0x0008000000000000ull);
  V e = vm_cast<double>((biased >> 52) | U(0x4330000000000000ull)) -
        vm_select(tiny, V(4503599627370496.0 + 1023.0 + 54.0), V(4503599627370496.0 + 1023.0));
  V f = vm_cast<double>((biased & U(0x000fffffffffffffull)) + U(0x3fe8000000000000ull)) - V(1.0);
  V s = f / (V(2.0) + f), z = s * s, half = V(0.5) * f * f;
  V r = z * vm_poly(z, 0.138434169894426, 0.13173551225731051, 0.15391114276995191,
                    0.18181665823233029, 0.22222224296981566, 0.28571428555827311,
                    0.40000000000056668, 0.66666666666666596);
  V low = vm_fma(s, half + r, e * V(7.4406171100123968e-11));
  V y = vm_fma(e, V(0.69314718048553914), f - (half - low));
  return vm_log_edge(x, y);
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
RB_INLINE V vm_sincos(const V& x, uint32_t quarter) {
  using U = with_lane<V, uint64_t>;
  V shifted = vm_fma(x, V(0.63661977236758134), V(kRound64));
  V n = shifted - V(kRound64);
  V r = vm_fma(n, V(-1.5707963267341256), x);
  r = vm_fma(n, V(-2.0222662487959506e-21), vm_fma(n, V(-6.077100506303966e-11), r));
  U q = vm_bits(shifted) + U(quarter);
  V u = r * r;
  V s = vm_poly(u, 1.5896705902437242e-10, -2.5050757137741671e-08, 2.7557313690266484e-06,
                -0.00019841269829820688, 0.0083333333333224617, -0.16666666666666632);
  V c = vm_poly(u, -1.1359834578326732e-11, 2.0875727658665915e-09, -2.7557314391571693e-07,
                2.480158728964844e-05, -0.0013888888888874454, 0.041666666666666602);
  s = vm_fma(r * u, s, r);
  // 1 - u / 2 first, with what its rounding lost.
  V h = V(0.5) * u, w = V(1.0) - h;
  c = w + vm_fma(u * u, c, (V(1.0) - w) - h);
  V y = vm_select((q & U(1u)) != U(0u), c, s);
  return vm_cast<double>(vm_bits(y) ^ ((q & U(2u)) << 62));
}

}  // namespace

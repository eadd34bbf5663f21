// Elementary functions of float32 as branch-free polynomials, for
// numbers and packs (pack.h) alike: scalar code, vector code and the elements at the end of a loop
// get the same bits. The coefficients are minimax fits of our own. Bounds in ulp, with hardware
// multiply-add and without (tests/test_native_vecmath.py checks them):
//   exp 1.1, expm1 1.5, log 1, log2 2, log10 2.1, log1p 1, tanh 2.5, sigmoid 2.5, erf 1.9,
//   erfc 0.6, sin and cos 1.6, pow 0.6.
#pragma once
#include "common/pack.h"

namespace {

#define RB_FLOAT_ONLY(V) std::enable_if_t<std::is_same<lane_t<V>, float>::value, int> = 0
#define RB_DOUBLE_ONLY(V) std::enable_if_t<std::is_same<lane_t<V>, double>::value, int> = 0

template <class V>
RB_INLINE auto vm_bits(const V& x) {
  return vm_cast<UnsignedOf<lane_t<V>>>(x);
}
template <class V>
RB_INLINE V vm_abs(const V& x) {
  using U = UnsignedOf<lane_t<V>>;
  return vm_cast<lane_t<V>>(vm_bits(x) & with_lane<V, U>(static_cast<U>(-1) >> 1));
}
template <class V>
RB_INLINE auto vm_sign(const V& x) {
  using U = UnsignedOf<lane_t<V>>;
  return vm_bits(x) & with_lane<V, U>(static_cast<U>(1) << (8 * sizeof(U) - 1));
}
template <class V>
RB_INLINE V vm_copysign(const V& mag, const V& sign) {
  return vm_cast<lane_t<V>>(vm_bits(vm_abs(mag)) | vm_sign(sign));
}
// The sign of `sign` for a magnitude that has none.
template <class V>
RB_INLINE V vm_with_sign(const V& mag, const V& sign) {
  return vm_cast<lane_t<V>>(vm_bits(mag) | vm_sign(sign));
}
template <class V>
constexpr lane_t<V> vm_inf = static_cast<lane_t<V>>(__builtin_inf());
template <class V>
constexpr lane_t<V> vm_nan = static_cast<lane_t<V>>(__builtin_nan(""));

// ((p x + c) x + ...): the highest coefficient first.
template <class V>
RB_INLINE V vm_horner(const V&, const V& p) {
  return p;
}
template <class V, class... Rest>
RB_INLINE V vm_horner(const V& x, const V& p, lane_t<V> c, Rest... rest) {
  return vm_horner(x, vm_fma(p, x, V(c)), rest...);
}
template <class V, class... Rest>
RB_INLINE V vm_poly(const V& x, lane_t<V> first, Rest... rest) {
  return vm_horner(x, V(first), rest...);
}

// ---- exp and its relatives. x = n log(2) + r, |r| <= log(2) / 2.

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits; `Bias` is added to that integer,
// so that a shift by 23 makes it the exponent of a power of two.
constexpr float kRound = 12582912.0f;

template <class V>
struct Reduced {
  V r, low, n;                               // low: what the rounding of r lost
  with_lane<V, UnsignedOf<lane_t<V>>> bits;  // n + Bias in the low bits
};
template <int Bias, class V, RB_FLOAT_ONLY(V)>
RB_INLINE Reduced<V> vm_reduce_exp(const V& x) {
  V shifted = vm_fma(x, V(1.442695041f), V(kRound + Bias));
  V n = shifted - V(kRound + Bias);
  V exact = vm_fma(n, V(-0.693359375f), x);
  V r = vm_fma(n, V(2.12194440e-4f), exact);
  return {r, vm_fma(n, V(2.12194440e-4f), exact - r), n, vm_bits(shifted)};
}
// (exp(r) - 1 - r) / r^2
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_exp_poly(const V& r) {
  return vm_poly(r, 1.393420855e-03f, 8.366916329e-03f, 4.166647419e-02f, 1.666654050e-01f,
                 5.000000000e-01f);
}
// exp(r) - 1
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_expm1_core(const V& r) {
  return vm_fma(vm_exp_poly(r), r * r, r);
}
// p * 2^n, where n may lie outside the exponent range of one factor; Bias 254.
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_scale(const V& p, const Reduced<V>& x) {
#if defined(__AVX512DQ__)
  if constexpr (is_pack<V>) return vm_scalef(p, x.n);
#endif
  auto half = x.bits >> 1;
  return (p * vm_cast<float>(half << 23)) * vm_cast<float>((x.bits - half) << 23);
}

template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_exp(const V& x) {
  Reduced<V> c = vm_reduce_exp<254>(vm_max(V(-104.0f), vm_min(V(89.0f), x)));
  return vm_scale(V(1.0f) + vm_expm1_core(c.r), c);
}

template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_expm1(const V& x) {
  Reduced<V> c = vm_reduce_exp<126>(vm_max(V(-20.0f), vm_min(V(89.0f), x)));
  V s = vm_cast<float>(c.bits << 23);  // 2^(n - 1)
  V tail = vm_fma(vm_exp_poly(c.r), c.r * c.r, c.low);
  V y = V(2.0f) * vm_fma(s, tail, vm_fma(s, c.r, s - V(0.5f)));
  return vm_select(vm_abs(x) < V(1e-10f), x, y);
}

// ---- logarithms. x = 2^e (1 + f), f in [-1/4, 1/2].

// log(1 + f) - f
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log_tail(const V& f) {
  V p = vm_poly(f, -4.508084431e-02f, 1.046931967e-01f, -1.316718608e-01f, 1.447938234e-01f,
                -1.664671898e-01f, 1.999070346e-01f, -2.500011027e-01f, 3.333345354e-01f);
  return (f * f) * vm_fma(p, f, V(-0.5f));
}

template <class V>
struct Split {
  V e, f;
};
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE Split<V> vm_split(const V& x) {
  using U = with_lane<V, uint32_t>;
  auto tiny = x < V(1.17549435e-38f);
  U biased = vm_bits(vm_select(tiny, x * V(8388608.0f), x)) + U(0x00400000u);  // 1 - 3/4
  V e = vm_to_float(vm_cast<int32_t>(biased >> 23)) - vm_select(tiny, V(150.0f), V(127.0f));
  return {e, vm_cast<float>((biased & U(0x007fffffu)) + U(0x3f400000u)) - V(1.0f)};
}
// log(0) = -inf, log(inf) = inf, NaN and negatives give NaN.
template <class V>
RB_INLINE V vm_log_edge(const V& x, const V& y) {
  V r = vm_select(x > V(0), y, vm_select(x == V(0), V(-vm_inf<V>), V(vm_nan<V>)));
  return vm_select(x == V(vm_inf<V>), x, r);
}
#if defined(__AVX512DQ__)
// The instructions take any argument and give infinities and NaNs that lead to the right results.
template <int K>
RB_INLINE Split<Pack<float, K>> vm_split_any(const Pack<float, K>& x) {
  using V = Pack<float, K>;
  V m = vm_mantissa(x);
  return {vm_exponent(x) - vm_exponent(m), m - V(1.0f)};
}
#endif
template <class V, class F>
RB_INLINE V vm_log_of(const V& x, const F& sum) {
#if defined(__AVX512DQ__)
  if constexpr (is_pack<V> && std::is_same<lane_t<V>, float>::value) return sum(vm_split_any(x));
#endif
  return vm_log_edge(x, sum(vm_split(x)));
}

// Both parts of log(2) have the sign of the whole, so that an infinite e stays one.
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log_sum(const Split<V>& s) {
  V t = vm_fma(s.e, V(1.42860677e-6f), vm_log_tail(s.f));
  return vm_fma(s.e, V(0.693145752f), t + s.f);
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log(const V& x) {
  return vm_log_of(x, [](const Split<V>& s) RB_LAMBDA { return vm_log_sum(s); });
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log2(const V& x) {
  return vm_log_of(x, [](const Split<V>& s) RB_LAMBDA {
    V t = vm_log_tail(s.f);
    // log2(e) = 1 + 0.442695041: the leading part of the product is exact.
    return (vm_fma(t, V(0.442695041f), s.f * V(0.442695041f)) + t) + s.f + s.e;
  });
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log10(const V& x) {
  return vm_log_of(x, [](const Split<V>& s) RB_LAMBDA {
    V t = vm_log_tail(s.f);
    // log10(e) = 0.4375 - 0.00320551810, log10(2) = 0.301025391 + 4.60503898e-06
    V low = vm_fma(s.e, V(4.60503898e-06f), (t + s.f) * V(-0.00320551810f));
    return vm_fma(s.e, V(0.301025391f), vm_fma(t, V(0.4375f), low) + s.f * V(0.4375f));
  });
}
// 1 + x = 2^e (1 + f); f comes from x itself while 1 is more than a rounding error beside it.
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_log1p(const V& x) {
  using U = with_lane<V, uint32_t>;
  V u = V(1.0f) + x;
  U biased = vm_bits(u) + U(0x00400000u);
  U exponent = biased >> 23;
  V s = vm_cast<float>((U(254u) - exponent) << 23);  // 2^-e
  V near = vm_fma(x, s, s - V(1.0f));
  V far = vm_cast<float>((biased & U(0x007fffffu)) + U(0x3f400000u)) - V(1.0f);
  V e = vm_to_float(vm_cast<int32_t>(exponent)) - V(127.0f);
  V y = vm_log_sum(Split<V>{e, vm_select(u > V(1e9f), far, near)});
  return vm_select(vm_abs(x) < V(1e-10f), x, vm_log_edge(u, y));
}

// ---- functions of exp(x) - 1

template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_tanh(const V& x) {
  V c = vm_min(V(10.0f), vm_abs(x));
  Reduced<V> d = vm_reduce_exp<127>(c + c);
  V s = vm_cast<float>(d.bits << 23);
  V t = vm_fma(s, vm_expm1_core(d.r), s - V(1.0f));  // exp(2c) - 1, not negative
  return vm_with_sign(t / (t + V(2.0f)), x);
}

template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_sigmoid(const V& x) {
  return V(1) / (V(1) + vm_exp(-x));
}

// erf(a) = 1 - exp(-a Q(a)) with Q(a) = -log(erfc(a)) / a = 1.125 + ...; up to 1/2, where the
// difference would round more, a + a P(a^2).
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_erf(const V& x) {
  V c = vm_min(V(4.0f), vm_abs(x));
  V q = vm_poly(c, 1.246512625e-06f, -4.877689207e-05f, 3.988371172e-04f, -1.264833845e-03f,
                -2.110580244e-04f, 1.933362894e-02f, -1.028197482e-01f, -6.366156936e-01f,
                -3.379167096e-03f);
  Reduced<V> d = vm_reduce_exp<127>(vm_fma(c, V(-1.125f), c * q));
  V s = vm_cast<float>(d.bits << 23);
  V w = c * c;
  V p = vm_poly(w, 0.00471929461f, -0.0267583076f, 0.112828515f, -0.376126111f, 0.128379166f);
  V far = vm_fma(-s, vm_expm1_core(d.r), V(1.0f) - s);
  return vm_with_sign(vm_select(c < V(0.5f), vm_fma(c, p, c), far), x);
}

// ---- sin(x + quarter * pi / 2)

// Callers send larger arguments to libm.
template <class V>
constexpr lane_t<V> kTrigLimit = 100000;

// x less the nearest multiple of pi / 2, in two parts, and the number of that multiple. Products
// with n = 0 are -0, which keeps the sign of x.
template <class V>
struct Turn {
  V r, low;
  with_lane<V, UnsignedOf<lane_t<V>>> quarter;
};
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE Turn<V> vm_reduce_turn(const V& x) {
  V shifted = vm_fma(x, V(0.636619772f), V(kRound));
  V n = shifted - V(kRound);
#if defined(RB_HAS_FMA)
  // The first step is exact: n has 16 bits, and the high bits cancel.
  V exact = vm_fma(n, V(-1.57079625f), x);
  V r = vm_fma(n, V(-5.39030295e-15f), vm_fma(n, V(-7.54978942e-8f), exact));
  V p = n * V(7.54978942e-8f), p_low = vm_fma(n, V(7.54978942e-8f), -p);
  V b = exact - p, t = b - exact;
  V lost = (exact - (b - t)) - (p + t);  // by b
  V low = (b - r) + ((lost - p_low) + n * V(-5.39030295e-15f));
#else
  using D = with_lane<V, double>;
  D turns = vm_widen(n);
  D wide = (vm_widen(x) - turns * D(1.5707963267341256)) - turns * D(6.0771005065061922e-11);
  V r = vm_narrow(wide);
  V low = vm_narrow(wide - vm_widen(r));
#endif
  return {r, low, vm_bits(shifted)};
}
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_sincos(const V& x, uint32_t quarter) {
  using U = with_lane<V, uint32_t>;
  Turn<V> turn = vm_reduce_turn(x);
  U q = turn.quarter + U(quarter);
  V r = turn.r, u = r * r;
  V s = vm_poly(u, 2.717564497e-06f, -1.983925664e-04f, 8.333329144e-03f, -1.666666664e-01f);
  V c = vm_poly(u, -2.720330017e-07f, 2.479943636e-05f, -1.388888344e-03f, 4.166666662e-02f);
  s = vm_with_sign(vm_fma(r * u, s, r), r);  // also of zero
  c = vm_fma(u * u, c, vm_fma(u, V(-0.5f), V(1.0f)));
  V y = vm_select((q & U(1u)) != U(0u), c, s);
  return vm_cast<float>(vm_bits(y) ^ ((q & U(2u)) << 30));
}

// 2^t in double for the functions of float; |t| <= 200.
template <class D>
RB_INLINE D vm_exp2_wide(const D& t) {
  constexpr double round = 6755399441055744.0 + 1023.0;
  D shifted = t + D(round);
  D z = vm_poly(t - (shifted - D(round)), 1.531628287625006e-05, 0.00015469731747876154,
                0.0013333423429512505, 0.0096180256036185793, 0.055504109751247109,
                0.24022651213592083, 0.6931471805353373, 0.99999999995954791);
  return z * vm_cast<double>(vm_bits(shifted) << 52);
}

// erfc(a) = exp(-a^2) u G(u) with u = 1 / (a + 2), in double.
template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_erfc(const V& x) {
  using D = with_lane<V, double>;
  D a = vm_widen(vm_min(V(10.5f), vm_abs(x)));
  D u = D(1.0) / (a + D(2.0));
  D g = vm_poly(u, 74.735583724008442, -200.01524264641116, 200.99381106928771, -78.400152383907357,
                -0.78398924830639907, 1.6273827100952989, 1.8907943548837105, 2.950786359666589,
                1.9630728786933746, 1.1289282167637992, 0.5641787778258528);
  D y = vm_exp2_wide(a * a * D(-1.4426950408889634)) * (u * g);
  return vm_narrow(vm_select(vm_widen(x) < D(0.0), D(2.0) - y, y));
}

// ---- pow: 2^(y log2|x|) in double, then the signs and exceptional cases of IEEE 754

template <class V, RB_FLOAT_ONLY(V)>
RB_INLINE V vm_pow(const V& x, const V& y) {
  using D = with_lane<V, double>;
  using U = with_lane<V, uint32_t>;
  const V inf(vm_inf<V>), zero(0.0f), one(1.0f);
  V a = vm_abs(x);
  Split<V> s = vm_split(a);
  V e = vm_select(a == zero, -inf, vm_select(a == inf, inf, s.e));
  D f = vm_widen(s.f);
  D p = vm_poly(f, -0.044921594377697806, 0.11545815913689711, -0.15285464864480861,
                0.16466072146859773, -0.1803173461385037, 0.20582046540317933, -0.24042807526961679,
                0.2885460131898564, -0.36067436220880222, 0.48089828240554033, -0.72134751683944731,
                1.4426950409941546);
  D t = vm_widen(y) * vm_fma(p, f, vm_widen(e));
  V r = vm_narrow(vm_exp2_wide(vm_max(D(-200.0), vm_min(D(200.0), t))));
  V half = y * V(0.5f);
  auto whole = vm_rint(y) == y;
  auto odd = whole & (vm_rint(half) != half);
  r = vm_cast<float>(vm_bits(r) ^ vm_select(odd, vm_sign(x), U(0u)));
  r = vm_select((x < zero) & (a != inf) & (vm_rint(y) != y), V(vm_nan<V>), r);
  r = vm_select(x != x, x, r);
  auto always_one = (y == zero) | (x == one) | ((a == one) & (vm_abs(y) == inf));
  return vm_select(always_one, one, r);
}

}  // namespace

// float32 functions as branch-free polynomials, so that loops over them vectorise and every
// instruction-set level, scalar tails included, gives the same bits. The coefficients are minimax
// fits (relative error below 6e-9 before rounding); measured errors are 1 to 2 ulp, erf 3e-7
// absolute.
#pragma once
#include <cstdint>

namespace {

#define RB_INLINE static inline __attribute__((always_inline))

RB_INLINE float vm_float(uint32_t u) { return __builtin_bit_cast(float, u); }
RB_INLINE uint32_t vm_bits(float f) { return __builtin_bit_cast(uint32_t, f); }

constexpr float kRound =
    12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

RB_INLINE float vm_exp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;  // comparisons with NaN are false: it passes through
  float shifted = c * 1.442695041f + kRound;
  float n = shifted - kRound;
  float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.992148896e-04f;
  p = p * r + 1.394837320e-03f;
  p = p * r + 8.333258695e-03f;
  p = p * r + 4.166623742e-02f;
  p = p * r + 1.666666689e-01f;
  p = p * r + 5.000000088e-01f;
  p = (p * r) * r + r + 1.0f;
  // 2^n in two factors: n may lie outside the exponent range of one.
  uint32_t i = vm_bits(shifted) - vm_bits(kRound);
  uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(i) >> 1);
  return (p * vm_float((half + 127u) << 23)) * vm_float((i - half + 127u) << 23);
}

// log(1 + f) minus f, without the exponent part; f in [sqrt(1/2) - 1, sqrt(2) - 1].
RB_INLINE float vm_log_tail(float f) {
  float p = 6.915146944e-02f;
  p = p * f + -1.178969557e-01f;
  p = p * f + 1.187301627e-01f;
  p = p * f + -1.238437030e-01f;
  p = p * f + 1.421865543e-01f;
  p = p * f + -1.666924946e-01f;
  p = p * f + 2.000222670e-01f;
  p = p * f + -2.499998663e-01f;
  p = p * f + 3.333331044e-01f;
  float s = f * f;
  return p * f * s - 0.5f * s;
}

// x = 2^e * (1 + f); x positive and finite.
RB_INLINE float vm_split(float x, float* e) {
  bool tiny = x < 1.17549435e-38f;
  float y = tiny ? x * 8388608.0f : x;
  uint32_t shifted = vm_bits(y) - 0x3f3504f3u;  // sqrt(1/2)
  int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  *e = static_cast<float>(exponent) - (tiny ? 23.0f : 0.0f);
  return vm_float((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
}

// Results outside (0, inf): log(0) = -inf, log(inf) = inf, NaN and negatives give NaN.
RB_INLINE float vm_log_edge(float x, float y) {
  float r = x > 0.0f ? y : __builtin_nanf("");
  r = x == 0.0f ? -__builtin_inff() : r;
  return x == __builtin_inff() ? x : r;
}

RB_INLINE float vm_log(float x) {
  float e, f = vm_split(x, &e);
  float t = vm_log_tail(f) + e * -2.12194440e-4f;
  return vm_log_edge(x, (t + f) + e * 0.693359375f);
}

RB_INLINE float vm_log2(float x) {
  float e, f = vm_split(x, &e);
  float t = vm_log_tail(f);
  // log2(e) = 1 + 0.442695041: the leading part of the product is exact.
  return vm_log_edge(x, ((t * 0.442695041f + f * 0.442695041f) + t) + f + e);
}

RB_INLINE float vm_copysign(float mag, float sign) {
  return vm_float((vm_bits(mag) & 0x7fffffffu) | (vm_bits(sign) & 0x80000000u));
}
RB_INLINE float vm_abs(float x) { return vm_float(vm_bits(x) & 0x7fffffffu); }

RB_INLINE float vm_tanh(float x) {
  float a = vm_abs(x), u = a * a;
  float p = 2.147539906e-03f;
  p = p * u + -8.182677449e-03f;
  p = p * u + 2.170296869e-02f;
  p = p * u + -5.394720459e-02f;
  p = p * u + 1.333320977e-01f;
  p = p * u + -3.333333091e-01f;
  float small = a + a * u * p;
  float large = 1.0f - 2.0f / (vm_exp(a + a) + 1.0f);
  return vm_copysign(a < 0.625f ? small : large, x);
}

RB_INLINE float vm_sigmoid(float x) { return 1.0f / (1.0f + vm_exp(-x)); }

RB_INLINE float vm_erf(float x) {
  float a = vm_abs(x);
  float u = a * a;
  float p = 7.889122857e-05f;
  p = p * u + -8.020842275e-04f;
  p = p * u + 5.189535451e-03f;
  p = p * u + -2.685444465e-02f;
  p = p * u + 1.128360018e-01f;
  p = p * u + -3.761262714e-01f;
  p = p * u + 1.128379166e+00f;
  float small = a * p;
  float c = a > 4.1f ? 4.1f : a;
  float t = 1.0f / (1.0f + 0.5f * c);
  float q = 1.184664091e-01f;
  q = q * t + -4.680850034e-01f;
  q = q * t + 5.585951261e-01f;
  q = q * t + -9.974803257e-02f;
  q = q * t + 3.459018321e-01f;
  q = q * t + 2.602443625e-01f;
  q = q * t + 2.848226794e-01f;
  q = q * t + -1.480193801e-04f;
  float large = 1.0f - vm_exp(-c * c) * q;
  return vm_copysign(a < 1.0f ? small : large, x);
}

// sin(x + quarter * pi / 2). The reduction runs in double: exact to 2^20 turns; callers send larger
// arguments to libm.
constexpr float kTrigLimit = 100000.0f;
RB_INLINE float vm_sincos(float x, uint32_t quarter) {
  double shifted = static_cast<double>(x) * 0.63661977236758134 + 6755399441055744.0;
  double n = shifted - 6755399441055744.0;
  double rest = (static_cast<double>(x) - n * 1.5707963267341256) - n * 6.0771005065061922e-11;
  float r = static_cast<float>(rest);
  uint32_t q = static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted)) + quarter;
  float u = r * r;
  float s = 2.717564497e-06f;
  s = s * u + -1.983925664e-04f;
  s = s * u + 8.333329144e-03f;
  s = s * u + -1.666666664e-01f;
  s = r + r * u * s;
  float c = -2.720330017e-07f;
  c = c * u + 2.479943636e-05f;
  c = c * u + -1.388888344e-03f;
  c = c * u + 4.166666662e-02f;
  c = (c * u) * u - 0.5f * u + 1.0f;
  float y = (q & 1u) ? c : s;
  return vm_float(vm_bits(y) ^ ((q & 2u) << 30));
}

RB_INLINE float vm_gelu_cdf(float x) { return 0.5f * (1.0f + vm_erf(x * 0.7071067811865476f)); }

}  // namespace

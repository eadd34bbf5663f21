// IEEE's float16, and complex numbers of two of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace rabbet {

/// Exact.
inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, exponent = h >> 10 & 31,
                 fraction = h & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | fraction << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -small : small;
  }
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

/// To nearest, ties to even; what is beyond the largest value becomes infinity.
inline uint16_t float_to_half(float f) {
  constexpr uint32_t kInfinity = 0x7f800000, kBeyond = 0x47800000, kSmallestNormal = 0x38800000;
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return sign | 0x7e00;
  if (magnitude >= kBeyond) return sign | 0x7c00;
  if (magnitude < kSmallestNormal)  // subnormal numbers count in equal steps
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(std::fabs(f), 24)));
  magnitude -= uint32_t{127 - 15} << 23;
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>(magnitude >> 13);
}

/// complex64 to complex32, each part rounded as above.
inline void encode_complex32(const void* from, void* to, int64_t n) {
  const auto* values = static_cast<const float*>(from);
  auto* halves = static_cast<uint16_t*>(to);
  for (int64_t i = 0; i < 2 * n; ++i) halves[i] = float_to_half(values[i]);
}

/// complex32 to complex64, exact.
inline void decode_complex32(const void* from, void* to, int64_t n) {
  const auto* halves = static_cast<const uint16_t*>(from);
  auto* values = static_cast<float*>(to);
  for (int64_t i = 0; i < 2 * n; ++i) values[i] = half_to_float(halves[i]);
}

}  // namespace rabbet

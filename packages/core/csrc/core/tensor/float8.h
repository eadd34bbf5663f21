// Floats of 8 bits: float8_e4m3fn (4 bits of exponent, 3 of fraction, no infinities, one NaN per
// sign) and float8_e5m2 (IEEE's way, with infinities and NaNs). OCP 8-bit Floating Point
// Specification 1.0.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace rabbet {

namespace float8 {

struct Format {
  int fraction, bias;
  uint32_t beyond;    // float32 values from these bits on become `top`
  uint8_t top;        // the largest finite code, or infinity
  bool has_infinity;  // codes above `top` are NaN either way
};
inline constexpr Format kE4M3FN{3, 7, 0x43e00000, 0x7e, false};  // 448
inline constexpr Format kE5M2{2, 15, 0x47700000, 0x7c, true};    // 61440, which is halfway

inline constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
inline constexpr uint8_t kNaN = 0x7f;
inline constexpr int kBias = 127, kFraction = 23;  // of float32

inline uint8_t encode(const Format& f, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  uint32_t magnitude = bits & kMagnitude;
  if (magnitude > kInfinity) return sign | kNaN;
  if (magnitude >= f.beyond) return sign | f.top;
  const auto shift = static_cast<uint32_t>(kFraction - f.fraction);
  const uint32_t smallest_normal = static_cast<uint32_t>(kBias + 1 - f.bias) << kFraction;
  if (magnitude < smallest_normal) {
    float value;  // subnormal codes count in equal steps
    std::memcpy(&value, &magnitude, sizeof value);
    return sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(value, f.bias - 1 + f.fraction)));
  }
  magnitude -= static_cast<uint32_t>(kBias - f.bias) << kFraction;
  magnitude += (1U << (shift - 1)) - 1 + (magnitude >> shift & 1);  // to nearest, ties to even
  return sign | static_cast<uint8_t>(magnitude >> shift);
}

inline float decode(const Format& f, uint8_t code) {
  const int size = code & 0x7f, exponent = size >> f.fraction;
  const int fraction = size & ((1 << f.fraction) - 1), whole = 1 << f.fraction;
  float value =
      exponent ? std::ldexp(static_cast<float>(whole + fraction), exponent - f.bias - f.fraction)
               : std::ldexp(static_cast<float>(fraction), 1 - f.bias - f.fraction);
  if (size > f.top) value = std::nanf("");
  if (size == f.top && f.has_infinity) value = std::numeric_limits<float>::infinity();
  return std::copysign(value, code & 0x80 ? -1.0F : 1.0F);
}

struct Decoded {
  float values[256];
  explicit Decoded(const Format& f) : values{} {
    for (int code = 0; code < 256; ++code) values[code] = decode(f, static_cast<uint8_t>(code));
  }
};

}  // namespace float8

/// From float32, to nearest, ties to even; what is beyond the largest value becomes that one, or
/// infinity.
template <const float8::Format& F>
void encode_float8(const void* from, void* to, int64_t n) {
  const auto* values = static_cast<const float*>(from);
  auto* codes = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < n; ++i) codes[i] = float8::encode(F, values[i]);
}

/// To float32, exact.
template <const float8::Format& F>
void decode_float8(const void* from, void* to, int64_t n) {
  static const float8::Decoded table(F);
  const auto* codes = static_cast<const uint8_t*>(from);
  auto* values = static_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) values[i] = table.values[codes[i]];
}

}  // namespace rabbet

// float8_e4m3fn: 4 bits of exponent, 3 of fraction, no infinities, one NaN per sign.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace rabbet {

namespace float8 {

inline constexpr uint32_t kMagnitude = 0x7fffffff;
inline constexpr uint32_t kInfinity = 0x7f800000;
inline constexpr uint32_t kLargest = 0x43e00000;         // 448
inline constexpr uint32_t kSmallestNormal = 0x3c800000;  // 2^-6
inline constexpr uint8_t kNaN = 0x7f, kLargestCode = 0x7e;

inline uint8_t encode(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  uint32_t magnitude = bits & kMagnitude;
  if (magnitude > kInfinity) return sign | kNaN;
  if (magnitude >= kLargest) return sign | kLargestCode;
  if (magnitude < kSmallestNormal) {
    float value;  // subnormal codes count in steps of 2^-9
    std::memcpy(&value, &magnitude, sizeof value);
    return sign | static_cast<uint8_t>(std::nearbyint(value * 512.0F));
  }
  magnitude -= uint32_t{127 - 7} << 23;          // another bias of the exponent
  magnitude += 0x7ffff + (magnitude >> 20 & 1);  // the 20 bits that go, to nearest even
  return sign | static_cast<uint8_t>(magnitude >> 20);
}

inline float decode(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  float value = exponent ? std::ldexp(static_cast<float>(8 + fraction), exponent - 10)
                         : std::ldexp(static_cast<float>(fraction), -9);
  if ((code & 0x7f) == kNaN) value = std::nanf("");
  return std::copysign(value, code & 0x80 ? -1.0F : 1.0F);
}

struct Decoded {
  float values[256];
  Decoded() : values{} {
    for (int code = 0; code < 256; ++code) values[code] = decode(static_cast<uint8_t>(code));
  }
};

}  // namespace float8

/// From float32, to nearest, ties to even; what is larger than 448, also infinity, becomes 448.
inline void encode_float8_e4m3fn(const void* from, void* to, int64_t n) {
  const auto* values = static_cast<const float*>(from);
  auto* codes = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < n; ++i) codes[i] = float8::encode(values[i]);
}

/// To float32, exact.
inline void decode_float8_e4m3fn(const void* from, void* to, int64_t n) {
  static const float8::Decoded table;
  const auto* codes = static_cast<const uint8_t*>(from);
  auto* values = static_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) values[i] = table.values[codes[i]];
}

}  // namespace rabbet

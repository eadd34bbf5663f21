// Floats of 8 bits: float8_e4m3fn (4 bits of exponent, 3 of fraction, no infinities, one NaN per
// sign) and float8_e5m2 (IEEE's way, with infinities and NaNs): OCP 8-bit Floating Point
// Specification 1.0. The fnuz formats have no infinities and no negative zero; the code that
// would be negative zero is their only NaN: Noune et al., "8-bit Numerical Formats for Deep Neural
// Networks", https://arxiv.org/abs/2206.02915.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace rabbet {

namespace float8 {

enum class Special { kNaNs, kInfinities, kUnsignedNaN };
struct Format {
  int fraction, bias;
  uint32_t beyond;  // float32 values from these bits on become `top`, or the unsigned NaN
  uint8_t top;      // the largest finite code, or infinity; codes above it are NaN
  Special special;
};
inline constexpr Format kE4M3FN{3, 7, 0x43e00000, 0x7e, Special::kNaNs};            // 448
inline constexpr Format kE5M2{2, 15, 0x47700000, 0x7c, Special::kInfinities};       // 61440
inline constexpr Format kE4M3FNUZ{3, 8, 0x43780000, 0x7f, Special::kUnsignedNaN};   // 248
inline constexpr Format kE5M2FNUZ{2, 16, 0x47700000, 0x7f, Special::kUnsignedNaN};  // 61440

inline constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
inline constexpr uint8_t kNaN = 0x7f, kUnsignedNaN = 0x80;
inline constexpr int kBias = 127, kFraction = 23;  // of float32

// The code of a number that the format holds, without its sign.
inline uint8_t encode_magnitude(const Format& f, uint32_t magnitude) {
  const auto shift = static_cast<uint32_t>(kFraction - f.fraction);
  const uint32_t smallest_normal = static_cast<uint32_t>(kBias + 1 - f.bias) << kFraction;
  if (magnitude < smallest_normal) {
    float value;  // subnormal codes count in equal steps
    std::memcpy(&value, &magnitude, sizeof value);
    return static_cast<uint8_t>(std::nearbyint(std::ldexp(value, f.bias - 1 + f.fraction)));
  }
  magnitude -= static_cast<uint32_t>(kBias - f.bias) << kFraction;
  magnitude += (1U << (shift - 1)) - 1 + (magnitude >> shift & 1);  // to nearest, ties to even
  return static_cast<uint8_t>(magnitude >> shift);
}

inline uint8_t encode(const Format& f, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & kMagnitude;
  if (f.special == Special::kUnsignedNaN) {
    if (magnitude >= f.beyond) return kUnsignedNaN;
    const uint8_t code = encode_magnitude(f, magnitude);
    return code ? sign | code : code;
  }
  if (magnitude > kInfinity) return sign | kNaN;
  return sign | (magnitude >= f.beyond ? f.top : encode_magnitude(f, magnitude));
}

inline float decode(const Format& f, uint8_t code) {
  const int size = code & 0x7f, exponent = size >> f.fraction;
  const int fraction = size & ((1 << f.fraction) - 1), whole = 1 << f.fraction;
  float value =
      exponent ? std::ldexp(static_cast<float>(whole + fraction), exponent - f.bias - f.fraction)
               : std::ldexp(static_cast<float>(fraction), 1 - f.bias - f.fraction);
  const bool is_unsigned_nan = f.special == Special::kUnsignedNaN && code == kUnsignedNaN;
  if (size > f.top || is_unsigned_nan) value = std::nanf("");
  if (size == f.top && f.special == Special::kInfinities)
    value = std::numeric_limits<float>::infinity();
  return std::copysign(value, code & 0x80 ? -1.0F : 1.0F);
}

struct Decoded {
  float values[256];
  explicit Decoded(const Format& f) : values{} {
    for (int code = 0; code < 256; ++code) values[code] = decode(f, static_cast<uint8_t>(code));
  }
};

}  // namespace float8

/// From float32, to nearest, ties to even; what is beyond the largest value becomes that one,
/// infinity, or the NaN of a format with one NaN.
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

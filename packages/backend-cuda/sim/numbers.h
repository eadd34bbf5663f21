// Elements of the types that cuBLASLt multiplies, by cudaDataType's numbers, as doubles.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cusim {

enum Type {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kI8 = 3,
  kC32 = 4,
  kC64 = 5,
  kI32 = 10,
  kBF16 = 14,
  kE4M3 = 28,
  kE5M2 = 29,
};

inline int size_of(int type) {
  switch (type) {
    case kF32:
    case kI32:
      return 4;
    case kF64:
    case kC32:
      return 8;
    case kF16:
    case kBF16:
      return 2;
    case kI8:
    case kE4M3:
    case kE5M2:
      return 1;
    case kC64:
      return 16;
    default:
      return 0;
  }
}
inline bool is_complex(int type) { return type == kC32 || type == kC64; }

/// A format of small floats: a sign, `exponent` bits, `mantissa` bits.
struct Small {
  int exponent, mantissa;
  bool infinities;  // else the largest exponent is of numbers but for the last, NaN
};
inline Small small_of(int type) {
  return type == kF16    ? Small{5, 10, true}
         : type == kBF16 ? Small{8, 7, true}
         : type == kE4M3 ? Small{4, 3, false}
                         : Small{5, 2, true};
}

inline double widen(uint32_t bits, const Small& f) {
  const int bias = (1 << (f.exponent - 1)) - 1;
  const int most = (1 << f.exponent) - 1;
  const int e = static_cast<int>(bits >> f.mantissa) & most;
  const int m = static_cast<int>(bits) & ((1 << f.mantissa) - 1);
  double x;
  if (e == most && f.infinities) {
    x = m ? NAN : INFINITY;
  } else if (!f.infinities && e == most && m == (1 << f.mantissa) - 1) {
    x = NAN;
  } else {
    x = e ? std::ldexp(m + (1 << f.mantissa), e - bias - f.mantissa)
          : std::ldexp(m, 1 - bias - f.mantissa);
  }
  return bits >> (f.exponent + f.mantissa) & 1 ? -x : x;
}

/// To the nearest, ties to even. Formats of 8 bits saturate, as cuBLASLt's do.
inline uint32_t narrow(double x, const Small& f) {
  const int bias = (1 << (f.exponent - 1)) - 1, most = (1 << f.exponent) - 1;
  const uint32_t sign = std::signbit(x) ? 1u << (f.exponent + f.mantissa) : 0;
  const bool saturates = f.exponent + f.mantissa == 7;
  const uint32_t nan = static_cast<uint32_t>(most) << f.mantissa |
                       (f.infinities ? 1u << (f.mantissa - 1) : (1u << f.mantissa) - 1);
  const uint32_t infinity = static_cast<uint32_t>(most) << f.mantissa;
  const uint32_t largest = f.infinities ? infinity - 1 : nan - 1;
  if (std::isnan(x)) return sign | nan;
  if (x == 0) return sign;  // frexp gives it no exponent
  x = std::fabs(x);
  int e = 0;
  std::frexp(x, &e);
  e = std::max(e - 1, 1 - bias);
  const double scaled = std::isinf(x) ? x : std::nearbyint(std::ldexp(x, f.mantissa - e));
  if (std::isinf(scaled) || std::ldexp(scaled, e - f.mantissa) > widen(largest, f))
    return sign | (saturates ? largest : infinity);
  const auto whole = static_cast<uint32_t>(scaled);  // the leading bit carries into the exponent
  return sign | ((static_cast<uint32_t>(e + bias - 1) << f.mantissa) + whole);
}

/// The real part, or with `part` 1 the imaginary one, of element `i`.
inline double load(const void* p, int type, int64_t i, int part = 0) {
  switch (type) {
    case kF32:
      return static_cast<const float*>(p)[i];
    case kF64:
      return static_cast<const double*>(p)[i];
    case kI8:
      return static_cast<const int8_t*>(p)[i];
    case kI32:
      return static_cast<const int32_t*>(p)[i];
    case kC32:
      return static_cast<const float*>(p)[2 * i + part];
    case kC64:
      return static_cast<const double*>(p)[2 * i + part];
    case kF16:
    case kBF16:
      return widen(static_cast<const uint16_t*>(p)[i], small_of(type));
    default:
      return widen(static_cast<const uint8_t*>(p)[i], small_of(type));
  }
}
inline void store(void* p, int type, int64_t i, double x, int part = 0) {
  switch (type) {
    case kF32:
      static_cast<float*>(p)[i] = static_cast<float>(x);
      break;
    case kF64:
      static_cast<double*>(p)[i] = x;
      break;
    case kI8:
      static_cast<int8_t*>(p)[i] =
          static_cast<int8_t>(std::fmin(std::fmax(std::nearbyint(x), -128), 127));
      break;
    case kI32:  // wraps
      static_cast<int32_t*>(p)[i] = static_cast<int32_t>(static_cast<int64_t>(x));
      break;
    case kC32:
      static_cast<float*>(p)[2 * i + part] = static_cast<float>(x);
      break;
    case kC64:
      static_cast<double*>(p)[2 * i + part] = x;
      break;
    case kF16:
    case kBF16:
      static_cast<uint16_t*>(p)[i] = static_cast<uint16_t>(narrow(x, small_of(type)));
      break;
    default:
      static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(narrow(x, small_of(type)));
  }
}

}  // namespace cusim

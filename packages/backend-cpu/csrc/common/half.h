// The two 16-bit floats. Every function is inlined: files that are compiled per instruction-set
// level (level.h) use them too, and must not define anything that the linker could pick for all.
#pragma once
#include <cstdint>

#include "common/level.h"

namespace rbcpu {

RB_ALWAYS float bits_to_float(uint32_t u) { return __builtin_bit_cast(float, u); }
RB_ALWAYS uint32_t float_to_bits(float f) { return __builtin_bit_cast(uint32_t, f); }

/// bfloat16: the upper half of a float32, rounded to nearest even.
struct BF16 {
  uint16_t bits;
  BF16() = default;
  RB_ALWAYS explicit BF16(float f) : bits(round(f)) {}
  RB_ALWAYS operator float() const { return bits_to_float(static_cast<uint32_t>(bits) << 16); }
  RB_ALWAYS static uint16_t round(float f) {
    uint32_t u = float_to_bits(f);
    uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
};

/// IEEE binary16. Both conversions are branch-free so that loops over them vectorise.
struct F16 {
  uint16_t bits;
  F16() = default;
  RB_ALWAYS explicit F16(float f) : bits(round(f)) {}
  RB_ALWAYS operator float() const {
    uint32_t h = bits, sign = (h & 0x8000u) << 16, body = (h & 0x7fffu) << 13;
    // Rebias the exponent with a multiplication, which also normalises subnormals.
    float scaled = bits_to_float(body) * bits_to_float(0x77800000u);  // 2^112
    uint32_t finite = float_to_bits(scaled), special = body | 0x7f800000u;
    return bits_to_float(((h & 0x7c00u) == 0x7c00u ? special : finite) | sign);
  }
  RB_ALWAYS static uint16_t round(float f) {
    uint32_t u = float_to_bits(f), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    uint32_t normal =
        (mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13;  // exponent - 112, nearest even
    // Subnormals: adding 0.5 aligns the last bit with 2^-24, and the addition rounds.
    uint32_t tiny = float_to_bits(bits_to_float(mag) + 0.5f) - 0x3f000000u;
    uint32_t r = mag < 0x38800000u ? tiny : normal;
    r = mag >= 0x47800000u ? 0x7c00u : r;
    r = mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x3ffu) : r;
    return static_cast<uint16_t>(r | sign);
  }
};

}  // namespace rbcpu

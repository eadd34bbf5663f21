// float8_e4m3fn: 4 bits of exponent, 3 of fraction, no infinities, one NaN per sign.
#pragma once
#include <cstdint>

namespace rabbet {

/// From float32, to nearest, ties to even; what is larger than 448, also infinity, becomes 448.
void encode_float8_e4m3fn(const void* from, void* to, int64_t n);
/// To float32, exact.
void decode_float8_e4m3fn(const void* from, void* to, int64_t n);

}  // namespace rabbet

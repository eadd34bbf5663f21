// Transposing copies, per level (transpose_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

/// to[r][c] = from[c][r], strides in bytes: `to` is dense along c, `from` along r.
using TransposePlane = void (*)(char* to, int64_t to_row, const char* from, int64_t from_col,
                                int64_t rows, int64_t cols);
/// By log2 of the bytes of an element.
struct TransposeTable {
  TransposePlane direct[4], streamed[4];
};
extern const TransposeTable transpose_table_v2, transpose_table_v3, transpose_table_v4;

}  // namespace rbcpu

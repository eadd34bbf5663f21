// Loops that convert, per level (convert_simd.cpp): casts between the common dtypes, the 16-bit
// floats by way of float32, selection by a mask, and copies in the opposite order.
#pragma once
#include "common/loops.h"
#include "rabbet/abi.h"

namespace rbcpu {

/// The dtypes with their own casts at each level; the other pairs are in cast.cpp.
constexpr int kCastDTypes[] = {RB_BOOL8, RB_U8, RB_I32, RB_I64, RB_F16, RB_BF16, RB_F32, RB_F64};
constexpr int kCastCount = sizeof(kCastDTypes) / sizeof(kCastDTypes[0]);

/// What a loop over 16-bit floats runs: chunks go to float32, through the float32 loop, and back:
/// one rounding per call, as one operation promises.
struct HalfContext {
  Loop loop;
  const void* ctx;
  int nin;
  uint32_t numbers;  // inputs that are float32 already
  bool narrow;       // the result is a 16-bit float; else a bool
};

struct ConvertTable {
  Loop casts[kCastCount][kCastCount];  // [to][from]; null on the diagonal
  Loop f16, bf16;                      // ctx: a HalfContext
  Loop select[4];                      // by log2 of the bytes: mask, yes, no
  // By log2 of the bytes: `n` dense elements in the opposite order.
  void (*reverse[4])(char* to, const char* from, int64_t n);
};
extern const ConvertTable convert_table_v2, convert_table_v3, convert_table_v4;

}  // namespace rbcpu

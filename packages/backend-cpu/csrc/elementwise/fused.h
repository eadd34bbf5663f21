// Fused kernels: one loop for a whole elementwise formula of an op record (`python -m rabbet
// emit`).
#pragma once
#include "common/loops.h"
#include "rabbet/emit.h"

namespace rbcpu {

constexpr int kMaxNumbers = RB_EMIT_NUMBERS;  // of the call, that one formula reads
static_assert(kMaxInputs == RB_EMIT_INPUTS);

/// The loop of one formula over contiguous memory, for both compute types: `n` results from
/// `in[0..]`, with the call's numbers in `p`. `out` may be an input. `f32` is null if the formula
/// computes in float64, `f64` if it is one of float32.
struct FusedBody {
  void (*f32)(int64_t n, float* out, const float* const* in, const float* p);
  void (*f64)(int64_t n, double* out, const double* const* in, const double* p);
  Loop rows32, rows64;  // of one tensor without numbers: rows without gaps, no context; else null
};

/// Handed to a Loop as its context.
struct FusedContext {
  FusedBody body;
  int inputs;
  float f32[kMaxNumbers];  // the numbers in both compute types
  double f64[kMaxNumbers];
  bool constant[kMaxInputs];  // numbers in the place of tensors, of stride 0
  float constant32[kMaxInputs];
  double constant64[kMaxInputs];
};

/// Per instruction-set level (fused_simd.cpp): the bodies, and the loops that feed them memory of
/// any stride and dtype.
struct FusedTable {
  const FusedBody* bodies;
  Loop f32, f64, f16, bf16;
};
extern const FusedTable fused_table_v2, fused_table_v3, fused_table_v4;

/// The loop over rows without gaps of an operator of one tensor whose decomposition has a body, for
/// values of the dtype of `x`, of float32 for the 16-bit floats. Null: there is none.
Loop fused_unary(const char* op, const RbTensor& x);

}  // namespace rbcpu

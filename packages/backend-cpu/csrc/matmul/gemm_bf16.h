// Matrix products of bfloat16 on machines that multiply it (AMX tiles, AVX-512 dot products);
// others convert to float32 (operands.h). Without anything of the standard library, as
// gemm_types.h.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "common/loops.h"

namespace rbcpu {

/// c = activation(alpha a b (+ bias)): sums in float32, in the order of k, rounded once. Strides
/// count elements.
/// Denormal numbers count as 0, as the instructions have it.
enum class Bf16Way { tiles, rows, vectors };
struct GemmBf16 {
  int64_t m, n, k;
  const uint16_t* a;
  int64_t as_m, as_k;
  const uint16_t* b;
  int64_t bs_k, bs_n;
  uint16_t* c;
  int64_t cs_m, cs_n;
  const float* bias;  // element i * bias_m + j * bias_n; may be null
  int64_t bias_m, bias_n;
  float alpha = 1.0f;
  Loop activation = nullptr;  // of float32; may be null
};

/// Whether the product is one of few vectors with a matrix that lies along k (Bf16Way::vectors):
/// memory is its limit. To be asked of the whole product, for the order of its sums is another one.
bool is_bf16_vectors(const GemmBf16& whole);
size_t gemm_bf16_workspace(int64_t m, int64_t n, int64_t k);
/// On the calling thread; `tiles`: blocks of sums by AMX, `rows`: by AVX-512's dot products.
void gemm_bf16(const GemmBf16& g, Bf16Way way, void* workspace);

}  // namespace rbcpu

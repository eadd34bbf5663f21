// What one matrix product is: shared with the per-level kernels, so without anything of the
// standard library.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace rbcpu {

enum GemmMode { kGemmStore, kGemmAccumulate };

/// a is m x k, b is k x n, c is m x n and row-major with rows ldc apart. Strides count elements.
template <class T>
struct Gemm {
  int64_t m, n, k;
  const T* a;
  int64_t as_m, as_k;
  const T* b;
  int64_t bs_k, bs_n;
  T* c;
  int64_t ldc;
  GemmMode mode;
  const T* bias;  // one per column, added when storing; may be null
};

struct GemmTable {
  size_t workspace_bytes;
  void (*f32)(const Gemm<float>&, void* workspace);
  void (*f64)(const Gemm<double>&, void* workspace);
};
extern const GemmTable gemm_table_v2, gemm_table_v3, gemm_table_v4;

}  // namespace rbcpu

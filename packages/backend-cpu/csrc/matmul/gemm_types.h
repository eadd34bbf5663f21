// What one matrix product is: shared with the per-level kernels, so without anything of the
// standard library.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "common/loops.h"

namespace rbcpu {

enum GemmMode { kGemmStore, kGemmAccumulate };
enum GemmShape { kGemmBlock, kGemmNarrow, kGemmColumn, kGemmRow };

/// c = activation((c | bias | 0) + alpha a b): a is m x k, b is k x n, c is m x n and row-major
/// with rows ldc apart. Strides count elements.
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
  T alpha = T(1);
  Loop activation = nullptr;     // gemm_batch applies it; may be null
  GemmShape shape = kGemmBlock;  // gemm_run and gemm_batch choose it
};

struct GemmTable {
  size_t workspace_bytes;
  int64_t rows, cols;  // of the largest micro-kernel, float32
  void (*f32)(const Gemm<float>&, void* workspace);
  void (*f64)(const Gemm<double>&, void* workspace);
  GemmShape (*shape_f32)(int64_t m, int64_t n);
  GemmShape (*shape_f64)(int64_t m, int64_t n);
};
extern const GemmTable gemm_table_v2, gemm_table_v3, gemm_table_v4;

}  // namespace rbcpu

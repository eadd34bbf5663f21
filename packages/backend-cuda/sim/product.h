// A product of matrices as cublasLtMatmul() states it, computed on the host:
// D = activation(alpha op(A) op(B) + beta C + bias).
#pragma once
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "numbers.h"

namespace cusim {

struct Operation {  // cublasLtMatmulDesc_t
  int compute = 0, scale = 0, pointer_mode = 0;
  int transpose_a = 0, transpose_b = 0, transpose_c = 0;
  int epilogue = 1;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  int bias_type = -1;
  int multiprocessors = 0;
  const void* scales[4] = {};  // of a, b, c and d: 8 bits
  void* largest = nullptr;
  int8_t fast_sum = 0;
};

struct Matrix {             // cublasLtMatrixLayout_t
  int type = 0, order = 0;  // 0: columns lie together, 1: rows do
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int batches = 1;
  int64_t stride = 0;
};

struct Product {
  Operation operation;
  Matrix layouts[4];  // a, b, c, d
  const void *a, *b, *c;
  void* d;
  std::complex<double> alpha = 1, beta = 0;
  const void *alpha_at = nullptr, *beta_at = nullptr;  // in device memory
  void* workspace = nullptr;
  size_t workspace_size = 0;

  void set_factors(const void* alpha_value, const void* beta_value);
  bool adds() const { return beta != std::complex<double>(0); }
  int bias_type() const;
  void run();
};

}  // namespace cusim

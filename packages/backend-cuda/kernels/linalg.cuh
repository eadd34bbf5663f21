// Kernels around the routines of cuSOLVER and cuBLAS.
#include "report.cuh"
// ---- before it stands T, the real type. A block for each matrix of `size` real numbers. A matrix with
// NaN or infinity is replaced by zeros, for which iterations converge; its flag is `bad`, else 0.
#define RB_FINITE_FLAGS()                                                                  \
  extern "C" __global__ void rb_kernel(T* x, int* flags, Int64 matrices, Int64 size, int bad) { \
    for (Int64 m = blockIdx.x; m < matrices; m += gridDim.x) {                             \
      T* const own = x + m * size;                                                         \
      int wrong = 0;                                                                       \
      for (Int64 i = threadIdx.x; i < size; i += blockDim.x) wrong |= own[i] - own[i] != 0; \
      wrong = block_reduce(wrong, JoinSum());                                              \
      for (Int64 i = threadIdx.x; wrong && i < size; i += blockDim.x) own[i] = 0;          \
      if (threadIdx.x == 0) flags[m] = wrong ? bad : 0;                                    \
    }                                                                                      \
  }
// A thread for each matrix of `size` real numbers. Unless `info` is set already, it becomes the
// position, from 1, of the first NaN among the `n` numbers of the diagonal, which lie `step` apart.
#define RB_NAN_PIVOTS()                                                                    \
  extern "C" __global__ void rb_kernel(const T* x, int* info, Int64 matrices, Int64 size,  \
                                       Int64 n, Int64 step) {                              \
    RB_FOR(m, matrices) {                                                                  \
      for (Int64 i = 0; i < n && info[m] == 0; ++i) {                                      \
        const T own = x[m * size + i * step];                                              \
        if (own != own) info[m] = (int)(i + 1);                                            \
      }                                                                                    \
    }                                                                                      \
  }
// ---- a thread for each permutation. It exchanges rows r and pivots[r] - 1 in ascending order of r, or
// in descending order for the inverse. Pivots out of range are skipped and reported.
#define RB_LU_ROWS()                                                                       \
  extern "C" __global__ void rb_kernel(Int64* rows, const int* pivots, Int64 matrices,     \
                                       Int64 m, Int64 k, int inverse, const Finder finder) { \
    RB_FOR(i, matrices) {                                                                  \
      Int64* const own = rows + i * m;                                                     \
      for (Int64 r = 0; r < m; ++r) own[r] = r;                                            \
      for (Int64 step = 0; step < k; ++step) {                                             \
        const Int64 r = inverse ? k - 1 - step : step, other = (Int64)pivots[i * k + r] - 1; \
        if (other < 0 || other >= m) {                                                     \
          found(finder, other + 1, 0);                                                     \
          continue;                                                                        \
        }                                                                                  \
        const Int64 held = own[r];                                                         \
        own[r] = own[other];                                                               \
        own[other] = held;                                                                 \
      }                                                                                    \
    }                                                                                      \
  }

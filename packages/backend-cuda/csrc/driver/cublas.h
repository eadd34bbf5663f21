// cuBLAS, opened at run time, for triangular solves and for LU of batches, which cuBLASLt lacks.
// Declarations of our own, as its manual documents them.
#pragma once
#include "driver/libraries.h"

namespace rbcuda {

using BlasHandle = struct BlasHandleObject*;

// Numbers of its headers; tests/test_declarations.py compares each of them. Statuses are those of
// cublaslt.h.
constexpr int kBlasLower = 0, kBlasUpper = 1;                         // cublasFillMode_t
constexpr int kBlasPlain = 0, kBlasTransposed = 1, kBlasAdjoint = 2;  // cublasOperation_t
constexpr int kBlasLeft = 0, kBlasRight = 1;                          // cublasSideMode_t
constexpr int kBlasGeneral = 0, kBlasUnit = 1;                        // cublasDiagType_t

// The letters s, d, c, z stand for the dtype. Arrays of addresses are in the device's memory.
#define RB_CUDA_CUBLAS(X)                                                                          \
  X(create, "cublasCreate_v2", (BlasHandle*))                                                      \
  X(set_stream, "cublasSetStream_v2", (BlasHandle, CuStream))                                      \
  X(set_workspace, "cublasSetWorkspace_v2", (BlasHandle, void*, size_t))                           \
  X(trsm_s, "cublasStrsm_v2",                                                                      \
    (BlasHandle, int, int, int, int, int, int, const void*, const void*, int, void*, int))         \
  X(trsm_d, "cublasDtrsm_v2",                                                                      \
    (BlasHandle, int, int, int, int, int, int, const void*, const void*, int, void*, int))         \
  X(trsm_c, "cublasCtrsm_v2",                                                                      \
    (BlasHandle, int, int, int, int, int, int, const void*, const void*, int, void*, int))         \
  X(trsm_z, "cublasZtrsm_v2",                                                                      \
    (BlasHandle, int, int, int, int, int, int, const void*, const void*, int, void*, int))         \
  X(trsm_batched_s, "cublasStrsmBatched",                                                          \
    (BlasHandle, int, int, int, int, int, int, const void*, const void* const*, int, void* const*, \
     int, int))                                                                                    \
  X(trsm_batched_d, "cublasDtrsmBatched",                                                          \
    (BlasHandle, int, int, int, int, int, int, const void*, const void* const*, int, void* const*, \
     int, int))                                                                                    \
  X(trsm_batched_c, "cublasCtrsmBatched",                                                          \
    (BlasHandle, int, int, int, int, int, int, const void*, const void* const*, int, void* const*, \
     int, int))                                                                                    \
  X(trsm_batched_z, "cublasZtrsmBatched",                                                          \
    (BlasHandle, int, int, int, int, int, int, const void*, const void* const*, int, void* const*, \
     int, int))                                                                                    \
  X(getrf_batched_s, "cublasSgetrfBatched", (BlasHandle, int, void* const*, int, int*, int*, int)) \
  X(getrf_batched_d, "cublasDgetrfBatched", (BlasHandle, int, void* const*, int, int*, int*, int)) \
  X(getrf_batched_c, "cublasCgetrfBatched", (BlasHandle, int, void* const*, int, int*, int*, int)) \
  X(getrf_batched_z, "cublasZgetrfBatched", (BlasHandle, int, void* const*, int, int*, int*, int)) \
  X(getrs_batched_s, "cublasSgetrsBatched",                                                        \
    (BlasHandle, int, int, int, const void* const*, int, const int*, void* const*, int, int*,      \
     int))                                                                                         \
  X(getrs_batched_d, "cublasDgetrsBatched",                                                        \
    (BlasHandle, int, int, int, const void* const*, int, const int*, void* const*, int, int*,      \
     int))                                                                                         \
  X(getrs_batched_c, "cublasCgetrsBatched",                                                        \
    (BlasHandle, int, int, int, const void* const*, int, const int*, void* const*, int, int*,      \
     int))                                                                                         \
  X(getrs_batched_z, "cublasZgetrsBatched",                                                        \
    (BlasHandle, int, int, int, const void* const*, int, const int*, void* const*, int, int*,      \
     int))

struct Cublas {
  RB_CUDA_CUBLAS(RB_CUDA_MEMBER)
};

/// Opened at the first call; null where it is not there.
const Cublas* cublas();
/// Throws RB_E_NOTIMPL, with how to install it, where it is not there: the CPU then takes the call.
void need_cublas();

/// Throw RB_E_DEVICE, or RB_E_OOM, unless `status` is success. `what` failed for `op`.
void check_cublas(int status, int device, const char* what, const char* op);

}  // namespace rbcuda

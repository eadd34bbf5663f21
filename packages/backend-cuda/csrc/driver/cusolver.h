// cuSOLVER's dense routines, opened at run time; declarations of our own, as its manual documents
// them. It is optional: without it factorisations run on the CPU.
#pragma once
#include "driver/libraries.h"

namespace rbcuda {

using SolverHandle = struct SolverHandleObject*;
using SolverParams = struct SolverParamsObject*;
using SolverJacobi = struct SolverJacobiObject*;  // syevjInfo_t

// Numbers of its headers; tests/test_declarations.py compares each of them.
enum SolverStatus {  // cusolverStatus_t
  kSolverNotInitialized = 1,
  kSolverNoMemory = 2,
  kSolverInvalidValue = 3,
  kSolverOtherArchitecture = 4,
  kSolverExecutionFailed = 6,
  kSolverInternalError = 7,
  kSolverNoMatrixType = 8,
  kSolverNotSupported = 9,
};
constexpr int kNoVectors = 0, kVectors = 1;  // cusolverEigMode_t

// `_room` functions return sizes of workspaces: in bytes, on the device and on the host, or in
// elements on the device for routines with a letter for the dtype (s, d, c, z).
#define RB_CUDA_CUSOLVER(X)                                                                        \
  X(create, "cusolverDnCreate", (SolverHandle*))                                                   \
  X(set_stream, "cusolverDnSetStream", (SolverHandle, CuStream))                                   \
  X(create_params, "cusolverDnCreateParams", (SolverParams*))                                      \
  X(potrf_room, "cusolverDnXpotrf_bufferSize",                                                     \
    (SolverHandle, SolverParams, int, int64_t, int, const void*, int64_t, int, size_t*, size_t*))  \
  X(potrf, "cusolverDnXpotrf",                                                                     \
    (SolverHandle, SolverParams, int, int64_t, int, void*, int64_t, int, void*, size_t, void*,     \
     size_t, int*))                                                                                \
  X(getrf_room, "cusolverDnXgetrf_bufferSize",                                                     \
    (SolverHandle, SolverParams, int64_t, int64_t, int, const void*, int64_t, int, size_t*,        \
     size_t*))                                                                                     \
  X(getrf, "cusolverDnXgetrf",                                                                     \
    (SolverHandle, SolverParams, int64_t, int64_t, int, void*, int64_t, int64_t*, int, void*,      \
     size_t, void*, size_t, int*))                                                                 \
  X(getrs, "cusolverDnXgetrs",                                                                     \
    (SolverHandle, SolverParams, int, int64_t, int64_t, int, const void*, int64_t, const int64_t*, \
     int, void*, int64_t, int*))                                                                   \
  X(geqrf_room, "cusolverDnXgeqrf_bufferSize",                                                     \
    (SolverHandle, SolverParams, int64_t, int64_t, int, const void*, int64_t, int, const void*,    \
     int, size_t*, size_t*))                                                                       \
  X(geqrf, "cusolverDnXgeqrf",                                                                     \
    (SolverHandle, SolverParams, int64_t, int64_t, int, void*, int64_t, int, void*, int, void*,    \
     size_t, void*, size_t, int*))                                                                 \
  X(syevd_room, "cusolverDnXsyevd_bufferSize",                                                     \
    (SolverHandle, SolverParams, int, int, int64_t, int, const void*, int64_t, int, const void*,   \
     int, size_t*, size_t*))                                                                       \
  X(syevd, "cusolverDnXsyevd",                                                                     \
    (SolverHandle, SolverParams, int, int, int64_t, int, void*, int64_t, int, void*, int, void*,   \
     size_t, void*, size_t, int*))                                                                 \
  X(gesvd_room, "cusolverDnXgesvd_bufferSize",                                                     \
    (SolverHandle, SolverParams, signed char, signed char, int64_t, int64_t, int, const void*,     \
     int64_t, int, const void*, int, const void*, int64_t, int, const void*, int64_t, int,         \
     size_t*, size_t*))                                                                            \
  X(gesvd, "cusolverDnXgesvd",                                                                     \
    (SolverHandle, SolverParams, signed char, signed char, int64_t, int64_t, int, void*, int64_t,  \
     int, void*, int, void*, int64_t, int, void*, int64_t, int, void*, size_t, void*, size_t,      \
     int*))                                                                                        \
  X(potrf_batched_s, "cusolverDnSpotrfBatched", (SolverHandle, int, int, void**, int, int*, int))  \
  X(potrf_batched_d, "cusolverDnDpotrfBatched", (SolverHandle, int, int, void**, int, int*, int))  \
  X(potrf_batched_c, "cusolverDnCpotrfBatched", (SolverHandle, int, int, void**, int, int*, int))  \
  X(potrf_batched_z, "cusolverDnZpotrfBatched", (SolverHandle, int, int, void**, int, int*, int))  \
  X(orgqr_room_s, "cusolverDnSorgqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, const void*, int, const void*, int*))                            \
  X(orgqr_room_d, "cusolverDnDorgqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, const void*, int, const void*, int*))                            \
  X(orgqr_room_c, "cusolverDnCungqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, const void*, int, const void*, int*))                            \
  X(orgqr_room_z, "cusolverDnZungqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, const void*, int, const void*, int*))                            \
  X(orgqr_s, "cusolverDnSorgqr",                                                                   \
    (SolverHandle, int, int, int, void*, int, const void*, void*, int, int*))                      \
  X(orgqr_d, "cusolverDnDorgqr",                                                                   \
    (SolverHandle, int, int, int, void*, int, const void*, void*, int, int*))                      \
  X(orgqr_c, "cusolverDnCungqr",                                                                   \
    (SolverHandle, int, int, int, void*, int, const void*, void*, int, int*))                      \
  X(orgqr_z, "cusolverDnZungqr",                                                                   \
    (SolverHandle, int, int, int, void*, int, const void*, void*, int, int*))                      \
  X(ormqr_room_s, "cusolverDnSormqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, const void*, int,       \
     int*))                                                                                        \
  X(ormqr_room_d, "cusolverDnDormqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, const void*, int,       \
     int*))                                                                                        \
  X(ormqr_room_c, "cusolverDnCunmqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, const void*, int,       \
     int*))                                                                                        \
  X(ormqr_room_z, "cusolverDnZunmqr_bufferSize",                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, const void*, int,       \
     int*))                                                                                        \
  X(ormqr_s, "cusolverDnSormqr",                                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, void*, int, void*, int, \
     int*))                                                                                        \
  X(ormqr_d, "cusolverDnDormqr",                                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, void*, int, void*, int, \
     int*))                                                                                        \
  X(ormqr_c, "cusolverDnCunmqr",                                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, void*, int, void*, int, \
     int*))                                                                                        \
  X(ormqr_z, "cusolverDnZunmqr",                                                                   \
    (SolverHandle, int, int, int, int, int, const void*, int, const void*, void*, int, void*, int, \
     int*))                                                                                        \
  X(jacobi_create, "cusolverDnCreateSyevjInfo", (SolverJacobi*))                                   \
  X(syevj_room_s, "cusolverDnSsyevjBatched_bufferSize",                                            \
    (SolverHandle, int, int, int, const void*, int, const void*, int*, SolverJacobi, int))         \
  X(syevj_room_d, "cusolverDnDsyevjBatched_bufferSize",                                            \
    (SolverHandle, int, int, int, const void*, int, const void*, int*, SolverJacobi, int))         \
  X(syevj_room_c, "cusolverDnCheevjBatched_bufferSize",                                            \
    (SolverHandle, int, int, int, const void*, int, const void*, int*, SolverJacobi, int))         \
  X(syevj_room_z, "cusolverDnZheevjBatched_bufferSize",                                            \
    (SolverHandle, int, int, int, const void*, int, const void*, int*, SolverJacobi, int))         \
  X(syevj_s, "cusolverDnSsyevjBatched",                                                            \
    (SolverHandle, int, int, int, void*, int, void*, void*, int, int*, SolverJacobi, int))         \
  X(syevj_d, "cusolverDnDsyevjBatched",                                                            \
    (SolverHandle, int, int, int, void*, int, void*, void*, int, int*, SolverJacobi, int))         \
  X(syevj_c, "cusolverDnCheevjBatched",                                                            \
    (SolverHandle, int, int, int, void*, int, void*, void*, int, int*, SolverJacobi, int))         \
  X(syevj_z, "cusolverDnZheevjBatched",                                                            \
    (SolverHandle, int, int, int, void*, int, void*, void*, int, int*, SolverJacobi, int))

struct Cusolver {
  RB_CUDA_CUSOLVER(RB_CUDA_MEMBER)
};

/// Opened at the first call; null where it is not there.
const Cusolver* cusolver();
/// Throws RB_E_NOTIMPL, with how to install it, where it is not there: the CPU then takes the call.
void need_cusolver();

/// Throw RB_E_DEVICE, or RB_E_OOM, unless `status` is success. `what` failed for `op`.
void check_cusolver(int status, int device, const char* what, const char* op);

}  // namespace rbcuda

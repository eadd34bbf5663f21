// cuFFT, opened at run time; declarations of our own, as its manual documents them. It is optional:
// without it Fourier transforms run on the CPU.
#pragma once
#include <string>

#include "driver/libraries.h"

namespace rbcuda {

using FftPlan = int;  // cufftHandle

// Numbers of its headers; tests/test_declarations.py compares each of them.
enum FftStatus {  // cufftResult
  kFftInvalidPlan = 1,
  kFftNoMemory = 2,
  kFftInvalidType = 3,
  kFftInvalidValue = 4,
  kFftInternalError = 5,
  kFftExecutionFailed = 6,
  kFftSetupFailed = 7,
  kFftInvalidSize = 8,
  kFftInvalidDevice = 11,
  kFftNoWorkspace = 13,
  kFftNotImplemented = 14,
  kFftNotSupported = 16,
};
constexpr int kFftForward = -1, kFftBackward = 1;

// Arrays have one size for each dimension; null embeddings: contiguous signals.
#define RB_CUDA_CUFFT(X)                                                                     \
  X(create, "cufftCreate", (FftPlan*))                                                       \
  X(destroy, "cufftDestroy", (FftPlan))                                                      \
  X(set_allocation, "cufftSetAutoAllocation", (FftPlan, int))                                \
  X(make, "cufftXtMakePlanMany",                                                             \
    (FftPlan, int, long long*, long long*, long long, long long, int, long long*, long long, \
     long long, int, long long, size_t*, int))                                               \
  X(set_stream, "cufftSetStream", (FftPlan, CuStream))                                       \
  X(set_workspace, "cufftSetWorkArea", (FftPlan, void*))                                     \
  X(execute, "cufftXtExec", (FftPlan, void*, void*, int))

struct Cufft {
  RB_CUDA_CUFFT(RB_CUDA_MEMBER)
};

/// Opened at the first call; null where it is not there.
const Cufft* cufft();
/// Throws RB_E_NOTIMPL, with how to install it, where it is not there: the CPU then takes the call.
void need_cufft();

/// Throw RB_E_DEVICE, or RB_E_OOM, unless `status` is success. `what` failed for `op`.
void check_cufft(int status, int device, const char* what, const char* op);

}  // namespace rbcuda

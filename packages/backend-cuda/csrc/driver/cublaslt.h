// cuBLASLt, opened at run time; declarations of our own, as its manual documents them. It is
// optional: products have kernels of ours, too.
#pragma once
#include <string>

#include "driver/libraries.h"

namespace rbcuda {

using LtHandle = struct LtHandleObject*;
using LtDescription = struct LtDescriptionObject*;  // cublasLtMatmulDesc_t
using LtLayout = struct LtLayoutObject*;
using LtPreference = struct LtPreferenceObject*;

/// cublasLtMatmulAlgo_t: opaque, may be copied.
struct LtAlgorithm {
  uint64_t data[8];
};
/// cublasLtMatmulHeuristicResult_t
struct LtChoice {
  LtAlgorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

// Numbers of its headers; tests/test_declarations.py compares each of them.
enum LtStatus {  // cublasStatus_t
  kLtNotInitialized = 1,
  kLtNoMemory = 3,
  kLtInvalidValue = 7,
  kLtOtherArchitecture = 8,
  kLtExecutionFailed = 13,
  kLtInternalError = 14,
  kLtNotSupported = 15,
};
constexpr int kR32F = 0, kR64F = 1, kR16F = 2, kR8I = 3, kC32F = 4, kC64F = 5, kR32I = 10,
              kR16BF = 14, kR8E4M3 = 28, kR8E5M2 = 29;  // cudaDataType
constexpr int kCompute32 = 68, kCompute64 = 70, kCompute32I = 72, kComputeTf32 = 77;
constexpr int kTurned = 1;  // CUBLAS_OP_T
constexpr int kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32, kEpilogueDefault = 1;
constexpr int kReductionInOutput = 4, kReductions = 7;  // CUBLASLT_REDUCTION_SCHEME_*

// Attributes of a description, a layout and a preference.
constexpr int kLtTransposeA = 3, kLtTransposeB = 4, kLtEpilogue = 7, kLtBias = 8, kLtScaleA = 17,
              kLtScaleB = 18, kLtFastSums = 25, kLtBiasType = 26;
constexpr int kLtBatchCount = 5, kLtBatchStride = 6;
constexpr int kLtMostWorkspace = 1, kLtReductions = 3, kLtAlignmentA = 5, kLtAlignmentB = 6,
              kLtAlignmentC = 7, kLtAlignmentD = 8;

#define RB_CUDA_CUBLASLT(X)                                                                       \
  X(create, "cublasLtCreate", (LtHandle*))                                                        \
  X(description_create, "cublasLtMatmulDescCreate", (LtDescription*, int, int))                   \
  X(description_set, "cublasLtMatmulDescSetAttribute", (LtDescription, int, const void*, size_t)) \
  X(description_destroy, "cublasLtMatmulDescDestroy", (LtDescription))                            \
  X(layout_create, "cublasLtMatrixLayoutCreate", (LtLayout*, int, uint64_t, uint64_t, int64_t))   \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute", (LtLayout, int, const void*, size_t))         \
  X(layout_destroy, "cublasLtMatrixLayoutDestroy", (LtLayout))                                    \
  X(preference_create, "cublasLtMatmulPreferenceCreate", (LtPreference*))                         \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                       \
    (LtPreference, int, const void*, size_t))                                                     \
  X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (LtPreference))                        \
  X(choose, "cublasLtMatmulAlgoGetHeuristic",                                                     \
    (LtHandle, LtDescription, LtLayout, LtLayout, LtLayout, LtLayout, LtPreference, int,          \
     LtChoice*, int*))                                                                            \
  X(multiply, "cublasLtMatmul",                                                                   \
    (LtHandle, LtDescription, const void*, const void*, LtLayout, const void*, LtLayout,          \
     const void*, const void*, LtLayout, void*, LtLayout, const LtAlgorithm*, void*, size_t,      \
     CuStream))

struct CublasLt {
  RB_CUDA_CUBLASLT(RB_CUDA_MEMBER)
};

/// Opened at the first call; null where it is not there.
const CublasLt* cublaslt();

/// What to say where `what` has given `status`.
std::string cublaslt_failure(const char* what, int status);

/// Throw RB_E_DEVICE unless `status` is success.
void check_cublaslt(int status, int device, const char* what);

}  // namespace rbcuda

// cuDNN's backend API, opened at run time; declarations of our own, as its manual documents them.
// It is optional: what it computes has kernels of ours, too.
#pragma once
#include "driver/libraries.h"

namespace rbcuda {

using DnnHandle = struct DnnHandleObject*;
using DnnDescriptor = void*;  // cudnnBackendDescriptor_t

// 3000 to 3999.
inline bool is_dnn_unsupported(int status) { return status / 1000 == 3; }

enum DnnKind {  // cudnnBackendDescriptorType_t
  kDnnConvolution = 1,
  kDnnEngineConfig = 3,
  kDnnHeuristics = 4,
  kDnnPlan = 5,
  kDnnForward = 10,
  kDnnBackwardFilter = 11,
  kDnnBackwardData = 12,
  kDnnGraph = 15,
  kDnnVariantPack = 16,
  kDnnTensor = 17,
};
enum DnnType {  // cudnnBackendAttributeType_t
  kDnnAsHandle = 0,
  kDnnAsDataType = 1,
  kDnnAsInt64 = 3,
  kDnnAsFloat = 4,
  kDnnAsPointer = 6,
  kDnnAsConvolutionMode = 7,
  kDnnAsHeuristicsMode = 8,
  kDnnAsDescriptor = 15,
};
enum DnnAttribute {  // cudnnBackendAttributeName_t
  kDnnConvolutionCompute = 100,
  kDnnConvolutionMode = 101,
  kDnnConvolutionDilations = 102,
  kDnnConvolutionStrides = 103,
  kDnnConvolutionPaddingAfter = 104,
  kDnnConvolutionPaddingBefore = 105,
  kDnnConvolutionDims = 106,
  kDnnHeuristicsMode = 200,
  kDnnHeuristicsGraph = 201,
  kDnnHeuristicsResults = 202,
  kDnnPlanHandle = 400,
  kDnnPlanConfig = 401,
  kDnnPlanWorkspace = 402,
  kDnnGraphHandle = 800,
  kDnnGraphOperations = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorShape = 902,
  kDnnTensorStrides = 903,
  kDnnTensorName = 906,
  kDnnPackNames = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
};
constexpr int kDnnCrossCorrelation = 1, kDnnModeFallback = 2, kDnnModeA = 3;
constexpr int kDnnFloat = 0, kDnnHalf = 2, kDnnBFloat16 = 9;  // cudnnDataType_t

#define RB_CUDA_CUDNN(X)                                                                  \
  X(create, "cudnnCreate", (DnnHandle*))                                                  \
  X(set_stream, "cudnnSetStream", (DnnHandle, CuStream))                                  \
  X(make, "cudnnBackendCreateDescriptor", (int, DnnDescriptor*))                          \
  X(destroy, "cudnnBackendDestroyDescriptor", (DnnDescriptor))                            \
  X(finalize, "cudnnBackendFinalize", (DnnDescriptor))                                    \
  X(set, "cudnnBackendSetAttribute", (DnnDescriptor, int, int, int64_t, const void*))     \
  X(get, "cudnnBackendGetAttribute", (DnnDescriptor, int, int, int64_t, int64_t*, void*)) \
  X(execute, "cudnnBackendExecute", (DnnHandle, DnnDescriptor, DnnDescriptor))

struct Cudnn {
  RB_CUDA_CUDNN(RB_CUDA_MEMBER)
};

/// Opened at the first call; null where it is not there.
const Cudnn* cudnn();

/// Throw RB_E_NOTIMPL where cuDNN does not support it, RB_E_DEVICE for other failures.
void check_cudnn(int status, int device, const char* what);

}  // namespace rbcuda

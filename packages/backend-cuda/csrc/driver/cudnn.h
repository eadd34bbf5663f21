// cuDNN's backend API, opened at run time; declarations of our own, as its manual documents them.
// It is optional: what it computes has kernels of ours, too. tests/test_declarations.py compares
// each number with those of its headers.
#pragma once
#include "driver/libraries.h"

namespace rbcuda {

using DnnHandle = struct DnnHandleObject*;
using DnnDescriptor = void*;  // cudnnBackendDescriptor_t

// 3000 to 3999.
inline bool is_dnn_unsupported(int status) { return status / 1000 == 3; }

enum DnnKind {  // cudnnBackendDescriptorType_t
  kDnnPointwise = 0,
  kDnnConvolution = 1,
  kDnnEngine = 2,
  kDnnEngineConfig = 3,
  kDnnHeuristics = 4,
  kDnnPlan = 5,
  kDnnForward = 10,
  kDnnBackwardFilter = 11,
  kDnnBackwardData = 12,
  kDnnDoPointwise = 13,
  kDnnGraph = 15,
  kDnnVariantPack = 16,
  kDnnTensor = 17,
  kDnnMatmul = 18,
  kDnnDoMatmul = 19,
  kDnnReduction = 21,
  kDnnDoReduction = 22,
  kDnnDoReshape = 31,
};
enum DnnType {  // cudnnBackendAttributeType_t
  kDnnAsHandle = 0,
  kDnnAsDataType = 1,
  kDnnAsBool = 2,
  kDnnAsInt64 = 3,
  kDnnAsFloat = 4,
  kDnnAsPointer = 6,
  kDnnAsConvolutionMode = 7,
  kDnnAsHeuristicsMode = 8,
  kDnnAsNote = 11,
  kDnnAsPointwiseMode = 14,
  kDnnAsDescriptor = 15,
  kDnnAsReductionMode = 18,
  kDnnAsReordering = 20,
  kDnnAsChar = 24,
};
enum DnnAttribute {  // cudnnBackendAttributeName_t
  kDnnPointwiseMode = 0,
  kDnnPointwiseCompute = 1,
  kDnnPointwiseAxis = 9,
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
  kDnnConfigEngine = 300,
  kDnnPlanHandle = 400,
  kDnnPlanConfig = 401,
  kDnnPlanWorkspace = 402,
  kDnnPlanText = 405,
  kDnnForwardAlpha = 700,
  kDnnForwardBeta = 701,
  kDnnForwardHow = 702,
  kDnnForwardW = 703,
  kDnnForwardX = 704,
  kDnnForwardY = 705,
  kDnnBackwardDataAlpha = 706,
  kDnnBackwardDataBeta = 707,
  kDnnBackwardDataHow = 708,
  kDnnBackwardDataW = 709,
  kDnnBackwardDataDx = 710,
  kDnnBackwardDataDy = 711,
  kDnnBackwardFilterAlpha = 712,
  kDnnBackwardFilterBeta = 713,
  kDnnBackwardFilterHow = 714,
  kDnnBackwardFilterDw = 715,
  kDnnBackwardFilterX = 716,
  kDnnBackwardFilterDy = 717,
  kDnnPointwiseHow = 750,
  kDnnPointwiseX = 751,
  kDnnPointwiseB = 752,
  kDnnPointwiseY = 753,
  kDnnPointwiseT = 758,
  kDnnGraphHandle = 800,
  kDnnGraphOperations = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorShape = 902,
  kDnnTensorStrides = 903,
  kDnnTensorName = 906,
  kDnnTensorVirtual = 907,
  kDnnTensorByValue = 908,
  kDnnTensorReordering = 909,
  kDnnPackNames = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
  kDnnEngineNotes = 1303,
  kDnnMatmulCompute = 1500,
  kDnnMatmulA = 1520,
  kDnnMatmulB = 1521,
  kDnnMatmulC = 1522,
  kDnnMatmulHow = 1523,
  kDnnReductionMode = 1600,
  kDnnReductionCompute = 1601,
  kDnnReductionX = 1610,
  kDnnReductionY = 1611,
  kDnnReductionHow = 1612,
  kDnnReshapeX = 2200,
  kDnnReshapeY = 2201,
};
constexpr int kDnnCrossCorrelation = 1, kDnnModeFallback = 2, kDnnModeA = 3;
constexpr int kDnnNoteTensorCore = 0, kDnnNoteLessPrecise = 1, kDnnNoteVaries = 4;
enum DnnPointwiseMode {  // cudnnPointwiseMode_t
  kDnnAdd = 0,
  kDnnMultiply = 1,
  kDnnDivide = 6,
  kDnnSubtract = 9,
  kDnnExp = 13,
  kDnnLog = 15,
  kDnnIdentity = 21,
  kDnnAtLeast = 303,
  kDnnIndex = 501,
  kDnnSelect = 601,
};
constexpr int kDnnReduceAdd = 0, kDnnReduceMax = 3;  // cudnnReduceTensorOp_t
constexpr int kDnnPlain = 0, kDnnF16x16 = 2;         // cudnnBackendTensorReordering_t
// cudnnDataType_t
constexpr int kDnnFloat = 0, kDnnHalf = 2, kDnnInt32 = 4, kDnnBFloat16 = 9, kDnnBoolean = 11;

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
  const char* (*error_string)(int status);
};

/// Opened at the first call; null where it is not there.
const Cudnn* cudnn();

/// Such as 91900 for 9.19.0; 0 where it is not there. Its parts need not be open for this.
int64_t cudnn_version();

/// Throw RB_E_NOTIMPL where cuDNN does not support it, RB_E_DEVICE for other failures, which name
/// the operator.
void check_cudnn(int status, int device, const char* what, const char* op = nullptr);

}  // namespace rbcuda

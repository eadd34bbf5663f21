"""Our declarations of NVIDIA's libraries beside their own headers, and the functions we ask for beside the libraries.

Headers are looked for in $RABBET_TEST_CUDA_HEADERS (folders between colons), the nvidia-* wheels and /usr/local/cuda. Of
the test group only nvrtc.h is there: cuda.h comes with nvidia-cuda-runtime, the others with nvidia-cublas and nvidia-cudnn.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
DRIVER = PACKAGE / "csrc/driver"
FOLDERS = ("include", "lib")

# What compares two declarations: numbers, pointers by what they point to, structs by their size.
COMPARE = r"""
#include <cstddef>
#include <cstdint>
#include <type_traits>
template <class T, class = void> struct Complete : std::false_type {};
template <class T> struct Complete<T, decltype(void(sizeof(T)))> : std::true_type {};
template <class A, class B> struct Same;
template <class A, class B> constexpr bool same() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using P = std::remove_cv_t<std::remove_pointer_t<A>>;
    using Q = std::remove_cv_t<std::remove_pointer_t<B>>;
    if constexpr (std::is_function_v<P> || std::is_function_v<Q>) return Same<P, Q>::value;
    else if constexpr (std::is_void_v<P> || std::is_void_v<Q>) return true;
    else if constexpr (!Complete<P>::value || !Complete<Q>::value)
      return std::is_class_v<P> && std::is_class_v<Q>;
    else return same<P, Q>();
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
           std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
           std::is_class_v<A> == std::is_class_v<B> && std::is_pointer_v<A> == std::is_pointer_v<B>;
  }
}
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class R, class S, class... A, class... B> struct Same<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return same<R, S>() && (same<A, B>() && ...);
  }();
};
#define NUMBER(ours, theirs) static_assert((long long)(ours) == (long long)(theirs), #theirs);
#define FUNCTION(table, member, name) \
  static_assert(Same<std::remove_pointer_t<decltype(rbcuda::table::member)>, decltype(::name)>::value, #name);
#define STRUCT(ours, theirs) \
  static_assert(sizeof(rbcuda::ours) == sizeof(theirs) && alignof(rbcuda::ours) == alignof(theirs), #theirs);
#define MEMBER(ours, member, theirs, their_member) \
  static_assert(offsetof(rbcuda::ours, member) == offsetof(theirs, their_member) && \
      sizeof(rbcuda::ours::member) == sizeof(theirs::their_member), #theirs "::" #their_member);
"""

NUMBERS = {
    "libraries.h": """
kSuccess CUDA_SUCCESS  kOutOfMemory CUDA_ERROR_OUT_OF_MEMORY  kNoDevice CUDA_ERROR_NO_DEVICE
kNotReady CUDA_ERROR_NOT_READY  kEccError CUDA_ERROR_ECC_UNCORRECTABLE  kNvlinkError CUDA_ERROR_NVLINK_UNCORRECTABLE
kContained CUDA_ERROR_CONTAINED  kIllegalAddress CUDA_ERROR_ILLEGAL_ADDRESS  kLaunchTimeout CUDA_ERROR_LAUNCH_TIMEOUT
kContextDestroyed CUDA_ERROR_CONTEXT_IS_DESTROYED  kAssertion CUDA_ERROR_ASSERT
kHardwareStack CUDA_ERROR_HARDWARE_STACK_ERROR  kIllegalInstruction CUDA_ERROR_ILLEGAL_INSTRUCTION
kMisalignedAddress CUDA_ERROR_MISALIGNED_ADDRESS  kInvalidAddressSpace CUDA_ERROR_INVALID_ADDRESS_SPACE
kInvalidProgramCounter CUDA_ERROR_INVALID_PC  kLaunchFailed CUDA_ERROR_LAUNCH_FAILED
kTensorMemoryLeak CUDA_ERROR_TENSOR_MEMORY_LEAK  kCaptureUnsupported CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
kCaptureWrongThread CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
kThreadsOfBlock CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
kSharedOfBlock CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK  kWarpSize CU_DEVICE_ATTRIBUTE_WARP_SIZE
kClockRate CU_DEVICE_ATTRIBUTE_CLOCK_RATE  kMultiprocessors CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
kIntegrated CU_DEVICE_ATTRIBUTE_INTEGRATED  kPciBus CU_DEVICE_ATTRIBUTE_PCI_BUS_ID
kPciDevice CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID  kMemoryClockRate CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE
kMemoryBusWidth CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH  kL2Size CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
kThreadsOfMultiprocessor CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR
kPciDomain CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID  kMajor CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
kMinor CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
kSharedOfMultiprocessor CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
kRegistersOfMultiprocessor CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR
kMultiGpuBoard CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD
kMostSharedOfBlock CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
kVirtualMemory CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
kStreamNonBlocking CU_STREAM_NON_BLOCKING  kEventNoTiming CU_EVENT_DISABLE_TIMING
kEventInterprocess CU_EVENT_INTERPROCESS
kPortable CU_MEMHOSTALLOC_PORTABLE  kManagedGlobal CU_MEM_ATTACH_GLOBAL
kIpcLazyPeers CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS  kDumpVerbose CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE
kCaptureThreadLocal CU_STREAM_CAPTURE_MODE_THREAD_LOCAL  kCaptureRelaxed CU_STREAM_CAPTURE_MODE_RELAXED
kOnDevice CU_MEM_LOCATION_TYPE_DEVICE  kPinnedType CU_MEM_ALLOCATION_TYPE_PINNED
kReadWrite CU_MEM_ACCESS_FLAGS_PROT_READWRITE  kLeastGranularity CU_MEM_ALLOC_GRANULARITY_MINIMUM
""",
    "cublaslt.h": """
kLtNotInitialized CUBLAS_STATUS_NOT_INITIALIZED  kLtNoMemory CUBLAS_STATUS_ALLOC_FAILED
kLtInvalidValue CUBLAS_STATUS_INVALID_VALUE  kLtOtherArchitecture CUBLAS_STATUS_ARCH_MISMATCH
kLtExecutionFailed CUBLAS_STATUS_EXECUTION_FAILED  kLtInternalError CUBLAS_STATUS_INTERNAL_ERROR
kLtNotSupported CUBLAS_STATUS_NOT_SUPPORTED
kR32F CUDA_R_32F  kR64F CUDA_R_64F  kR16F CUDA_R_16F  kC32F CUDA_C_32F  kC64F CUDA_C_64F  kR16BF CUDA_R_16BF
kR8I CUDA_R_8I  kR32I CUDA_R_32I  kR8E4M3 CUDA_R_8F_E4M3  kR8E5M2 CUDA_R_8F_E5M2  kCompute32I CUBLAS_COMPUTE_32I
kCompute32 CUBLAS_COMPUTE_32F  kCompute64 CUBLAS_COMPUTE_64F  kComputeTf32 CUBLAS_COMPUTE_32F_FAST_TF32
kTurned CUBLAS_OP_T  kEpilogueRelu CUBLASLT_EPILOGUE_RELU  kEpilogueBias CUBLASLT_EPILOGUE_BIAS
kEpilogueGelu CUBLASLT_EPILOGUE_GELU  kEpilogueDefault CUBLASLT_EPILOGUE_DEFAULT
kReductionInOutput CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE  kReductions CUBLASLT_REDUCTION_SCHEME_MASK
kLtTransposeA CUBLASLT_MATMUL_DESC_TRANSA  kLtTransposeB CUBLASLT_MATMUL_DESC_TRANSB
kLtEpilogue CUBLASLT_MATMUL_DESC_EPILOGUE  kLtBias CUBLASLT_MATMUL_DESC_BIAS_POINTER
kLtScaleA CUBLASLT_MATMUL_DESC_A_SCALE_POINTER  kLtScaleB CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
kLtFastSums CUBLASLT_MATMUL_DESC_FAST_ACCUM  kLtBiasType CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
kLtBatchCount CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT  kLtBatchStride CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
kLtMostWorkspace CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
kLtReductions CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
kLtAlignmentA CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES  kLtAlignmentB CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
kLtAlignmentC CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES  kLtAlignmentD CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
""",
    "cusolver.h": """
kSolverNotInitialized CUSOLVER_STATUS_NOT_INITIALIZED  kSolverNoMemory CUSOLVER_STATUS_ALLOC_FAILED
kSolverInvalidValue CUSOLVER_STATUS_INVALID_VALUE  kSolverOtherArchitecture CUSOLVER_STATUS_ARCH_MISMATCH
kSolverExecutionFailed CUSOLVER_STATUS_EXECUTION_FAILED  kSolverInternalError CUSOLVER_STATUS_INTERNAL_ERROR
kSolverNoMatrixType CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED  kSolverNotSupported CUSOLVER_STATUS_NOT_SUPPORTED
kNoVectors CUSOLVER_EIG_MODE_NOVECTOR  kVectors CUSOLVER_EIG_MODE_VECTOR
""",
    "cublas.h": """
kBlasLower CUBLAS_FILL_MODE_LOWER  kBlasUpper CUBLAS_FILL_MODE_UPPER  kBlasPlain CUBLAS_OP_N
kBlasTransposed CUBLAS_OP_T  kBlasAdjoint CUBLAS_OP_C  kBlasLeft CUBLAS_SIDE_LEFT  kBlasRight CUBLAS_SIDE_RIGHT
kBlasGeneral CUBLAS_DIAG_NON_UNIT  kBlasUnit CUBLAS_DIAG_UNIT
""",
    "cufft.h": """
kFftInvalidPlan CUFFT_INVALID_PLAN  kFftNoMemory CUFFT_ALLOC_FAILED  kFftInvalidType CUFFT_INVALID_TYPE
kFftInvalidValue CUFFT_INVALID_VALUE  kFftInternalError CUFFT_INTERNAL_ERROR  kFftExecutionFailed CUFFT_EXEC_FAILED
kFftSetupFailed CUFFT_SETUP_FAILED  kFftInvalidSize CUFFT_INVALID_SIZE  kFftInvalidDevice CUFFT_INVALID_DEVICE
kFftNoWorkspace CUFFT_NO_WORKSPACE  kFftNotImplemented CUFFT_NOT_IMPLEMENTED  kFftNotSupported CUFFT_NOT_SUPPORTED
kFftForward CUFFT_FORWARD  kFftBackward CUFFT_INVERSE
""",
    "cudnn.h": """
kDnnPointwise CUDNN_BACKEND_POINTWISE_DESCRIPTOR  kDnnConvolution CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
kDnnEngine CUDNN_BACKEND_ENGINE_DESCRIPTOR  kDnnEngineConfig CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
kDnnHeuristics CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR  kDnnPlan CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
kDnnForward CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
kDnnBackwardFilter CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
kDnnBackwardData CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
kDnnDoPointwise CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR  kDnnGraph CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
kDnnVariantPack CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR  kDnnTensor CUDNN_BACKEND_TENSOR_DESCRIPTOR
kDnnMatmul CUDNN_BACKEND_MATMUL_DESCRIPTOR  kDnnDoMatmul CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
kDnnReduction CUDNN_BACKEND_REDUCTION_DESCRIPTOR  kDnnDoReduction CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
kDnnDoReshape CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR
kDnnAsHandle CUDNN_TYPE_HANDLE  kDnnAsDataType CUDNN_TYPE_DATA_TYPE  kDnnAsBool CUDNN_TYPE_BOOLEAN
kDnnAsInt64 CUDNN_TYPE_INT64  kDnnAsFloat CUDNN_TYPE_FLOAT  kDnnAsPointer CUDNN_TYPE_VOID_PTR
kDnnAsConvolutionMode CUDNN_TYPE_CONVOLUTION_MODE  kDnnAsHeuristicsMode CUDNN_TYPE_HEUR_MODE
kDnnAsNote CUDNN_TYPE_NUMERICAL_NOTE  kDnnAsPointwiseMode CUDNN_TYPE_POINTWISE_MODE
kDnnAsDescriptor CUDNN_TYPE_BACKEND_DESCRIPTOR  kDnnAsReductionMode CUDNN_TYPE_REDUCTION_OPERATOR_TYPE
kDnnAsReordering CUDNN_TYPE_TENSOR_REORDERING_MODE
kDnnAsChar CUDNN_TYPE_CHAR
kDnnPointwiseMode CUDNN_ATTR_POINTWISE_MODE  kDnnPointwiseCompute CUDNN_ATTR_POINTWISE_MATH_PREC
kDnnPointwiseAxis CUDNN_ATTR_POINTWISE_AXIS  kDnnConvolutionCompute CUDNN_ATTR_CONVOLUTION_COMP_TYPE
kDnnConvolutionMode CUDNN_ATTR_CONVOLUTION_CONV_MODE  kDnnConvolutionDilations CUDNN_ATTR_CONVOLUTION_DILATIONS
kDnnConvolutionStrides CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES
kDnnConvolutionPaddingAfter CUDNN_ATTR_CONVOLUTION_POST_PADDINGS
kDnnConvolutionPaddingBefore CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS
kDnnConvolutionDims CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS  kDnnHeuristicsMode CUDNN_ATTR_ENGINEHEUR_MODE
kDnnHeuristicsGraph CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH  kDnnHeuristicsResults CUDNN_ATTR_ENGINEHEUR_RESULTS
kDnnConfigEngine CUDNN_ATTR_ENGINECFG_ENGINE  kDnnPlanHandle CUDNN_ATTR_EXECUTION_PLAN_HANDLE
kDnnPlanConfig CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG  kDnnPlanWorkspace CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
kDnnPlanText CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION
kDnnForwardAlpha CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA
kDnnForwardBeta CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA
kDnnForwardHow CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC
kDnnForwardW CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W  kDnnForwardX CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
kDnnForwardY CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
kDnnBackwardDataAlpha CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
kDnnBackwardDataBeta CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
kDnnBackwardDataHow CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
kDnnBackwardDataW CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
kDnnBackwardDataDx CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
kDnnBackwardDataDy CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
kDnnBackwardFilterAlpha CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA
kDnnBackwardFilterBeta CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA
kDnnBackwardFilterHow CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC
kDnnBackwardFilterDw CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW
kDnnBackwardFilterX CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X
kDnnBackwardFilterDy CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY
kDnnPointwiseHow CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR
kDnnPointwiseX CUDNN_ATTR_OPERATION_POINTWISE_XDESC  kDnnPointwiseB CUDNN_ATTR_OPERATION_POINTWISE_BDESC
kDnnPointwiseY CUDNN_ATTR_OPERATION_POINTWISE_YDESC  kDnnPointwiseT CUDNN_ATTR_OPERATION_POINTWISE_TDESC
kDnnGraphHandle CUDNN_ATTR_OPERATIONGRAPH_HANDLE  kDnnGraphOperations CUDNN_ATTR_OPERATIONGRAPH_OPS
kDnnTensorAlignment CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT  kDnnTensorType CUDNN_ATTR_TENSOR_DATA_TYPE
kDnnTensorShape CUDNN_ATTR_TENSOR_DIMENSIONS  kDnnTensorStrides CUDNN_ATTR_TENSOR_STRIDES
kDnnTensorName CUDNN_ATTR_TENSOR_UNIQUE_ID  kDnnTensorVirtual CUDNN_ATTR_TENSOR_IS_VIRTUAL
kDnnTensorByValue CUDNN_ATTR_TENSOR_IS_BY_VALUE  kDnnTensorReordering CUDNN_ATTR_TENSOR_REORDERING_MODE
kDnnPackNames CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS
kDnnPackPointers CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS  kDnnPackWorkspace CUDNN_ATTR_VARIANT_PACK_WORKSPACE
kDnnEngineNotes CUDNN_ATTR_ENGINE_NUMERICAL_NOTE  kDnnMatmulCompute CUDNN_ATTR_MATMUL_COMP_TYPE
kDnnMatmulA CUDNN_ATTR_OPERATION_MATMUL_ADESC  kDnnMatmulB CUDNN_ATTR_OPERATION_MATMUL_BDESC
kDnnMatmulC CUDNN_ATTR_OPERATION_MATMUL_CDESC  kDnnMatmulHow CUDNN_ATTR_OPERATION_MATMUL_DESC
kDnnReductionMode CUDNN_ATTR_REDUCTION_OPERATOR  kDnnReductionCompute CUDNN_ATTR_REDUCTION_COMP_TYPE
kDnnReductionX CUDNN_ATTR_OPERATION_REDUCTION_XDESC  kDnnReductionY CUDNN_ATTR_OPERATION_REDUCTION_YDESC
kDnnReductionHow CUDNN_ATTR_OPERATION_REDUCTION_DESC  kDnnReshapeX CUDNN_ATTR_OPERATION_RESHAPE_XDESC
kDnnReshapeY CUDNN_ATTR_OPERATION_RESHAPE_YDESC
kDnnCrossCorrelation CUDNN_CROSS_CORRELATION  kDnnModeFallback CUDNN_HEUR_MODE_FALLBACK
kDnnModeA CUDNN_HEUR_MODE_A  kDnnNoteTensorCore CUDNN_NUMERICAL_NOTE_TENSOR_CORE
kDnnNoteLessPrecise CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS
kDnnNoteVaries CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
kDnnAdd CUDNN_POINTWISE_ADD  kDnnMultiply CUDNN_POINTWISE_MUL  kDnnDivide CUDNN_POINTWISE_DIV
kDnnSubtract CUDNN_POINTWISE_SUB  kDnnExp CUDNN_POINTWISE_EXP  kDnnLog CUDNN_POINTWISE_LOG
kDnnIdentity CUDNN_POINTWISE_IDENTITY  kDnnAtLeast CUDNN_POINTWISE_CMP_GE
kDnnIndex CUDNN_POINTWISE_GEN_INDEX  kDnnSelect CUDNN_POINTWISE_BINARY_SELECT
kDnnReduceAdd CUDNN_REDUCE_TENSOR_ADD  kDnnReduceMax CUDNN_REDUCE_TENSOR_MAX
kDnnPlain CUDNN_TENSOR_REORDERING_NONE  kDnnF16x16 CUDNN_TENSOR_REORDERING_F16x16
kDnnFloat CUDNN_DATA_FLOAT  kDnnHalf CUDNN_DATA_HALF  kDnnInt32 CUDNN_DATA_INT32
kDnnBFloat16 CUDNN_DATA_BFLOAT16  kDnnBoolean CUDNN_DATA_BOOLEAN
""",
}
# Of the simulated driver; its enum is in another namespace.
SIMULATED = """
kOk CUDA_SUCCESS  kInvalid CUDA_ERROR_INVALID_VALUE  kOutOfMemory CUDA_ERROR_OUT_OF_MEMORY
kNoDevice CUDA_ERROR_NO_DEVICE  kInvalidDevice CUDA_ERROR_INVALID_DEVICE
kBadImage CUDA_ERROR_INVALID_IMAGE  kInvalidContext CUDA_ERROR_INVALID_CONTEXT
kPeerEnabled CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED  kPeerNotEnabled CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
kPeerUnsupported CUDA_ERROR_PEER_ACCESS_UNSUPPORTED  kInvalidHandle CUDA_ERROR_INVALID_HANDLE
kNotFound CUDA_ERROR_NOT_FOUND  kNotReady CUDA_ERROR_NOT_READY  kIllegalAddress CUDA_ERROR_ILLEGAL_ADDRESS
kMisaligned CUDA_ERROR_MISALIGNED_ADDRESS
kNotPermitted CUDA_ERROR_NOT_PERMITTED  kNotSupported CUDA_ERROR_NOT_SUPPORTED  kLaunchFailed CUDA_ERROR_LAUNCH_FAILED
kCaptureUnsupported CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED  kCaptureInvalidated CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
kCaptureMerge CUDA_ERROR_STREAM_CAPTURE_MERGE  kCaptureUnmatched CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
kCaptureUnjoined CUDA_ERROR_STREAM_CAPTURE_UNJOINED  kCaptureIsolation CUDA_ERROR_STREAM_CAPTURE_ISOLATION
kCaptureImplicit CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  kCapturedEvent CUDA_ERROR_CAPTURED_EVENT
kCaptureWrongThread CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
"""
# Newer than CUDA 12.0, whose headers have none of them.
NEWER = {"CUDA_ERROR_CONTAINED": 12040, "CUDA_ERROR_TENSOR_MEMORY_LEAK": 12080}
NEWER |= {"cuFuncLoad": 12040}

STRUCTS = {
    "libraries.h": {
        ("CuUuid", "CUuuid"): "bytes bytes",
        ("CuIpcHandle", "CUipcMemHandle"): "bytes reserved",
        ("CuIpcHandle", "CUipcEventHandle"): "bytes reserved",
        ("CuLocation", "CUmemLocation"): "type type  id id",
        (
            "CuMemoryProperties",
            "CUmemAllocationProp",
        ): "type type  handle_types requestedHandleTypes"
        "  location location  windows win32HandleMetaData  flags allocFlags",
        ("CuAccess", "CUmemAccessDesc"): "location location  flags flags",
    },
    "cublaslt.h": {
        ("LtAlgorithm", "cublasLtMatmulAlgo_t"): "data data",
        ("LtChoice", "cublasLtMatmulHeuristicResult_t"): "algorithm algo  workspace workspaceSize"
        "  status state  waves wavesCount  reserved reserved",
    },
    "cudnn.h": {},
    "cufft.h": {},
    "cublas.h": {},
    "cusolver.h": {},
}
# Our header, a table of functions with its lists, their header, whether the list is in our header.
TABLES = {
    "driver": ("libraries.h", "Driver", ("RB_CUDA_DRIVER", "RB_CUDA_OPTIONAL"), "cuda.h"),
    "nvrtc": ("libraries.h", "Nvrtc", ("RB_CUDA_NVRTC", "RB_CUDA_NVRTC_OPTIONAL"), "nvrtc.h"),
    "cublasLt": ("cublaslt.h", "CublasLt", ("RB_CUDA_CUBLASLT",), "cublasLt.h"),
    "cudnn": ("cudnn.h", "Cudnn", ("RB_CUDA_CUDNN",), "cudnn_graph.h"),
    "cufft": ("cufft.h", "Cufft", ("RB_CUDA_CUFFT",), "cufftXt.h"),
    "cublas": ("cublas.h", "Cublas", ("RB_CUDA_CUBLAS",), "cublas_v2.h"),
    "cusolver": ("cusolver.h", "Cusolver", ("RB_CUDA_CUSOLVER",), "cusolverDn.h"),
}


def pairs(text):
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=True))


def functions(name):
    """Members and symbols of a table."""
    header, _, lists, _ = TABLES[name]
    text = (DRIVER / header).read_text().replace("\\\n", " ")
    found = []
    for kind in lists:
        body = re.search(rf"#define {kind}\(X\)(.*)", text)[1]
        found += re.findall(r'X\((\w+),\s*"(\w+)"', body)
    return found


def constants(header):
    """Every number of a header: enumerators and constexpr."""
    text = re.sub(r"//.*", "", (DRIVER / header).read_text())
    chosen = [m[1] for m in re.finditer(r"\benum \w+ \{(.*?)\};", text, re.S)]
    chosen += [m[1] for m in re.finditer(r"\bconstexpr \w+ (.*?);", text, re.S)]
    return {name for part in chosen for name in re.findall(r"(\w+) =", part)}


def nvidia_folders(kind):
    """Folders of the wheels, `kind` being include or lib; of RABBET_TEST_CUDA_HEADERS and /usr/local, too."""
    given = filter(None, os.environ.get("RABBET_TEST_CUDA_HEADERS", "").split(":"))
    found = [Path(folder) for folder in given]
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        found += sorted(Path(root).glob(f"*/{kind}"))
    found += [Path("/usr/local/cuda") / ("include" if kind == "include" else "lib64")]
    return [folder for folder in found if folder.is_dir()]


def check(text, name, tmp_path):
    """Compile assertions beside the header of `name`; skip where it is not there."""
    header = TABLES[name][3]
    folders = nvidia_folders("include")
    if not any((folder / header).exists() for folder in folders):
        pytest.skip(f"{header} is not here: RABBET_TEST_CUDA_HEADERS names its folder")
    if not shutil.which("g++"):
        pytest.skip("g++ is not here")
    ours = f'{COMPARE}\n#include "driver/{TABLES[name][0]}"\n#include "{PACKAGE}/sim/status.h"\n'
    (tmp_path / "check.cpp").write_text(f"{ours}#include <{header}>\n{text}\n")
    # Where CUDA's runtime is not there, cuDNN needs no more than this of it.
    stand_in = tmp_path / "otherwise"
    stand_in.mkdir()
    (stand_in / "cuda_runtime.h").write_text("typedef struct CUstream_st* cudaStream_t;\n")
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", f"-I{PACKAGE}/csrc"]
    for folder in folders:
        command += ["-isystem", folder]
    command += ["-idirafter", stand_in, tmp_path / "check.cpp"]
    done = subprocess.run(command, capture_output=True, text=True)
    missing = re.search(r"fatal error: (\S+): No such file", done.stderr)
    if missing and not missing[1].startswith(("driver/", str(PACKAGE))):
        pytest.skip(f"{header} needs {missing[1]}, which is not here")
    return done


def number(ours, theirs):
    line = f"NUMBER({ours}, {theirs})"
    since = NEWER.get(theirs)
    return f"#if CUDA_VERSION >= {since}\n{line}\n#endif" if since else line


def assertions(name):
    header, table, _, _ = TABLES[name]
    lines = []
    if name != "nvrtc":
        lines += [number(f"rbcuda::{ours}", real) for ours, real in pairs(NUMBERS[header])]
        for (ours, theirs), members in STRUCTS[header].items():
            lines.append(f"STRUCT({ours}, {theirs})")
            lines += [f"MEMBER({ours}, {a}, {theirs}, {b})" for a, b in pairs(members)]
    for member, symbol in functions(name):
        line = f"FUNCTION({table}, {member}, {symbol})"
        since = NEWER.get(symbol)
        lines.append(f"#if CUDA_VERSION >= {since}\n{line}\n#endif" if since else line)
    return "\n".join(lines)


@pytest.mark.parametrize("name", TABLES)
def test_declarations_are_those_of_the_headers(name, tmp_path):
    done = check(assertions(name), name, tmp_path)
    assert done.returncode == 0, done.stderr[:5000]


def test_results_of_the_simulated_driver_are_the_header_s(tmp_path):
    text = "\n".join(f"NUMBER(cusim::{ours}, {real})" for ours, real in pairs(SIMULATED))
    done = check(text, "driver", tmp_path)
    assert done.returncode == 0, done.stderr[:5000]


@pytest.mark.parametrize(
    "name,wrong,said",
    [
        ("driver", "NUMBER(rbcuda::kL2Size + 1, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)", "L2_CACHE"),
        ("driver", "FUNCTION(Driver, allocate, cuMemFree_v2)", "cuMemFree_v2"),
        ("driver", "FUNCTION(Driver, event_elapsed, cuMemGetInfo_v2)", "cuMemGetInfo_v2"),
        ("driver", "STRUCT(CuAccess, CUmemAllocationProp)", "CUmemAllocationProp"),
        ("driver", "MEMBER(CuLocation, id, CUmemLocation, type)", "CUmemLocation::type"),
        ("nvrtc", "FUNCTION(Nvrtc, log, nvrtcGetPTXSize)", "nvrtcGetPTXSize"),
    ],
)
def test_a_wrong_declaration_is_found(name, wrong, said, tmp_path):
    done = check(wrong, name, tmp_path)
    assert done.returncode and said in done.stderr


@pytest.mark.parametrize("header", NUMBERS)
def test_every_number_of_a_header_is_compared(header):
    assert constants(header) == {ours for ours, _ in pairs(NUMBERS[header])}
    compared = {ours for ours, _ in STRUCTS[header]}
    declared = re.findall(r"^struct (\w+) \{", (DRIVER / header).read_text(), re.M)
    assert set(declared) - {table for _, table, _, _ in TABLES.values()} == compared


def test_every_result_of_the_simulated_driver_is_compared():
    text = (PACKAGE / "sim/status.h").read_text()
    assert set(re.findall(r"(k\w+) =", text)) == {ours for ours, _ in pairs(SIMULATED)}


PATTERNS = {
    "nvrtc": "libnvrtc.so.1*",
    "cublasLt": "libcublasLt.so.1*",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.1*",
    "cublas": "libcublas.so.1*",
    "cusolver": "libcusolver.so.1*",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_library_has_every_function(name):
    """Those that are optional, too. Of cuDNN's the first library has them, or one that it needs."""
    if name == "driver":
        try:
            driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            pytest.skip("there is no driver")
        needed = {symbol for _, symbol in functions(name)} - set(NEWER)
        assert [symbol for symbol in sorted(needed) if not hasattr(driver, symbol)] == []
        return
    folders = nvidia_folders("lib")
    libraries = [path for folder in folders for path in sorted(folder.glob(PATTERNS[name]))]
    if not libraries or not shutil.which("nm"):
        pytest.skip(f"{PATTERNS[name]} or nm is not here")
    library = libraries[0]
    beside = sorted(library.parent.glob("libcudnn_graph.so.9")) if name == "cudnn" else []
    command = ["nm", "-D", "--defined-only", library, *beside]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    there = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.split()}
    assert {symbol for _, symbol in functions(name)} <= there

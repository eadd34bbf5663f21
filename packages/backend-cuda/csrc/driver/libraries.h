// libcuda and libnvrtc, opened at run time. The declarations are written here: the few functions
// and constants that are used, as the CUDA driver API and NVRTC document them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "driver/open.h"

namespace rbcuda {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;
using CuContext = struct CuContextObject*;
using CuStream = struct CuStreamObject*;
using CuEvent = struct CuEventObject*;
using CuModule = struct CuModuleObject*;
using CuFunction = struct CuFunctionObject*;
using CuGraph = struct CuGraphObject*;
using CuGraphExec = struct CuGraphExecObject*;
using CuMemory = unsigned long long;  // memory of cuMemCreate, without an address
using NvrtcProgram = struct NvrtcProgramObject*;

// Numbers of its header; tests/test_declarations.py compares each of them.
constexpr CuResult kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
enum CuFatal {  // after these the driver refuses all work of the device in this process
  kEccError = 214,
  kNvlinkError = 220,
  kContained = 226,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kContextDestroyed = 709,
  kAssertion = 710,
  kHardwareStack = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidProgramCounter = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
};
constexpr CuResult kCaptureUnsupported = 900, kCaptureWrongThread = 908;  // all of captures
enum CuAttribute {
  kThreadsOfBlock = 1,
  kSharedOfBlock = 8,
  kWarpSize = 10,
  kClockRate = 13,
  kMultiprocessors = 16,
  kIntegrated = 18,
  kPciBus = 33,
  kPciDevice = 34,
  kMemoryClockRate = 36,
  kMemoryBusWidth = 37,
  kL2Size = 38,
  kThreadsOfMultiprocessor = 39,
  kPciDomain = 50,
  kMajor = 75,  // of the compute capability
  kMinor = 76,
  kSharedOfMultiprocessor = 81,
  kRegistersOfMultiprocessor = 82,
  kMultiGpuBoard = 84,
  kMostSharedOfBlock = 97,
  kVirtualMemory = 102,
};
constexpr unsigned kStreamNonBlocking = 1;  // no order with the null stream
constexpr unsigned kEventNoTiming = 2, kEventInterprocess = 4;
constexpr unsigned kPortable = 1;       // cuMemHostAlloc: pinned for all contexts
constexpr unsigned kManagedGlobal = 1;  // cuMemAllocManaged: of any stream
constexpr unsigned kIpcLazyPeers = 1;   // cuIpcOpenMemHandle
constexpr unsigned kDumpVerbose = 1;    // cuGraphDebugDotPrint
constexpr int kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
constexpr int kOnDevice = 1, kPinnedType = 1;  // CuMemoryProperties: device memory
constexpr int kReadWrite = 3;                  // CuAccess
constexpr int kLeastGranularity = 0;

struct CuUuid {
  unsigned char bytes[16];
};
struct CuIpcHandle {
  unsigned char bytes[64];
};
struct CuLocation {
  int type, id;
};
struct CuMemoryProperties {
  int type, handle_types;
  CuLocation location;
  void* windows;
  unsigned char flags[8];
};
struct CuAccess {
  CuLocation location;
  int flags;
};

// Member, exported symbol, arguments.
#define RB_CUDA_DRIVER(X)                                                                        \
  X(init, "cuInit", (unsigned))                                                                  \
  X(driver_version, "cuDriverGetVersion", (int*))                                                \
  X(device_count, "cuDeviceGetCount", (int*))                                                    \
  X(device_get, "cuDeviceGet", (CuDevice*, int))                                                 \
  X(device_name, "cuDeviceGetName", (char*, int, CuDevice))                                      \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, CuDevice))                             \
  X(primary_context, "cuDevicePrimaryCtxRetain", (CuContext*, CuDevice))                         \
  X(set_context, "cuCtxSetCurrent", (CuContext))                                                 \
  X(get_context, "cuCtxGetCurrent", (CuContext*))                                                \
  X(synchronize, "cuCtxSynchronize", ())                                                         \
  X(allocate, "cuMemAlloc_v2", (CuPointer*, size_t))                                             \
  X(release, "cuMemFree_v2", (CuPointer))                                                        \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                          \
  X(copy_in, "cuMemcpyHtoDAsync_v2", (CuPointer, const void*, size_t, CuStream))                 \
  X(copy_out, "cuMemcpyDtoHAsync_v2", (void*, CuPointer, size_t, CuStream))                      \
  X(stream_create, "cuStreamCreate", (CuStream*, unsigned))                                      \
  X(stream_synchronize, "cuStreamSynchronize", (CuStream))                                       \
  X(stream_query, "cuStreamQuery", (CuStream))                                                   \
  X(stream_wait, "cuStreamWaitEvent", (CuStream, CuEvent, unsigned))                             \
  X(event_create, "cuEventCreate", (CuEvent*, unsigned))                                         \
  X(event_destroy, "cuEventDestroy_v2", (CuEvent))                                               \
  X(event_record, "cuEventRecord", (CuEvent, CuStream))                                          \
  X(event_synchronize, "cuEventSynchronize", (CuEvent))                                          \
  X(event_query, "cuEventQuery", (CuEvent))                                                      \
  X(event_elapsed, "cuEventElapsedTime", (float*, CuEvent, CuEvent))                             \
  X(module_load, "cuModuleLoadData", (CuModule*, const void*))                                   \
  X(module_function, "cuModuleGetFunction", (CuFunction*, CuModule, const char*))                \
  X(launch, "cuLaunchKernel",                                                                    \
    (CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream, \
     void**, void**))                                                                            \
  X(error_name, "cuGetErrorName", (CuResult, const char**))                                      \
  X(error_string, "cuGetErrorString", (CuResult, const char**))

// Null where the driver lacks it; what needs it says so, see `need`.
#define RB_CUDA_OPTIONAL(X)                                                                        \
  X(function_load, "cuFuncLoad", (CuFunction))                                                     \
  X(total_memory, "cuDeviceTotalMem_v2", (size_t*, CuDevice))                                      \
  X(uuid, "cuDeviceGetUuid_v2", (CuUuid*, CuDevice))                                               \
  X(can_access_peer, "cuDeviceCanAccessPeer", (int*, CuDevice, CuDevice))                          \
  X(enable_peer, "cuCtxEnablePeerAccess", (CuContext, unsigned))                                   \
  X(copy_peer, "cuMemcpyPeerAsync",                                                                \
    (CuPointer, CuContext, CuPointer, CuContext, size_t, CuStream))                                \
  X(host_allocate, "cuMemHostAlloc", (void**, size_t, unsigned))                                   \
  X(host_release, "cuMemFreeHost", (void*))                                                        \
  X(managed_allocate, "cuMemAllocManaged", (CuPointer*, size_t, unsigned))                         \
  X(address_range, "cuMemGetAddressRange_v2", (CuPointer*, size_t*, CuPointer))                    \
  X(ipc_export, "cuIpcGetMemHandle", (CuIpcHandle*, CuPointer))                                    \
  X(ipc_open, "cuIpcOpenMemHandle_v2", (CuPointer*, CuIpcHandle, unsigned))                        \
  X(ipc_close, "cuIpcCloseMemHandle", (CuPointer))                                                 \
  X(event_export, "cuIpcGetEventHandle", (CuIpcHandle*, CuEvent))                                  \
  X(event_open, "cuIpcOpenEventHandle", (CuEvent*, CuIpcHandle))                                   \
  X(host_call, "cuLaunchHostFunc", (CuStream, void (*)(void*), void*))                             \
  X(priorities, "cuCtxGetStreamPriorityRange", (int*, int*))                                       \
  X(stream_create_priority, "cuStreamCreateWithPriority", (CuStream*, unsigned, int))              \
  X(capture_begin, "cuStreamBeginCapture_v2", (CuStream, int))                                     \
  X(capture_end, "cuStreamEndCapture", (CuStream, CuGraph*))                                       \
  X(is_capturing, "cuStreamIsCapturing", (CuStream, int*))                                         \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                            \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (CuGraphExec*, CuGraph, unsigned long long)) \
  X(graph_launch, "cuGraphLaunch", (CuGraphExec, CuStream))                                        \
  X(graph_destroy, "cuGraphDestroy", (CuGraph))                                                    \
  X(graph_exec_destroy, "cuGraphExecDestroy", (CuGraphExec))                                       \
  X(graph_dump, "cuGraphDebugDotPrint", (CuGraph, const char*, unsigned))                          \
  X(granularity, "cuMemGetAllocationGranularity", (size_t*, const CuMemoryProperties*, int))       \
  X(reserve, "cuMemAddressReserve", (CuPointer*, size_t, size_t, CuPointer, unsigned long long))   \
  X(unreserve, "cuMemAddressFree", (CuPointer, size_t))                                            \
  X(memory_create, "cuMemCreate",                                                                  \
    (CuMemory*, size_t, const CuMemoryProperties*, unsigned long long))                            \
  X(memory_release, "cuMemRelease", (CuMemory))                                                    \
  X(map, "cuMemMap", (CuPointer, size_t, size_t, CuMemory, unsigned long long))                    \
  X(unmap, "cuMemUnmap", (CuPointer, size_t))                                                      \
  X(set_access, "cuMemSetAccess", (CuPointer, size_t, const CuAccess*, size_t))

#define RB_CUDA_NVRTC(X)                                                                    \
  X(version, "nvrtcVersion", (int*, int*))                                                  \
  X(create, "nvrtcCreateProgram",                                                           \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(compile, "nvrtcCompileProgram", (NvrtcProgram, int, const char* const*))                \
  X(log_size, "nvrtcGetProgramLogSize", (NvrtcProgram, size_t*))                            \
  X(log, "nvrtcGetProgramLog", (NvrtcProgram, char*))                                       \
  X(cubin_size, "nvrtcGetCUBINSize", (NvrtcProgram, size_t*))                               \
  X(cubin, "nvrtcGetCUBIN", (NvrtcProgram, char*))                                          \
  X(destroy, "nvrtcDestroyProgram", (NvrtcProgram*))

// Null where NVRTC lacks it.
#define RB_CUDA_NVRTC_OPTIONAL(X)                            \
  X(ptx_size, "nvrtcGetPTXSize", (NvrtcProgram, size_t*))    \
  X(ptx, "nvrtcGetPTX", (NvrtcProgram, char*))               \
  X(architecture_count, "nvrtcGetNumSupportedArchs", (int*)) \
  X(architectures, "nvrtcGetSupportedArchs", (int*))

struct Driver {
  RB_CUDA_DRIVER(RB_CUDA_MEMBER)
  RB_CUDA_OPTIONAL(RB_CUDA_MEMBER)
};
struct Nvrtc {
  RB_CUDA_NVRTC(RB_CUDA_MEMBER)
  RB_CUDA_NVRTC_OPTIONAL(RB_CUDA_MEMBER)
};

/// Whether there is a driver to open; why not is what `driver` says.
bool has_driver();
/// Libraries of CUDA 13 do not run on it.
bool is_driver_of_12();
/// The functions of a library that may be absent: `load(table, opened, what)` fills their table.
/// None if the library is left out or nowhere. `of_12` replaces `library` with a driver for CUDA
/// 12; `before` opens other libraries that it needs.
template <class Table, class Load>
std::optional<Table> open_optional(const Library& library, const Library& of_12, Load load,
                                   void (*before)() = nullptr) {
  if (is_left_out(library)) return std::nullopt;
  if (before) before();
  void* opened = open_if_there(is_driver_of_12() ? of_12 : library);
  if (!opened) return std::nullopt;
  Table table = {};
  load(table, opened, library.what);
  return table;
}
/// Opened at the first call; throw RB_E_DEVICE saying what is missing and how to get it.
const Driver& driver();
const Nvrtc& nvrtc();

[[noreturn]] void fail_missing(const char* call);
[[noreturn]] void fail_cuda(CuResult status, int device, const char* what);

/// A status that functions of a library return, and its meaning.
using StatusText = std::pair<int, const char*>;
/// "WHAT failed: TEXT (LIBRARY status N)"
std::string failure_text(const char* library, const char* what, int status,
                         std::initializer_list<StatusText> texts);

/// An optional function of the driver: `call` is its name. Throws RB_E_NOTIMPL where it is null.
template <class F>
F need(F function, const char* call) {
  if (__builtin_expect(!function, 0)) fail_missing(call);
  return function;
}

/// Throw RB_E_DEVICE, or RB_E_OOM, unless `status` is success. `what` failed.
inline void check_cuda(CuResult status, int device, const char* what) {
  if (__builtin_expect(status != kSuccess, 0)) fail_cuda(status, device, what);
}

/// What else there is to say of a failure of a device; set by who knows of its work.
extern std::string (*explain_failure)(CuResult status, int device, const std::string& text);

}  // namespace rbcuda

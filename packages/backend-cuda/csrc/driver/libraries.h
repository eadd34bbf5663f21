// libcuda and libnvrtc, opened at run time. The declarations are written here: the few functions
// and constants that are used, as the CUDA driver API and NVRTC document them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace rbcuda {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;
using CuContext = struct CuContextObject*;
using CuStream = struct CuStreamObject*;
using CuEvent = struct CuEventObject*;
using CuModule = struct CuModuleObject*;
using CuFunction = struct CuFunctionObject*;
using NvrtcProgram = struct NvrtcProgramObject*;

constexpr CuResult kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
constexpr int kMajor = 75, kMinor = 76;     // attributes: the compute capability
constexpr unsigned kStreamNonBlocking = 1;  // no order with the null stream
constexpr unsigned kEventNoTiming = 2;

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
  X(synchronize, "cuCtxSynchronize", ())                                                         \
  X(allocate, "cuMemAlloc_v2", (CuPointer*, size_t))                                             \
  X(release, "cuMemFree_v2", (CuPointer))                                                        \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                          \
  X(copy_in, "cuMemcpyHtoDAsync_v2", (CuPointer, const void*, size_t, CuStream))                 \
  X(copy_out, "cuMemcpyDtoHAsync_v2", (void*, CuPointer, size_t, CuStream))                      \
  X(copy_within, "cuMemcpyDtoDAsync_v2", (CuPointer, CuPointer, size_t, CuStream))               \
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

#define RB_CUDA_MEMBER(member, symbol, arguments) int(*member) arguments;
struct Driver {
  RB_CUDA_DRIVER(RB_CUDA_MEMBER)
};
struct Nvrtc {
  RB_CUDA_NVRTC(RB_CUDA_MEMBER)
};
#undef RB_CUDA_MEMBER

/// Opened at the first call; throw RB_E_DEVICE saying what is missing and how to get it.
const Driver& driver();
const Nvrtc& nvrtc();

/// Throw RB_E_DEVICE, or RB_E_OOM, unless `status` is success.
void check_cuda(CuResult status, int device, const char* what);

}  // namespace rbcuda

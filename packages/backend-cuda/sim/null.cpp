// A driver, a compiler and libraries that do nothing, at once, for counting what the host's side
// costs: memory comes from one range, kernels are not compiled and do not run. Copies do nothing
// either, but for those to the host.
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace {

constexpr size_t kMemory = size_t{2} << 30;  // valgrind does not give more
constexpr size_t kTold = size_t{64} << 30;   // nothing is written: tensors may be larger
char* memory() {
  static char* const range =
      static_cast<char*>(mmap(nullptr, kMemory, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return range;
}
std::atomic<size_t> used{0};
thread_local void* current = nullptr;  // context
std::atomic<unsigned long long> launches{0}, handles{0};

struct Handle {
  char bytes[64];
};
void* handle() { return reinterpret_cast<void*>(++handles * 64); }
template <class T>
int give(T** to) {
  *to = static_cast<T*>(handle());
  return 0;
}
// Never given back: addresses begin anew when they run out.
char* take(size_t size) {
  size_t at = used.fetch_add((size + 511) / 512 * 512);
  if (at + size > kMemory) used = at = 0;
  return memory() + at;
}

}  // namespace

extern "C" {

/// Launches so far.
unsigned long long cusim_launches() { return launches; }

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDeviceGetName(char* name, int size, int) { return std::snprintf(name, size, "null"), 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = kTold, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75    ? 9
           : attribute == 16  ? 132
           : attribute == 10  ? 32
           : attribute == 1   ? 1024
           : attribute == 39  ? 2048
           : attribute == 8   ? 49152
           : attribute == 97  ? 232448
           : attribute == 102 ? 1
                              : 0;
  return 0;
}
int cuDeviceGetUuid(void* uuid, int) { return std::memset(uuid, 0, 16), 0; }
int cuDeviceGetUuid_v2(void* uuid, int) { return std::memset(uuid, 0, 16), 0; }
int cuDeviceGetPCIBusId(char* text, int size, int) {
  return std::snprintf(text, size, "0000:01:00.0"), 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return give(context); }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void* context) { return current = context, 0; }
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxSynchronize() { return 0; }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, 0; }
int cuDeviceCanAccessPeer(int* can, int, int) { return *can = 0, 0; }
int cuCtxEnablePeerAccess(void*, unsigned) { return 0; }

int cuMemAlloc_v2(unsigned long long* address, size_t size) {
  return *address = reinterpret_cast<unsigned long long>(take(size)), 0;
}
int cuMemFree_v2(unsigned long long) { return 0; }
int cuMemAllocManaged(unsigned long long* address, size_t size, unsigned) {
  return cuMemAlloc_v2(address, size);
}
int cuMemHostAlloc(void** p, size_t size, unsigned) { return *p = take(size), 0; }
int cuMemFreeHost(void*) { return 0; }
int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = *total = kTold, 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long, const void*, size_t, void*) { return 0; }
// Zeros; of 8 bytes a one: a count, whose work then goes on.
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long, size_t size, void*) {
  std::memset(to, 0, size);
  if (size == 8) *static_cast<char*>(to) = 1;
  return 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long, unsigned long long, size_t, void*) { return 0; }
int cuMemcpyAsync(unsigned long long, unsigned long long, size_t, void*) { return 0; }
int cuMemcpyPeerAsync(unsigned long long, void*, unsigned long long, void*, size_t, void*) {
  return 0;
}
int cuMemsetD8Async(unsigned long long, unsigned char, size_t, void*) { return 0; }
int cuMemsetD16Async(unsigned long long, unsigned short, size_t, void*) { return 0; }
int cuMemsetD32Async(unsigned long long, unsigned, size_t, void*) { return 0; }
int cuMemGetAllocationGranularity(size_t* size, const void*, int) { return *size = 2 << 20, 0; }
int cuMemAddressReserve(unsigned long long* address, size_t size, size_t, unsigned long long,
                        unsigned long long) {
  void* range = mmap(nullptr, size + (2 << 20), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = (reinterpret_cast<unsigned long long>(range) + (2 << 20) - 1) >> 21 << 21;
  return range == MAP_FAILED ? 2 : 0;
}
int cuMemAddressFree(unsigned long long, size_t) { return 0; }
int cuMemCreate(unsigned long long* made, size_t, const void*, unsigned long long) {
  return *made = ++handles, 0;
}
int cuMemRelease(unsigned long long) { return 0; }
int cuMemMap(unsigned long long, size_t, size_t, unsigned long long, unsigned long long) {
  return 0;
}
int cuMemUnmap(unsigned long long, size_t) { return 0; }
int cuMemSetAccess(unsigned long long, size_t, const void*, size_t) { return 0; }
int cuMemGetAddressRange_v2(unsigned long long* base, size_t* size, unsigned long long address) {
  return *base = address, *size = 0, 0;
}
int cuIpcOpenMemHandle_v2(unsigned long long*, Handle, unsigned) { return 801; }
int cuIpcGetEventHandle(void* handle, void*) { return std::memset(handle, 0, 64), 0; }
int cuIpcOpenEventHandle(void** event, Handle) { return give(event); }
int cuIpcCloseMemHandle(unsigned long long) { return 0; }
int cuIpcGetMemHandle(void* handle, unsigned long long) { return std::memset(handle, 0, 64), 0; }

int cuStreamCreate(void** stream, unsigned) { return give(stream); }
int cuStreamCreateWithPriority(void** stream, unsigned, int) { return give(stream); }
int cuStreamDestroy_v2(void*) { return 0; }
int cuStreamSynchronize(void*) { return 0; }
int cuStreamQuery(void*) { return 0; }
int cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cuLaunchHostFunc(void*, void (*function)(void*), void* data) { return function(data), 0; }
int cuEventCreate(void** event, unsigned) { return give(event); }
int cuEventDestroy_v2(void*) { return 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuEventSynchronize(void*) { return 0; }
int cuEventQuery(void*) { return 0; }
int cuEventElapsedTime(float* time, void*, void*) { return *time = 0, 0; }
int cuEventElapsedTime_v2(float* time, void*, void*) { return *time = 0, 0; }
int cuStreamBeginCapture_v2(void*, int) { return 0; }
int cuStreamEndCapture(void*, void** graph) { return give(graph); }
int cuStreamIsCapturing(void*, int* state) { return *state = 0, 0; }
int cuStreamGetCaptureInfo_v2(void*, int* state, unsigned long long*, void**, const void**,
                              size_t*) {
  return *state = 0, 0;
}
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
int cuGraphInstantiateWithFlags(void** exec, void*, unsigned long long) { return give(exec); }
int cuGraphLaunch(void*, void*) { return 0; }
int cuGraphDebugDotPrint(void*, const char*, unsigned) { return 0; }
int cuGraphUpload(void*, void*) { return 0; }
int cuGraphExecDestroy(void*) { return 0; }
int cuGraphDestroy(void*) { return 0; }
int cuGraphGetNodes(void*, void**, size_t* count) { return *count = 0, 0; }

int cuModuleLoadData(void** module, const void*) { return give(module); }
int cuModuleUnload(void*) { return 0; }
int cuFuncLoad(void*) { return 0; }
int cuModuleGetFunction(void** function, void*, const char*) { return give(function); }
int cuFuncGetAttribute(int* value, int attribute, void*) {
  return *value = attribute == 0 ? 1024 : 0, 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  return *blocks = 2, 0;
}
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**) {
  return launches.fetch_add(1, std::memory_order_relaxed), 0;
}
int cuGetErrorName(int, const char** name) { return *name = "CUDA_SUCCESS", 0; }
int cuGetErrorString(int, const char** text) { return *text = "no error", 0; }

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*,
                       const char* const*) {
  return give(program);
}
int nvrtcCompileProgram(void*, int, const char* const*) { return 0; }
int nvrtcGetProgramLogSize(void*, size_t* size) { return *size = 1, 0; }
int nvrtcGetProgramLog(void*, char* log) { return *log = 0, 0; }
int nvrtcGetCUBINSize(void*, size_t* size) { return *size = 4, 0; }
int nvrtcGetCUBIN(void*, char* cubin) { return std::memcpy(cubin, "null", 4), 0; }
int nvrtcDestroyProgram(void** program) { return *program = nullptr, 0; }

int cublasLtCreate(void** library) { return give(library); }
int cublasLtMatmulDescCreate(void** description, int, int) { return give(description); }
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatmulDescDestroy(void*) { return 0; }
int cublasLtMatrixLayoutCreate(void** layout, int, unsigned long long, unsigned long long,
                               long long) {
  return give(layout);
}
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatrixLayoutDestroy(void*) { return 0; }
int cublasLtMatmulPreferenceCreate(void** preference) { return give(preference); }
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*,
                                   int* count) {
  return *count = 1, 0;  // the choice stays zeros: no workspace
}
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                   const void*, void*, void*, void*, const void*, void*, size_t, void*) {
  return launches.fetch_add(1, std::memory_order_relaxed), 0;
}

int cufftCreate(int* plan) { return *plan = static_cast<int>(++handles), 0; }
int cufftDestroy(int) { return 0; }
int cufftSetAutoAllocation(int, int) { return 0; }
int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int, long long*,
                        long long, long long, int, long long, size_t* size, int) {
  return *size = 0, 0;
}
int cufftSetStream(int, void*) { return 0; }
int cufftSetWorkArea(int, void*) { return 0; }
int cufftXtExec(int, void*, void*, int) {
  return launches.fetch_add(1, std::memory_order_relaxed), 0;
}

// Routines of cuSOLVER and cuBLAS, which need no workspace.
int cusolverDnCreate(void** solver) { return give(solver); }
int cusolverDnSetStream(void*, void*) { return 0; }
int cusolverDnCreateParams(void** params) { return give(params); }
int cusolverDnCreateSyevjInfo(void** params) { return give(params); }
int cusolverDnXpotrf_bufferSize(void*, void*, int, long long, int, const void*, long long, int,
                                size_t* device, size_t* host) {
  return *device = *host = 0, 0;
}
int cusolverDnXgetrf_bufferSize(void*, void*, long long, long long, int, const void*, long long,
                                int, size_t* device, size_t* host) {
  return *device = *host = 0, 0;
}
int cusolverDnXgeqrf_bufferSize(void*, void*, long long, long long, int, const void*, long long,
                                int, const void*, int, size_t* device, size_t* host) {
  return *device = *host = 0, 0;
}
int cusolverDnXsyevd_bufferSize(void*, void*, int, int, long long, int, const void*, long long, int,
                                const void*, int, size_t* device, size_t* host) {
  return *device = *host = 0, 0;
}
int cusolverDnXgesvd_bufferSize(void*, void*, signed char, signed char, long long, long long, int,
                                const void*, long long, int, const void*, int, const void*,
                                long long, int, const void*, long long, int, size_t* device,
                                size_t* host) {
  return *device = *host = 0, 0;
}
#define CUSIM_NULL(name) \
  int name() { return launches.fetch_add(1, std::memory_order_relaxed), 0; }
CUSIM_NULL(cusolverDnXpotrf)
CUSIM_NULL(cusolverDnXgetrf)
CUSIM_NULL(cusolverDnXgetrs)
CUSIM_NULL(cusolverDnXgeqrf)
CUSIM_NULL(cusolverDnXsyevd)
CUSIM_NULL(cusolverDnXgesvd)
#define CUSIM_NULL_TYPED(letter, q, he)                                                          \
  CUSIM_NULL(cusolverDn##letter##potrfBatched)                                                   \
  CUSIM_NULL(cusolverDn##letter##q##gqr)                                                         \
  CUSIM_NULL(cusolverDn##letter##q##mqr)                                                         \
  CUSIM_NULL(cusolverDn##letter##he##evjBatched)                                                 \
  CUSIM_NULL(cublas##letter##trsm_v2)                                                            \
  CUSIM_NULL(cublas##letter##trsmBatched)                                                        \
  CUSIM_NULL(cublas##letter##getrfBatched)                                                       \
  CUSIM_NULL(cublas##letter##getrsBatched)                                                       \
  int cusolverDn##letter##q##gqr_bufferSize(void*, int, int, int, const void*, int, const void*, \
                                            int* elements) {                                     \
    return *elements = 0, 0;                                                                     \
  }                                                                                              \
  int cusolverDn##letter##q##mqr_bufferSize(void*, int, int, int, int, int, const void*, int,    \
                                            const void*, const void*, int, int* elements) {      \
    return *elements = 0, 0;                                                                     \
  }                                                                                              \
  int cusolverDn##letter##he##evjBatched_bufferSize(void*, int, int, int, const void*, int,      \
                                                    const void*, int* elements, void*, int) {    \
    return *elements = 0, 0;                                                                     \
  }
CUSIM_NULL_TYPED(S, or, sy)
CUSIM_NULL_TYPED(D, or, sy)
CUSIM_NULL_TYPED(C, un, he)
CUSIM_NULL_TYPED(Z, un, he)
int cublasCreate_v2(void** handle) { return give(handle); }
int cublasSetStream_v2(void*, void*) { return 0; }
int cublasSetWorkspace_v2(void*, void*, size_t) { return 0; }
}

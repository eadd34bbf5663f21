// A stand-in for libcuda: devices, contexts and errors.
//
// CUSIM_DEVICES (1): how many devices. CUSIM_MEMORY (1 GiB): bytes of each. CUSIM_VERSION (13000).
// CUSIM_CAPABILITY (90).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "capture.h"
#include "cuda.h"

namespace cusim {

std::recursive_mutex mutex;
std::vector<std::unique_ptr<Device>> devices;
thread_local Device* current = nullptr;

namespace {

size_t memory_size() {
  const char* bytes = std::getenv("CUSIM_MEMORY");
  return bytes ? std::strtoull(bytes, nullptr, 10) : size_t{1} << 30;
}

struct Name {
  const char *name, *words;
};
const std::map<int, Name> kErrors = {
    {kOk, {"CUDA_SUCCESS", "no error"}},
    {kInvalid, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {kNoDevice, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {kInvalidDevice, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {kBadImage, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {kPeerUnsupported, {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"}},
    {kInvalidHandle, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {kNotFound, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {kNotReady, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {kPeerEnabled, {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"}},
    {kPeerNotEnabled, {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"}},
    {kMisaligned, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {kLaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {kNotPermitted, {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"}},
    {kNotSupported, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {kCaptureUnsupported,
     {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {kCaptureInvalidated,
     {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
      "operation failed due to a previous error during capture"}},
    {kCaptureMerge,
     {"CUDA_ERROR_STREAM_CAPTURE_MERGE",
      "operation would result in a merge of separate capture sequences"}},
    {kCaptureUnmatched,
     {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
      "capture was not ended in the same stream as it began"}},
    {kCaptureUnjoined,
     {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
    {kCaptureIsolation,
     {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
      "dependency created on uncaptured work in another stream"}},
    {kCaptureImplicit,
     {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
      "operation would make the legacy stream depend on a capturing blocking stream"}},
    {kCapturedEvent,
     {"CUDA_ERROR_CAPTURED_EVENT",
      "operation not permitted on an event last recorded in a "
      "capturing stream"}},
    {kCaptureWrongThread,
     {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
      "attempt to terminate a thread-local capture sequence from another thread"}},
};

// Of an H100 of 80 GB; cuda.h of the toolkit numbers them.
const std::map<int, int> kAttributes = {
    {1, 1024},                                    // threads of a block
    {2, 1024},                                    // block dimensions
    {3, 1024},      {4, 64},    {5, 2147483647},  // grid dimensions
    {6, 65535},     {7, 65535}, {8, 49152},       // shared memory of a block
    {9, 65536},                                   // constant memory
    {10, 32},                                     // warp
    {12, 65536},                                  // registers of a block
    {13, 1980000},                                // kHz
    {16, 132},                                    // multiprocessors
    {18, 0},                                      // integrated
    {19, 1},                                      // can map host memory
    {20, 0},                                      // compute mode
    {31, 1},                                      // concurrent kernels
    {32, 1},                                      // ECC
    {36, 2619000},                                // memory clock
    {37, 5120},                                   // memory bus
    {38, 52428800},                               // L2
    {39, 2048},                                   // threads of a multiprocessor
    {40, 3},                                      // copy engines
    {41, 1},                                      // unified addressing
    {75, 9},                                      // compute capability
    {76, 0},        {78, 1},                      // stream priorities
    {81, 233472},                                 // shared memory of a multiprocessor
    {82, 65536},                                  // registers of a multiprocessor
    {83, 1},                                      // managed memory
    {88, 1},                                      // pageable memory access
    {89, 1},                                      // concurrent managed access
    {95, 1},                                      // cooperative launch
    {97, 232448},                                 // shared memory of a block that asks for it
    {101, 0},       {102, 1},                     // virtual memory management
    {106, 32},                                    // blocks of a multiprocessor
    {111, 1024},                                  // reserved shared memory of a block
    {115, 1},                                     // memory pools
};

}  // namespace

void report(Device& device, int status, const std::string& words) {
  if (device.sticky) return;
  device.sticky = status;
  device.words = words;
  std::fprintf(stderr, "cusim: device %d: %s\n", device.index, words.c_str());
  const char* path = std::getenv("CUSIM_REPORT");
  FILE* file = path && *path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%d %s\n", status, words.c_str());
  std::fclose(file);
}

bool known(int device) { return device >= 0 && device < static_cast<int>(devices.size()); }

}  // namespace cusim

using namespace cusim;

extern "C" {

int cuInit(unsigned flags) {
  Lock lock(mutex);
  if (flags) return kInvalid;
  const char* count = std::getenv("CUSIM_DEVICES");
  if (devices.empty()) {
    for (int i = 0; i < (count ? std::atoi(count) : 1); ++i)
      devices.push_back(std::make_unique<Device>(i, memory_size()));
  }
  return devices.empty() ? kNoDevice : kOk;
}
int cuDriverGetVersion(int* version) {
  const char* given = std::getenv("CUSIM_VERSION");
  *version = given ? std::atoi(given) : 13000;
  return kOk;
}
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices.size());
  return kOk;
}
int cuDeviceGet(int* device, int index) {
  if (!known(index)) return kInvalidDevice;
  *device = index;
  return kOk;
}
int cuDeviceGetName(char* name, int size, int device) {
  if (!known(device) || size < 1) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(size), "simulated device");
  return kOk;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (!known(device)) return kInvalidDevice;
  *bytes = devices[device]->memory;
  return kOk;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!known(device)) return kInvalidDevice;
  if (attribute < 1 || attribute > 200) return kInvalid;
  const auto at = kAttributes.find(attribute);
  const char* capability = std::getenv("CUSIM_CAPABILITY");
  if (capability && (attribute == 75 || attribute == 76)) {
    *value = attribute == 75 ? std::atoi(capability) / 10 : std::atoi(capability) % 10;
    return kOk;
  }
  *value = attribute == 33 || attribute == 50 ? (attribute == 33 ? device + 1 : 0)
           : at == kAttributes.end()          ? 0
                                              : at->second;
  return kOk;
}
int cuDeviceGetUuid_v2(void* uuid, int device) {
  if (!known(device)) return kInvalidDevice;
  char text[17];
  std::snprintf(text, sizeof text, "cusim-device-%03d", device);
  std::memcpy(uuid, text, 16);
  return kOk;
}
int cuDeviceGetUuid(void* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  if (!known(device)) return kInvalidDevice;
  if (size < 13) return kInvalid;
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device + 1);
  return kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!known(device)) return kInvalidDevice;
  *context = devices[device].get();
  return kOk;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return known(device) ? kOk : kInvalidDevice; }
int cuCtxSetCurrent(void* context) {
  current = static_cast<Device*>(context);
  return kOk;
}
int cuCtxGetCurrent(void** context) {
  *context = current;
  return kOk;
}
int cuCtxGetDevice(int* device) {
  if (!current) return kInvalidContext;
  *device = current->index;
  return kOk;
}
int cuCtxSynchronize() {
  CUSIM_ENTER;
  if (int status = forbid_while_capturing()) return status;
  ++wait_counts().host;
  synchronize(*current);
  return current->sticky;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kOk;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!known(device) || !known(peer)) return kInvalidDevice;
  *can = device != peer;
  return kOk;
}
int cuCtxEnablePeerAccess(void* peer, unsigned flags) {
  CUSIM_ENTER;
  const Device* other = static_cast<Device*>(peer);
  if (flags) return kInvalid;
  if (other == current) return kInvalidDevice;
  return current->peers.insert(other->index).second ? kOk : kPeerEnabled;
}
int cuCtxDisablePeerAccess(void* peer) {
  CUSIM_ENTER;
  return current->peers.erase(static_cast<Device*>(peer)->index) ? kOk : kPeerNotEnabled;
}
int cuGetErrorName(int status, const char** name) {
  const auto at = kErrors.find(status);
  *name = at == kErrors.end() ? nullptr : at->second.name;
  return *name ? kOk : kInvalid;
}
// With what happened, where the simulator knows it.
int cuGetErrorString(int status, const char** text) {
  Lock lock(mutex);
  const auto at = kErrors.find(status);
  *text = at == kErrors.end() ? nullptr : at->second.words;
  if (!*text) return kInvalid;
  const Device* failed = current && current->sticky == status ? current : nullptr;
  for (const auto& device : devices)
    if (!failed && device->sticky == status) failed = device.get();
  if (!failed) return kOk;
  static thread_local std::string words;
  words = std::string(*text) + ": " + failed->words;
  *text = words.c_str();
  return kOk;
}
}

// Backends by interned name. Id 0 is `meta`: shapes and dtypes without memory.
#pragma once
#include <string>

#include "device/heap.h"
#include "rabbet/abi.h"
#include "rabbet/device.h"
#include "thread/error.h"

namespace rabbet {

constexpr int kMaxBackends = 16;
constexpr int kMeta = 0;

struct BackendEntry {
  std::string name, provider;
  RbBackend desc{};  // refers to the structs below, which are the plugin's, lengthened by nulls
  RbDevices devices{};
  RbAllocator allocator{};
  RbStreams streams{};
};

/// What every allocation asks about a backend, without a call.
struct BackendTraits {
  int32_t dlpack_type;
  bool host_memory, streams;
  uint32_t known_devices;  // indices below it need not be checked
};
extern BackendTraits backend_traits[kMaxBackends];

int backend_count();
const BackendEntry& backend_entry(int id);
inline const char* backend_name(int id) { return backend_entry(id).name.c_str(); }
inline bool has_host_memory(int id) { return backend_traits[id].host_memory; }
/// -1: not loaded.
int find_backend(const char* name);
/// Loads it through the backend loader if needed; throws RB_E_PLUGIN saying what to install.
int require_backend(const char* name);
/// The backend of calls that name no device; loads `cpu` at first.
int default_backend();
/// Used by a registration transaction only. Other threads wait for the loader until it is complete.
int register_backend(const RbBackend& backend, const std::string& provider);
/// Its kernels are there.
void complete_backend(int id);
/// Take back the last `n`, which an aborted transaction registered.
void drop_backends(size_t n);

/// Asked for a backend that is not loaded: load it and return RB_OK, or set the error record.
void set_backend_loader(int32_t (*loader)(const char* name));
/// Number of devices of a backend; throws if it cannot tell.
/// "sync of the backend 'x' [x 1.0]", for messages.
std::string backend_function(int backend, const char* name);
/// Call a function of a backend; an exception, or a code without a message, becomes an error that
/// names the function. Returns the code.
template <class Call>
int32_t call_backend(int backend, const char* name, Call&& call) {
  int32_t rc;
  try {
    rc = call();
  } catch (...) {
    rc = store_thrown(backend_function(backend, name));
  }
  if (__builtin_expect(rc != RB_OK, 0)) explain(rc, backend_function(backend, name));
  return rc;
}
/// The same; throws where the code is not RB_OK.
template <class Call>
void check_backend_code(int backend, const char* name, Call&& call) {
  check(call_backend(backend, name, call));
}
int device_count(int backend);
/// Throw RB_E_DEVICE if the backend has no device of this index.
void check_unknown_device(int backend, int device);
inline bool is_known_device(int backend, int device) {
  return __builtin_expect(static_cast<uint32_t>(device) < backend_traits[backend].known_devices, 1);
}
inline void check_device(int backend, int device) {
  if (!is_known_device(backend, device)) check_unknown_device(backend, device);
}
void synchronize(int backend, int device);

/// What the backend publishes of its devices; members that it lacks are null.
RbDeviceTable device_table(int backend);
/// Throws RB_E_NOTIMPL if the backend has no memory of the kind.
const RbAllocator& allocator_of(int backend, MemoryKind kind);
/// Run fn(ctx) when the stream has done its work; false where the backend cannot, or did not.
bool call_on_stream(int backend, int device, void* stream, void (*fn)(void*), void* ctx);
/// False: the backend does not tell.
bool memory_info(int backend, int device, uint64_t* free, uint64_t* total);
/// Ask the backend for an error that the device will not recover from, and throw it: RB_E_DEVICE.
/// From then on check_device throws it, too.
void poll_error(int backend, int device);
/// The same of all devices of the backend.
void poll_errors(int backend);

}  // namespace rabbet

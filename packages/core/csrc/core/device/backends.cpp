#include "device/backends.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "device/capture.h"
#include "device/deleters.h"
#include "device/reserved.h"
#include "thread/error.h"
#include "thread/fork.h"
#include "thread/host_table.h"
#include "thread/thread_state.h"

namespace rabbet {

// meta tensors are never exported: there is no memory behind kDLExtDev here.
BackendTraits backend_traits[kMaxBackends] = {{12, false, false, UINT32_MAX}};

namespace {

struct Table {
  BackendEntry entries[kMaxBackends];
  std::atomic<int> count{1};
  std::atomic<uint32_t> complete{1u << kMeta};  // a bit each
  std::atomic<int32_t (*)(const char*)> loader{nullptr};
  Table() {
    entries[kMeta].name = "meta";
    entries[kMeta].provider = "rabbet-core";
    entries[kMeta].desc.name = "meta";
  }
};
Table& table() {
  static Table* instance = new Table;  // never destroyed: tensors may outlive static destructors
  return *instance;
}

}  // namespace

int backend_count() { return table().count.load(std::memory_order_acquire); }
const BackendEntry& backend_entry(int id) { return table().entries[id]; }

int find_backend(const char* name) {
  for (int id = 0; id < backend_count(); ++id) {
    if (table().entries[id].name == name) return id;
  }
  return -1;
}

int require_backend(const char* name) {
  int id = find_backend(name);
  if (id >= 0 && table().complete.load(std::memory_order_acquire) >> id & 1) return id;
  auto loader = table().loader.load();
  if (!loader) {
    fail(RB_E_PLUGIN, "no backend for device '%s' is loaded: load the plugin of rabbet-backend-%s",
         name, name);
  }
  check(loader(name));
  id = find_backend(name);
  if (id < 0)
    fail(RB_E_PLUGIN, "the plugin for device '%s' loaded but did not register that backend", name);
  return id;
}

int default_backend() {
  static std::atomic<int> cpu{-1};
  int id = cpu.load(std::memory_order_relaxed);
  if (__builtin_expect(id < 0, 0)) {
    id = require_backend("cpu");
    cpu.store(id, std::memory_order_relaxed);
  }
  return id;
}

namespace {
// As much as the plugin's header knew of the struct; the rest stays null.
template <class T>
void copy_struct(T& to, const T& from) {
  std::memcpy(&to, &from, std::min<size_t>(from.struct_size, sizeof to));
  to.struct_size = sizeof to;
}

void tell_backends_of_fork() {
  for (int id = 1; id < backend_count(); ++id) {
    const RbDevices* devices = backend_entry(id).desc.devices;
    if (!devices || !devices->fork_child) continue;
    try {
      devices->fork_child(devices->self);
    } catch (...) {
      log_thrown(backend_function(id, "fork_child"));
    }
  }
}
}  // namespace

int register_backend(const RbBackend& backend, const std::string& provider) {
  Table& t = table();
  static const int once = pthread_atfork(nullptr, nullptr, tell_backends_of_fork);
  (void)once;
  if (find_backend(backend.name) >= 0) {
    fail(RB_E_PLUGIN, "backend '%s' of %s is registered already, by %s", backend.name,
         provider.c_str(), t.entries[find_backend(backend.name)].provider.c_str());
  }
  check_device_name(backend.name, provider);
  const int id = t.count.load();
  if (id == kMaxBackends)
    fail(RB_E_PLUGIN, "more than %d backends in one process", kMaxBackends - 1);
  BackendEntry& entry = t.entries[id];
  entry.name = backend.name;
  entry.provider = provider;
  copy_struct(entry.desc, backend);
  copy_struct(entry.allocator, *backend.allocator);
  entry.desc.name = entry.name.c_str();
  entry.desc.allocator = &entry.allocator;
  if (backend.devices) {
    copy_struct(entry.devices, *backend.devices);
    entry.desc.devices = &entry.devices;
  }
  if (!RB_HAS(&kHost, record_stream)) entry.desc.streams = nullptr;
  if (entry.desc.streams) {
    copy_struct(entry.streams, *entry.desc.streams);
    entry.desc.streams = &entry.streams;
  }
  backend_traits[id] = {backend.dlpack_type, (backend.flags & RB_B_HOST_MEMORY) != 0,
                        entry.desc.streams != nullptr, 1};
  t.count.store(id + 1, std::memory_order_release);
  return id;
}

void complete_backend(int id) { table().complete.fetch_or(1u << id, std::memory_order_acq_rel); }

void drop_backends(size_t n) {
  Table& t = table();
  const int count = t.count.load() - static_cast<int>(n);
  for (size_t i = 0; i < n; ++i) {
    t.complete.fetch_and(~(1u << (count + i)), std::memory_order_acq_rel);
    t.entries[count + i] = BackendEntry{};
  }
  t.count.store(count, std::memory_order_release);
}

void set_backend_loader(int32_t (*loader)(const char* name)) { table().loader.store(loader); }

std::string backend_function(int backend, const char* name) {
  const BackendEntry& entry = backend_entry(backend);
  return std::string("the function `") + name + "` of the backend '" + entry.name + "' [" +
         entry.provider + "]";
}

int device_count(int backend) {
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (!devices || !devices->count) return 1;
  int32_t n = 0;
  check_backend_code(backend, "count", [&] { return devices->count(devices->self, &n); });
  return n;
}

namespace {
// Devices that will not recover, with what their backend said.
struct FailedDevices {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::string> why;
};
FailedDevices& failed_devices() {
  static FailedDevices* instance = [] {
    auto* made = new FailedDevices;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}
// Whether one of the backend's devices has failed; throws if it is this one.
bool check_not_failed(int backend, int device) {
  std::lock_guard<std::mutex> lock(failed_devices().mutex);
  bool any = false;
  for (const auto& [at, why] : failed_devices().why) {
    if (at.first != backend) continue;
    any = true;
    if (at.second == device)
      fail(RB_E_DEVICE,
           "the device %s:%d has failed and cannot be used any more in this process: %s",
           backend_name(backend), device, why.c_str());
  }
  return any;
}
}  // namespace

void check_unknown_device(int backend, int device) {
  const bool failures = check_not_failed(backend, device);
  const int n = device_count(backend);
  if (device < 0 || device >= std::max(n, 1)) {
    const std::string name = backend_name(backend);
    const std::string last =
        n > 1 ? name + ":0 to " + name + ":" + std::to_string(n - 1) : name + ":0";
    fail(RB_E_DEVICE, "there is no device %s:%d: '%s' has %d device%s%s", name.c_str(), device,
         name.c_str(), n, n == 1 ? "" : "s", n > 0 ? (", " + last).c_str() : "");
  }
  if (!failures) backend_traits[backend].known_devices = static_cast<uint32_t>(device) + 1;
}

void synchronize(int backend, int device) {
  check_device(backend, device);
  check_not_capturing(backend, device, "synchronize");
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (!devices || !devices->sync) return;
  const int32_t rc =
      call_backend(backend, "sync", [&] { return devices->sync(devices->self, device); });
  poll_error(backend, device);
  check(rc);
  run_due_deleters();
}

RbDeviceTable device_table(int backend) {
  RbDeviceTable table{};
  const std::string name = std::string(backend_name(backend)) + "." RB_DEVICE_EXT;
  const auto* given =
      static_cast<const RbDeviceTable*>(kHost.get_ext(name.c_str(), RB_DEVICE_VERSION));
  if (!given) return table;
  if (given->struct_size < RB_SIZE(RbDeviceTable, self))
    fail(RB_E_PLUGIN, "the table '%s' of %s is too short: it has %u bytes", name.c_str(),
         backend_entry(backend).provider.c_str(), given->struct_size);
  copy_struct(table, *given);
  return table;
}

const RbAllocator& allocator_of(int backend, MemoryKind kind) {
  if (kind == MemoryKind::kDevice) return *backend_entry(backend).desc.allocator;
  const RbDeviceTable table = device_table(backend);
  const bool pinned = kind == MemoryKind::kPinned;
  if (kind == MemoryKind::kShared && !table.shared) return *backend_entry(backend).desc.allocator;
  const RbAllocator* allocator = pinned                         ? table.pinned
                                 : kind == MemoryKind::kManaged ? table.managed
                                                                : table.shared;
  if (!allocator || allocator->struct_size < RB_SIZE(RbAllocator, free) || !allocator->alloc ||
      !allocator->free)
    fail(RB_E_NOTIMPL, "the backend '%s' offers no %s memory", backend_name(backend),
         pinned                         ? "pinned"
         : kind == MemoryKind::kManaged ? "managed"
                                        : "shared");
  return *allocator;
}

bool call_on_stream(int backend, int device, void* stream, void (*fn)(void*), void* ctx) {
  if (backend == kMeta) return false;
  bool called = false;
  guarded([&] {
    const RbDeviceTable table = device_table(backend);
    called = table.host_call && table.host_call(table.self, device, stream, fn, ctx) == RB_OK;
  });
  return called;
}

bool memory_info(int backend, int device, uint64_t* free, uint64_t* total) {
  const RbDeviceTable table = device_table(backend);
  if (!table.memory_info) return false;
  *free = *total = 0;
  check(table.memory_info(table.self, device, free, total));
  if (*free > *total || !*total)
    fail(RB_E_PLUGIN, "memory_info of the backend '%s': %llu of %llu bytes cannot be free",
         backend_name(backend), (unsigned long long)*free, (unsigned long long)*total);
  return true;
}

void poll_error(int backend, int device) {
  const RbDeviceTable table = device_table(backend);
  if (!table.poll_error) return;
  // What the backend says of a healthy device must not hide the error of the call before.
  ThreadState& state = thread_state();
  const std::string message = state.message;
  const int32_t before = state.error.code;
  state.error.code = RB_OK;
  const int32_t rc = table.poll_error(table.self, device);
  const bool spoke = state.error.code != RB_OK;
  if (rc == RB_OK) {
    if (spoke) set_error(before, message);
    state.error.code = before;
    return;
  }
  const std::string why = spoke ? state.message : "the backend gives no reason";
  {
    std::lock_guard<std::mutex> lock(failed_devices().mutex);
    failed_devices().why.try_emplace({backend, device}, why);
    backend_traits[backend].known_devices = 0;
  }
  check_not_failed(backend, device);
}

void poll_errors(int backend) {
  for (int device = 0; device < device_count(backend); ++device) poll_error(backend, device);
}

}  // namespace rabbet

#include "backends.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "error.h"
#include "reserved.h"

namespace rabbet {

// meta tensors are never exported: there is no memory behind kDLExtDev here.
BackendTraits backend_traits[kMaxBackends] = {{12, false}};

namespace {

struct Table {
  BackendEntry entries[kMaxBackends];
  std::atomic<int> count{1};
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
  if (id >= 0) return id;
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
void tell_backends_of_fork() {
  for (int id = 1; id < backend_count(); ++id) {
    const RbDevices* devices = backend_entry(id).desc.devices;
    if (devices && RB_HAS(devices, fork_child)) devices->fork_child(devices->self);
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
  t.entries[id].name = backend.name;
  t.entries[id].provider = provider;
  t.entries[id].desc = backend;
  backend_traits[id] = {backend.dlpack_type, (backend.flags & RB_B_HOST_MEMORY) != 0};
  t.count.store(id + 1, std::memory_order_release);
  return id;
}

void drop_backends(size_t n) {
  Table& t = table();
  const int count = t.count.load() - static_cast<int>(n);
  for (size_t i = 0; i < n; ++i) t.entries[count + i] = BackendEntry{};
  t.count.store(count, std::memory_order_release);
}

void set_backend_loader(int32_t (*loader)(const char* name)) { table().loader.store(loader); }

int device_count(int backend) {
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (!devices || !devices->count) return 1;
  int32_t n = 0;
  check(devices->count(devices->self, &n));
  return n;
}

void check_device(int backend, int device) {
  if (backend == kMeta) return;
  const int count = device_count(backend);
  if (device >= 0 && device < count) return;
  fail(RB_E_DEVICE, "%s: there is no device %d; there are %d", backend_name(backend), device,
       count);
}

void synchronize(int backend, int device) {
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (devices && devices->sync) check(devices->sync(devices->self, device));
}

}  // namespace rabbet

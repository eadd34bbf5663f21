#include "device/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/backends.h"
#include "thread/error.h"
#include "thread/fork.h"
#include "thread/sanitize.h"

namespace rabbet {

namespace {

struct Key {
  int device;
  void* stream;
  uint64_t nbytes;
  bool operator==(const Key& o) const {
    return device == o.device && stream == o.stream && nbytes == o.nbytes;
  }
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    return (k.nbytes ^ reinterpret_cast<uintptr_t>(k.stream)) * 0x9e3779b97f4a7c15ull + k.device;
  }
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<Key, std::vector<RbBuffer>, KeyHash> bins;
  uint64_t cached = 0;  // bytes in the bins
  std::vector<MemoryStats> by_device;

  MemoryStats& stats(int device) {
    if (static_cast<size_t>(device) >= by_device.size()) by_device.resize(device + 1);
    return by_device[device];
  }
  /// Null where there was no allocation.
  MemoryStats* find(int device) {
    return static_cast<size_t>(device) < by_device.size() ? &by_device[device] : nullptr;
  }
};
Cache* make_caches() {
  auto* made = new Cache[kMaxBackends];
  for (int i = 0; i < kMaxBackends; ++i) hold_over_fork(made[i].mutex);
  return made;
}
// Never destroyed: tensors may outlive static destructors.
Cache* const caches = make_caches();

uint64_t main_memory() {
  uint64_t bytes = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L)) *
                   static_cast<uint64_t>(std::max(sysconf(_SC_PAGESIZE), 1L));
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/memory.max", "re")) {
    unsigned long long limit = 0;
    if (std::fscanf(file, "%llu", &limit) == 1 && limit) bytes = std::min<uint64_t>(bytes, limit);
    std::fclose(file);
  }
  return bytes;
}

// Bytes kept per backend; beyond it blocks go back at once. A device's memory is kept whole: who
// runs out of it gets what is cached back.
uint64_t cache_cap(int backend) {
  static const uint64_t host_cap = main_memory() / 4;
  return has_host_memory(backend) ? host_cap : UINT64_MAX;
}

// Four sizes per power of two: at most a quarter is lost, and nearby sizes share blocks.
uint64_t bin_size(uint64_t nbytes) {
  if (nbytes <= 4096) return (nbytes + 511) / 512 * 512;
  const uint64_t step = (1ull << (63 - __builtin_clzll(nbytes - 1))) / 4;
  return (nbytes + step - 1) / step * step;
}

void give_back(int backend, MemoryStats& stats, RbBuffer& buffer, void* stream) {
  const RbAllocator* allocator = backend_entry(backend).desc.allocator;
  if (has_host_memory(backend)) mark_used(buffer.data, buffer.nbytes);
  stats.segments.fall(1);
  stats.segment_bytes.fall(buffer.nbytes);
  allocator->free(allocator->self, &buffer, stream);
}

void release_all(int backend, Cache& cache) {
  for (auto& [key, buffers] : cache.bins) {
    for (RbBuffer& buffer : buffers) {
      give_back(backend, cache.stats(key.device), buffer, key.stream);
    }
  }
  cache.bins.clear();
  cache.cached = 0;
}

// Rare; apart, as the frame of cached_alloc is small without it.
[[gnu::noinline]] RbBuffer alloc_new(int backend, Cache& cache, uint64_t nbytes, const Key& key) {
  const RbAllocator* allocator = backend_entry(backend).desc.allocator;
  RbBuffer buffer{};
  buffer.struct_size = sizeof buffer;
  const auto ask = [&] {
    return allocator->alloc(allocator->self, key.device, key.nbytes, key.stream, &buffer);
  };
  int32_t rc = ask();
  if (rc != RB_OK) {
    release_all(backend, cache);
    if (rc == RB_E_OOM) ++cache.stats(key.device).retries;
    rc = ask();
  }
  if (rc != RB_OK && rc != RB_E_OOM) check(rc);  // the device is not there, say: no lack of memory
  if (rc != RB_OK) {
    MemoryStats& stats = cache.stats(key.device);
    ++stats.ooms;
    fail(RB_E_OOM,
         "out of memory on %s: could not allocate %llu bytes (%llu are in use, at most %llu were)",
         backend_name(backend), (unsigned long long)nbytes,
         (unsigned long long)stats.block_bytes.current, (unsigned long long)stats.block_bytes.peak);
  }
  buffer.struct_size = sizeof buffer;
  buffer.nbytes = key.nbytes;
  buffer.device_index = key.device;
  return buffer;
}

}  // namespace

RbBuffer cached_alloc(int backend, int device, uint64_t nbytes, void* stream) {
  Cache& cache = caches[backend];
  const uint64_t size = bin_size(nbytes);
  const Key key{device, stream, size};
  std::lock_guard<std::mutex> lock(cache.mutex);
  RbBuffer buffer{};
  auto bin = cache.bins.find(key);
  const bool reused = bin != cache.bins.end() && !bin->second.empty();
  if (reused) {
    buffer = bin->second.back();
    bin->second.pop_back();
    cache.cached -= size;
  } else {
    buffer = alloc_new(backend, cache, nbytes, key);
  }
  MemoryStats& stats = cache.stats(device);
  if (!reused) {
    stats.segments.rise(1);
    stats.segment_bytes.rise(size);
  }
  stats.blocks.rise(1);
  stats.block_bytes.rise(size);
  if (has_host_memory(backend)) {
    mark_used(buffer.data, nbytes);
    mark_unused(static_cast<char*>(buffer.data) + nbytes, size - nbytes);
  }
  return buffer;
}

void cached_free(int backend, RbBuffer buffer, void* stream) {
  Cache& cache = caches[backend];
  std::lock_guard<std::mutex> lock(cache.mutex);
  MemoryStats& stats = cache.stats(buffer.device_index);
  stats.blocks.fall(1);
  stats.block_bytes.fall(buffer.nbytes);
  if (cache.cached + buffer.nbytes > cache_cap(backend)) {
    give_back(backend, stats, buffer, stream);
    return;
  }
  if (has_host_memory(backend)) mark_unused(buffer.data, buffer.nbytes);
  cache.cached += buffer.nbytes;
  cache.bins[Key{buffer.device_index, stream, buffer.nbytes}].push_back(buffer);
}

namespace {
// The backend whose memory large host blocks are; asked once, so that a block goes back where it
// came from. 0: there is none.
int host_backend() {
  static const int id = [] {
    for (int i = 1; i < backend_count(); ++i) {
      if (has_host_memory(i)) return i;
    }
    return 0;
  }();
  return id;
}
}  // namespace

void* host_alloc(uint64_t nbytes) {
  if (const int backend = host_backend()) return cached_alloc(backend, 0, nbytes).data;
  void* p = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
  if (!p)
    fail(RB_E_OOM, "out of memory: could not allocate %llu bytes", (unsigned long long)nbytes);
  return p;
}

void host_free(void* p, uint64_t nbytes) {
  if (const int backend = host_backend()) {
    cached_free(backend, RbBuffer{sizeof(RbBuffer), 0, p, bin_size(nbytes), nullptr, 0, 0});
  } else {
    std::free(p);
  }
}

void empty_cache() {
  for (int backend = 1; backend < backend_count(); ++backend) {
    std::lock_guard<std::mutex> lock(caches[backend].mutex);
    release_all(backend, caches[backend]);
  }
}

MemoryStats memory_stats(int backend, int device) {
  Cache& cache = caches[backend];
  std::lock_guard<std::mutex> lock(cache.mutex);
  const MemoryStats* found = cache.find(device);
  return found ? *found : MemoryStats{};
}

std::vector<int> devices_with_memory(int backend) {
  Cache& cache = caches[backend];
  std::lock_guard<std::mutex> lock(cache.mutex);
  std::vector<int> devices;
  for (size_t device = 0; device < cache.by_device.size(); ++device)
    devices.push_back(static_cast<int>(device));
  return devices;
}

namespace {
template <class F>
void with_stats(int backend, int device, F change) {
  Cache& cache = caches[backend];
  std::lock_guard<std::mutex> lock(cache.mutex);
  MemoryStats* s = cache.find(device);
  if (s) change(*s);
}
}  // namespace

void reset_peak_memory(int backend, int device) {
  with_stats(backend, device, [](MemoryStats& s) {
    for (MemoryStat* stat : s.all()) stat->peak = stat->current;
  });
}

void reset_accumulated_memory(int backend, int device) {
  with_stats(backend, device, [](MemoryStats& s) {
    for (MemoryStat* stat : s.all()) stat->allocated = stat->freed = 0;
    s.retries = s.ooms = 0;
  });
}

}  // namespace rabbet

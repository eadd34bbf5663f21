// Memory by device and kind, each from a caching allocator of its own (heap.h), and pools that a
// thread allocates from.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/backends.h"
#include "device/heap.h"
#include "rabbet/abi.h"
#include "thread/thread_state.h"

namespace rabbet {

/// Heaps of the memory of the first devices of each backend, once they were asked for.
constexpr unsigned kQuickDevices = 8;
extern std::atomic<Heap*> quick_heaps[kMaxBackends][kQuickDevices];
Heap& find_or_make_heap(int backend, int device, MemoryKind kind);
/// The heap of a device, made at its first use. `find_heap`: null where nothing was allocated.
inline Heap& heap_of(int backend, int device, MemoryKind kind = MemoryKind::kDevice) {
  const bool quick = kind == MemoryKind::kDevice && static_cast<unsigned>(device) < kQuickDevices;
  Heap* heap = quick ? quick_heaps[backend][device].load(std::memory_order_acquire) : nullptr;
  return __builtin_expect(heap != nullptr, 1) ? *heap : find_or_make_heap(backend, device, kind);
}
Heap* find_heap(int backend, int device, MemoryKind kind = MemoryKind::kDevice);
/// All heaps of a backend, of every device and kind.
std::vector<Heap*> heaps_of(int backend);

/// Memory of a device for the thread, in the pool that it uses there; throws RB_E_OOM.
Block* pooled_alloc(int backend, int device, uint64_t nbytes, void* stream);
inline Block* cached_alloc(int backend, int device, uint64_t nbytes, void* stream,
                           const ThreadState& state) {
  if (__builtin_expect(!state.pools.empty(), 0))
    return pooled_alloc(backend, device, nbytes, stream);
  return heap_of(backend, device).allocate(nbytes, stream, 0);
}
void cached_free(Block* block);
void record_stream(Block* block, void* stream);
/// Host memory from the cache of the backend that offers it, for scratch of kernels.
void* host_alloc(uint64_t nbytes);
void host_free(void* p);
/// Give all cached segments back to the backends.
void empty_cache();

/// A private pool, 1, 2, ...: blocks of it are given to who allocates in it only, and its segments
/// stay as long as it lives.
class MemoryPool {
 public:
  MemoryPool();
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  const uint64_t id;
};
/// Throws RB_E_ARG if there is no such pool.
std::shared_ptr<MemoryPool> find_pool(uint64_t id);
std::shared_ptr<MemoryPool> make_pool();
/// What the calling thread allocates on the device comes from the pool, until it is left.
void enter_pool(int backend, int device, uint64_t pool);
void leave_pool(int backend, int device, uint64_t pool);

}  // namespace rabbet

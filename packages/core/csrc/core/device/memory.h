// Memory by device and kind, each from a caching allocator of its own (heap.h), and pools that a
// thread allocates from.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/heap.h"
#include "rabbet/abi.h"

namespace rabbet {

/// The heap of a device, made at its first use. `find_heap`: null where nothing was allocated.
Heap& heap_of(int backend, int device, MemoryKind kind = MemoryKind::kDevice);
Heap* find_heap(int backend, int device, MemoryKind kind = MemoryKind::kDevice);
/// All heaps of a backend, of every device and kind.
std::vector<Heap*> heaps_of(int backend);

/// Memory of a device for the thread, in the pool that it uses there; throws RB_E_OOM.
Block* cached_alloc(int backend, int device, uint64_t nbytes, void* stream = nullptr);
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

#include "device/memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "device/backends.h"
#include "thread/error.h"
#include "thread/fork.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

// Lists that only grow. Never destroyed: tensors may outlive static destructors.
std::atomic<Heap*> heap_lists[kMaxBackends];

struct Pools {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::weak_ptr<MemoryPool>> alive;
};
Pools& pools() {
  static Pools* instance = [] {
    auto* made = new Pools;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}

uint64_t new_pool_id() {
  std::lock_guard<std::mutex> lock(pools().mutex);
  return ++pools().last;
}

uint64_t pool_of(const ThreadState& state, int backend, int device) {
  for (auto use = state.pools.rbegin(); use != state.pools.rend(); ++use) {
    if (use->backend == backend && use->device == device) return use->pool;
  }
  return 0;
}

}  // namespace

Heap* find_heap(int backend, int device, MemoryKind kind) {
  for (Heap* h = heap_lists[backend].load(std::memory_order_acquire); h; h = h->next) {
    if (h->device == device && h->kind == kind) return h;
  }
  return nullptr;
}

std::atomic<Heap*> quick_heaps[kMaxBackends][kQuickDevices];

// Who comes second uses the heap of who came first; its own, which is empty, stays unused.
Heap& find_or_make_heap(int backend, int device, MemoryKind kind) {
  Heap* heap = find_heap(backend, device, kind);
  if (!heap) {
    auto* made = new Heap(backend, device, kind);
    std::atomic<Heap*>& list = heap_lists[backend];
    made->next = list.load(std::memory_order_acquire);
    do {
      heap = find_heap(backend, device, kind);
    } while (!heap && !list.compare_exchange_weak(made->next, made, std::memory_order_acq_rel));
    if (!heap) heap = made;
  }
  if (kind == MemoryKind::kDevice && static_cast<unsigned>(device) < kQuickDevices)
    quick_heaps[backend][device].store(heap, std::memory_order_release);
  return *heap;
}

std::vector<Heap*> heaps_of(int backend) {
  std::vector<Heap*> heaps;
  for (Heap* h = heap_lists[backend].load(std::memory_order_acquire); h; h = h->next)
    heaps.push_back(h);
  std::sort(heaps.begin(), heaps.end(), [](const Heap* a, const Heap* b) {
    return std::pair(a->kind, a->device) < std::pair(b->kind, b->device);
  });
  return heaps;
}

Block* pooled_alloc(int backend, int device, uint64_t nbytes, void* stream) {
  return heap_of(backend, device)
      .allocate(nbytes, stream, pool_of(thread_state(), backend, device));
}

void record_stream(Block* block, void* stream) {
  Heap& heap = heap_of_block(block);
  heap.record_stream(block, {heap.device, stream});
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

// In front of host memory, which is asked for by size and given back by address.
struct alignas(64) Header {
  Block* block;
};

}  // namespace

void* host_alloc(uint64_t nbytes) {
  if (const int backend = host_backend()) {
    Block* block = cached_alloc(backend, 0, nbytes + sizeof(Header), nullptr, thread_state());
    static_cast<Header*>(block->data)->block = block;
    return static_cast<Header*>(block->data) + 1;
  }
  void* p = std::aligned_alloc(64, (nbytes + 63) / 64 * 64);
  if (!p)
    fail(RB_E_OOM, "out of memory: could not allocate %llu bytes", (unsigned long long)nbytes);
  return p;
}

void host_free(void* p) {
  if (host_backend()) {
    cached_free((static_cast<Header*>(p) - 1)->block);
  } else {
    std::free(p);
  }
}

void* block_alloc_slow(uint64_t nbytes) {
  if (nbytes > kLargestBlock) return host_alloc(nbytes);
  const uint64_t rounded = (nbytes + kBlockUnit - 1) / kBlockUnit * kBlockUnit;
  void* p = std::aligned_alloc(kBlockUnit, rounded ? rounded : kBlockUnit);
  if (p) mark_unused(static_cast<char*>(p) + nbytes, rounded - nbytes);
  if (!p)
    fail(RB_E_OOM, "out of memory: could not allocate %llu bytes", (unsigned long long)nbytes);
  return p;
}

void block_free_slow(void* p, uint64_t nbytes) {
  if (nbytes > kLargestBlock) {
    host_free(p);
  } else {
    std::free(p);
  }
}

void empty_cache() {
  for (int backend = 1; backend < backend_count(); ++backend) {
    for (Heap* heap : heaps_of(backend)) heap->release_cached();
  }
}

// ---- pools

MemoryPool::MemoryPool() : id(new_pool_id()) {}

MemoryPool::~MemoryPool() {
  for (int backend = 1; backend < backend_count(); ++backend) {
    for (Heap* heap : heaps_of(backend)) heap->close_pool(id);
  }
}

std::shared_ptr<MemoryPool> make_pool() {
  auto pool = std::make_shared<MemoryPool>();
  std::lock_guard<std::mutex> lock(pools().mutex);
  pools().alive[pool->id] = pool;
  return pool;
}

std::shared_ptr<MemoryPool> find_pool(uint64_t id) {
  std::lock_guard<std::mutex> lock(pools().mutex);
  const auto found = pools().alive.find(id);
  std::shared_ptr<MemoryPool> pool;
  if (found != pools().alive.end()) pool = found->second.lock();
  if (!pool)
    fail(RB_E_ARG, "there is no memory pool (0, %llu), or nothing refers to it any more",
         (unsigned long long)id);
  return pool;
}

void enter_pool(int backend, int device, uint64_t pool) {
  check_device(backend, device);
  if (has_host_memory(backend) || backend == kMeta)
    fail(RB_E_NOTIMPL,
         "the memory of '%s' has no private pools: small blocks of host memory come "
         "from lists of each thread",
         backend_name(backend));
  thread_state().pools.push_back({backend, device, pool});
}

void leave_pool(int backend, int device, uint64_t pool) {
  std::vector<PoolUse>& all = thread_state().pools;
  const auto at = std::find_if(all.rbegin(), all.rend(), [&](const PoolUse& use) {
    return use.backend == backend && use.device == device && use.pool == pool;
  });
  if (at != all.rend()) all.erase(std::next(at).base());
}

}  // namespace rabbet

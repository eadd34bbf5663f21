// What every thread keeps: dispatch state, the error record, free lists of small blocks.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "rabbet/abi.h"
#include "thread/sanitize.h"

namespace rabbet {

constexpr int kBlockUnit = 64;
constexpr int kBlockClasses = 65;
constexpr int kBackendIds = 16;                                       // kMaxBackends
constexpr int kSlotIds = 4;                                           // kSlots
constexpr int kFreeBlocks = 512;                                      // most in a free list
constexpr uint64_t kLargestBlock = (kBlockClasses - 1) * kBlockUnit;  // of the free lists

struct FreeBlock {
  FreeBlock* next;
};

// A thread's share of the live counts. Only its own thread writes; the shares are summed at need,
// and one may be negative when objects die on another thread than the one that made them.
struct LiveCounts {
  struct OfBackend {
    std::atomic<int64_t> tensors{0}, storages{0}, bytes{0};
    int64_t unused;  // a power of two is quicker to index by
  };
  OfBackend of[kBackendIds];
  std::atomic<int64_t> slots[kSlotIds]{};  // tensors that have the slot
  LiveCounts* next = nullptr;
};

inline void bump(std::atomic<int64_t>& counter, int64_t by) {  // one writer: its own thread
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/// An entered level of a transform. Levels count from 1; 0 is none.
struct TransformFrame {
  int32_t layer;   // key bit of the transform's layer
  uint32_t flags;  // RB_X_*
  void* frame;
  uint64_t serial;       // tells this level from earlier ones of the same number
  int32_t depth, floor;  // ThreadState's, outside of the level
};

/// A thread's stream of a device where it is not the default one.
struct CurrentStream {
  int32_t backend, device;
  void* stream;
};

/// A private pool of a device's memory that a thread allocates from (memory.h).
struct PoolUse {
  int32_t backend, device;
  uint64_t pool;
};

struct Capture;   // device/capture.h
struct CallPlan;  // call/plan.h

struct ThreadState {
  uint64_t include = 0, exclude = 0;
  uint64_t included_once = 0;  // those of `include` that only the next call of a layer gets
  int32_t depth = 0;           // levels that a call without tensors can concern
  int32_t floor = 0;           // but those up to here, which are outside a kernel that runs
  bool has_streams = false;    // `streams` is not empty
  std::vector<TransformFrame> levels;
  const CallPlan* plan = nullptr;  // of the innermost call that a layer handles
  LiveCounts* live = nullptr;      // outlives the thread
  int32_t plugin_calls = 0;        // of host->call, that run inside each other
  int32_t inside_layers = 0;       // handlers of layers of others that run inside each other
  int32_t nested = 0;  // decompositions and kernels in Python that run inside each other
  int32_t in_parallel = 0;
  uint32_t tensor_flags = 0;          // of new tensors: RB_T_INFERENCE in inference mode
  FreeBlock* free_tensors = nullptr;  // see take_tensor in tensor.cpp
  int32_t free_tensor_count = 0;
  FreeBlock* free_blocks[kBlockClasses] = {};
  int32_t free_counts[kBlockClasses] = {};

  RbError error{};
  std::string message, op, frames;
  void (*foreign_del)(void*) = nullptr;

  std::vector<CurrentStream> streams;
  std::vector<PoolUse> pools;
  int32_t current_devices[kBackendIds] = {};  // of each backend
  bool nonblocking = false;                   // copies from and to pinned memory do not wait
  Capture* capture = nullptr;                 // that the thread's work on a device goes to
  RbGenerator* generator = nullptr;           // drawn from in place of the default ones
  std::string source, found_source;  // the line of the program: that was set, that was looked up
};

// One 8-byte pointer with the initial-exec model: a larger block can exhaust the static TLS space
// when the library is loaded late.
// `__thread`, as no access needs to ask whether it has to be initialised.
extern __thread ThreadState* thread_state_ __attribute__((tls_model("initial-exec")));
ThreadState* make_thread_state();
/// The state of a thread of core's own pool, which makes no calls: `using_threads` leaves it out.
ThreadState& make_worker_state();

inline ThreadState& thread_state() {
  ThreadState* state = thread_state_;
  return __builtin_expect(state != nullptr, 1) ? *state : *make_thread_state();
}

/// The shares of all threads, a list.
LiveCounts* live_counts();

/// Blocks of up to kLargestBlock bytes from thread-local free lists, larger ones from the cache of
/// host memory; 64-byte aligned. Defined in device/memory.cpp.
void* block_alloc_slow(uint64_t nbytes);
void block_free_slow(void* p, uint64_t nbytes);

inline void* block_alloc(uint64_t nbytes, ThreadState& state) {
  const uint64_t cls = (nbytes + kBlockUnit - 1) / kBlockUnit;
  if (__builtin_expect(cls < kBlockClasses && !kAddressSanitizer, 1)) {
    FreeBlock* block = state.free_blocks[cls];
    if (__builtin_expect(block != nullptr, 1)) {
      state.free_blocks[cls] = block->next;
      --state.free_counts[cls];
      return block;
    }
  }
  return block_alloc_slow(nbytes);
}

inline void* block_alloc(uint64_t nbytes) { return block_alloc(nbytes, thread_state()); }

inline void block_free(void* p, uint64_t nbytes, ThreadState& state) {
  const uint64_t cls = (nbytes + kBlockUnit - 1) / kBlockUnit;
  if (__builtin_expect(cls < kBlockClasses && !kAddressSanitizer, 1)) {
    if (__builtin_expect(state.free_counts[cls] < kFreeBlocks, 1)) {
      FreeBlock* block = static_cast<FreeBlock*>(p);
      block->next = state.free_blocks[cls];
      state.free_blocks[cls] = block;
      ++state.free_counts[cls];
      return;
    }
  }
  block_free_slow(p, nbytes);
}

inline void block_free(void* p, uint64_t nbytes) { block_free(p, nbytes, thread_state()); }

}  // namespace rabbet

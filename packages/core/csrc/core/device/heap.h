// The caching allocator of one kind of memory of one device. Segments come from the backend; they
// are split into blocks, which join again when they are free.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rabbet/abi.h"
#include "thread/lock.h"

namespace rabbet {

enum class MemoryKind : int32_t { kDevice, kPinned, kManaged, kShared };  // RB_MEMORY_*

/// A quantity and its peak, and the sums of all its rises and of all its falls.
class MemoryStat {
 public:
  uint64_t current() const { return rises_ - falls_; }
  uint64_t peak() const { return peak_; }
  uint64_t allocated() const { return rises_ - rises_before_; }
  uint64_t freed() const { return falls_ - falls_before_; }

  void rise(uint64_t by) {
    rises_ += by;
    if (current() > peak_) peak_ = current();
  }
  void fall(uint64_t by) { falls_ += by; }
  void reset_peak() { peak_ = current(); }
  void reset_sums() {
    rises_before_ = rises_;
    falls_before_ = falls_;
  }

 private:
  uint64_t rises_, falls_, peak_;
  uint64_t rises_before_, falls_before_;  // those that the sums do not count
};

/// Blocks in use, segments, and free blocks of segments that are split.
struct BlockStats {
  MemoryStat blocks, block_bytes, requested_bytes, segments, segment_bytes, split_blocks,
      split_bytes;

  std::array<MemoryStat*, 7> each() {
    return {&blocks,        &block_bytes,  &requested_bytes, &segments,
            &segment_bytes, &split_blocks, &split_bytes};
  }
};
struct MemoryStats {
  BlockStats all, small, large;
  uint64_t retries, ooms;  // times that the cache was given back for lack of memory; to no avail
};

class Heap;
struct Segment;

/// Free blocks of one stream and pool, in lists by size. Blocks of up to 1 MiB have an arena, and
/// segments, of their own.
struct Arena;

/// A stream of a device of the heap's backend.
struct StreamUse {
  int device;
  void* stream;
  bool operator==(const StreamUse& o) const { return device == o.device && stream == o.stream; }
};

/// A part of a segment: in use, or free and in a list of its arena.
struct Block {
  void* data;
  uint64_t size, requested;  // requested: what was asked for
  Segment* segment;
  Arena* arena;
  Block *prev, *next;            // neighbours in the segment
  Block *list_prev, *list_next;  // in the arena's list while it is free
  bool used;
  std::vector<StreamUse> used_on;  // besides the arena's stream, see Heap::record_stream
};

/// What a snapshot says.
struct BlockInfo {
  uint64_t address, size, requested;
  bool used;
};
struct SegmentInfo {
  int backend, device;
  MemoryKind kind;
  void* stream;
  uint64_t pool, address, size;
  bool small;
  std::vector<BlockInfo> blocks;
};

class Heap {
 public:
  Heap(int backend, int device, MemoryKind kind);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// From the cache or the backend. The block belongs to the stream: who gets it again there comes
  /// after those who had it. `pool` 0 is the default one. Throws RB_E_OOM naming sizes.
  Block* allocate(uint64_t nbytes, void* stream, uint64_t pool);
  void free(Block* block);
  /// The block is used on a stream too: after it is freed, it is not given again before that stream
  /// has done the work that it had then.
  void record_stream(Block* block, StreamUse use);
  /// Give free segments back to the backend, but those of pools that are alive.
  void release_cached();
  /// Nobody allocates in the pool any more: its segments go back as soon as they are free.
  void close_pool(uint64_t pool);
  /// Allocations that would take more than this from the backend fail.
  void set_limit(uint64_t nbytes);

  MemoryStats stats();
  void reset_peaks();
  void reset_accumulated();
  std::vector<SegmentInfo> snapshot();
  /// The memory of the block's segment, as the backend gave it.
  RbBuffer segment_of(const Block* block);

  const int backend, device;
  const MemoryKind kind;
  Heap* next = nullptr;  // of the backend's heaps

 private:
  Arena& arena(void* stream, uint64_t pool, bool small);
  Arena& find_arena(void* stream, uint64_t pool, bool small);
  Block* find(Arena& arena, uint64_t size) const;
  Block* take(Block* block, Arena& owner, uint64_t size, uint64_t requested);
  void insert(Block* block);
  void remove(Block* block);
  Block* join(Block* block);
  Block* new_block();
  Block* add_segment(const RbBuffer& buffer, Arena& arena);
  void detach(Segment* segment, std::vector<Segment*>& detached);
  void give_back(std::vector<Segment*>& detached);
  std::vector<Segment*> detach_free(uint64_t pool, bool closing);
  void drop_if_empty(Arena& arena);

  void free_used(Block* block);
  void put_back(Block* block, bool counted = false);
  struct Waiting;
  void reclaim();
  bool has_passed(Waiting& waiting, std::vector<StreamUse>& busy);
  void finish(Waiting& waiting);
  void wait_on_streams();

  bool keep(Block* block);
  Block* take_kept(Arena& arena, uint64_t size, uint64_t requested);
  bool join_kept();

  int32_t expect(uint64_t nbytes);
  int32_t check_buffer(uint64_t size, void* stream, RbBuffer& out);
  void give_back(RbBuffer& buffer, void* stream) noexcept;
  int32_t ask(uint64_t size, void* stream, RbBuffer& out);
  int32_t extend(uint64_t size, uint64_t requested, void* stream, uint64_t pool, Block*& out);
  void lengthen(Segment* segment, Arena& owner, uint64_t nbytes);
  void shorten(Segment* segment, uint64_t nbytes);
  void shrink_segments();
  Block* grow(uint64_t size, uint64_t requested, void* stream, uint64_t pool);
  Block* borrow(uint64_t size, uint64_t requested, void* stream, uint64_t pool);
  Block* take_found(Arena& arena, uint64_t size, uint64_t requested);
  Block* try_cached(uint64_t size, uint64_t requested, void* stream, uint64_t pool);
  std::string describe_use();
  [[noreturn]] void fail_oom(uint64_t nbytes, int32_t rc);
  template <class F>
  void count(bool small, F change);
  void count_taken(const Block* block);
  void count_freed(const Block* block);

  const RbAllocator& allocator_;
  Lock mutex_;  // never held while the backend runs
  bool host_, split_, exact_;
  uint64_t cap_;    // bytes that may be cached
  uint64_t slack_;  // a block of an oversized segment may be larger by a quarter and this
  uint64_t limit_ = UINT64_MAX, pending_ = 0;  // pending: asked of the backend, not there yet
  std::vector<std::unique_ptr<Arena>> arenas_;
  Arena* recent_[2] = {};  // large and small, asked for last
  Segment* segments_ = nullptr;
  Block* spare_ = nullptr;   // structs to be used again
  uint64_t kept_bytes_ = 0;  // of all arenas
  /// A freed block that streams still use, and events that they pass when they have done with it.
  struct Waiting {
    Block* block;
    std::vector<StreamUse> uses;
    std::vector<void*> events;  // of the first uses; those of the others are not recorded yet
  };
  std::vector<Waiting> waiting_;
  std::atomic<bool> waits_{
      false};  // whether there are any: allocations look at it without the lock
  MemoryStats stats_{};
};

Heap& heap_of_block(const Block* block);

}  // namespace rabbet

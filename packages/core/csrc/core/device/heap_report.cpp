// What the heap tells: statistics, a snapshot, and what it says when there is no memory.
#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "device/backends.h"
#include "device/heap_parts.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

// What holds the memory: per pool, and the largest blocks.
std::string Heap::describe_use() {
  struct Use {
    uint64_t used = 0, held = 0;
    std::string text() const {
      return std::to_string(used) + " of " + std::to_string(held) + " bytes";
    }
  };
  Use small, large, pools;
  std::vector<uint64_t> sizes;
  uint64_t free = 0;
  {
    std::lock_guard lock(mutex_);
    for (const Segment* s = segments_; s; s = s->next) {
      Use& use = s->arena->pool ? pools : s->arena->small ? small : large;
      use.held += s->buffer.nbytes;
      for (const Block* b = s->first; b; b = b->next) {
        if (b->used) {
          use.used += b->size;
          sizes.push_back(b->size);
        } else {
          free = std::max(free, b->size);
        }
      }
    }
  }
  std::string text = "; in use: small blocks " + small.text() + ", large blocks " + large.text();
  if (pools.held) text += ", private pools " + pools.text();
  const size_t shown = std::min<size_t>(sizes.size(), 3);
  std::partial_sort(sizes.begin(), sizes.begin() + shown, sizes.end(), std::greater<>());
  for (size_t i = 0; i < shown; ++i)
    text += (i ? ", " : "; the largest blocks in use: ") + std::to_string(sizes[i]);
  return text + "; the largest free one: " + std::to_string(free);
}

void Heap::fail_oom(uint64_t nbytes, int32_t rc) {
  const std::string reason = rc == RB_OK ? "" : thread_state().message;
  uint64_t free = 0, total = 0;
  bool told = false;
  guarded([&] { told = memory_info(backend, device, &free, &total); });
  const std::string there =
      told ? "; " + std::to_string(free) + " of the device's " + std::to_string(total) + " are free"
           : "";
  MemoryStats now;
  {
    std::lock_guard lock(mutex_);
    ++stats_.ooms;
    now = stats_;
  }
  const uint64_t used = now.all.block_bytes.current();
  const uint64_t cached = now.all.segment_bytes.current() - used;
  const char* hint =
      cached > nbytes
          ? "what is cached lies in pieces: drop tensors that lie between, or allocate the largest "
            "first"
          : "drop tensors that are not needed any more, use smaller batches or a smaller dtype";
  fail(RB_E_OOM,
       "out of memory on %s: could not allocate %llu bytes (%llu are in use, at most %llu were, "
       "%llu are cached in parts of segments%s%s); hint: %s%s%s",
       backend_name(backend), (unsigned long long)nbytes, (unsigned long long)used,
       (unsigned long long)now.all.block_bytes.peak(), (unsigned long long)cached, there.c_str(),
       describe_use().c_str(), hint, reason.empty() ? "" : "; the backend says: ", reason.c_str());
}

MemoryStats Heap::stats() {
  std::lock_guard lock(mutex_);
  join_kept();
  return stats_;
}

void Heap::reset_peaks() {
  std::lock_guard lock(mutex_);
  join_kept();
  for (BlockStats* part : {&stats_.all, &stats_.small, &stats_.large}) {
    for (MemoryStat* stat : part->each()) stat->reset_peak();
  }
}

void Heap::reset_accumulated() {
  std::lock_guard lock(mutex_);
  for (BlockStats* part : {&stats_.all, &stats_.small, &stats_.large}) {
    for (MemoryStat* stat : part->each()) stat->reset_sums();
  }
  stats_.retries = stats_.ooms = 0;
}

std::vector<SegmentInfo> Heap::snapshot() {
  std::lock_guard lock(mutex_);
  join_kept();
  std::vector<SegmentInfo> all;
  for (const Segment* s = segments_; s; s = s->next) {
    SegmentInfo info{backend,          device,          kind,
                     s->arena->stream, s->arena->pool,  reinterpret_cast<uint64_t>(s->buffer.data),
                     s->buffer.nbytes, s->arena->small, {}};
    for (const Block* b = s->first; b; b = b->next)
      info.blocks.push_back(
          {reinterpret_cast<uint64_t>(b->data), b->size, b->used ? b->requested : 0, b->used});
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace rabbet

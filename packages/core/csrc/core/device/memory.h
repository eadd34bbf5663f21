// The caching allocator: large blocks of every backend, kept for reuse by size.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "rabbet/abi.h"

namespace rabbet {

/// Memory for `nbytes` on a device, from the cache or the backend; throws RB_E_OOM naming sizes. It
/// belongs to the stream: who gets it again there comes after those who had it.
RbBuffer cached_alloc(int backend, int device, uint64_t nbytes, void* stream = nullptr);
void cached_free(int backend, RbBuffer buffer, void* stream = nullptr);
/// Host memory from the cache of the backend that offers it, for scratch of kernels.
void* host_alloc(uint64_t nbytes);
void host_free(void* p, uint64_t nbytes);
/// Give all cached blocks back to the backends.
void empty_cache();

/// How a quantity went: what it is, the most it was, the sums of all rises and of all falls.
struct MemoryStat {
  uint64_t current, peak, allocated, freed;
  void rise(uint64_t by) {
    current += by;
    allocated += by;
    if (current > peak) peak = current;
  }
  void fall(uint64_t by) {
    current -= by;
    freed += by;
  }
};
/// Of one device. Blocks in use, and segments: blocks that the backend gave, in use or cached.
struct MemoryStats {
  MemoryStat blocks, block_bytes, segments, segment_bytes;
  uint64_t retries, ooms;  // times that the cache was given back for lack of memory; to no avail

  std::array<MemoryStat*, 4> all() { return {&blocks, &block_bytes, &segments, &segment_bytes}; }
};
MemoryStats memory_stats(int backend, int device);
/// The devices on which there was an allocation.
std::vector<int> devices_with_memory(int backend);
/// Let the peaks begin at what there is now.
void reset_peak_memory(int backend, int device);
/// Let the sums of rises and falls, and the counts of failures, begin at zero.
void reset_accumulated_memory(int backend, int device);

}  // namespace rabbet

// The caching allocator: large blocks of every backend, kept for reuse by size.
#pragma once
#include <cstdint>

#include "rabbet/abi.h"

namespace rabbet {

/// Memory for `nbytes` on a device, from the cache or the backend; throws RB_E_OOM naming sizes.
RbBuffer cached_alloc(int backend, int device, uint64_t nbytes);
void cached_free(int backend, RbBuffer buffer);
/// Host memory from the cache of the backend that offers it, for scratch of kernels.
void* host_alloc(uint64_t nbytes);
void host_free(void* p, uint64_t nbytes);
/// Give all cached blocks back to the backends.
void empty_cache();

struct CacheCounts {
  uint64_t in_use, cached, peak;
};
CacheCounts cache_counts(int backend);
void reset_peak(int backend);

}  // namespace rabbet

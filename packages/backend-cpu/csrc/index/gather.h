// Elements at checked indices, per instruction-set level (gather_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

/// to[i] = from[index[i]] for i < n; false if an index lies outside [0, size), which is not
/// followed. `next`, null if there is none, are the `size` elements of the next call: fetched
/// meanwhile. With `stream`, `to` is stored past the caches (can_stream).
template <class T>
using Gather = bool (*)(const int64_t* index, int64_t n, int64_t size, const T* from, const T* next,
                        T* to, bool stream);
struct GatherTable {
  Gather<uint32_t> b32;
  Gather<uint64_t> b64;
};
extern const GatherTable gather_table_v2, gather_table_v3, gather_table_v4;

}  // namespace rbcpu

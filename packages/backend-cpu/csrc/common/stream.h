// Stores that bypass the caches, for results much larger than what a core can keep there: memory is
// written without being read first.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rbcpu {

/// Transposed copies from this size on, which exceed the L2 cache of a core, are streamed; for
/// other results see loops.cpp.
constexpr int64_t kStreamBytes = int64_t{3} << 20;

/// Whether rows of `row_bytes` from `to` on, `bytes` in all, are streamed by whole vectors: a large
/// result whose rows are whole cache lines.
static inline bool can_stream(const void* to, int64_t bytes, int64_t row_bytes) {
  return bytes >= kStreamBytes && ((reinterpret_cast<uintptr_t>(to) | row_bytes) & 63) == 0;
}

/// memcpy with streaming stores; stream_fence before another thread may read.
static inline void stream_copy(char* to, const char* from, int64_t n) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64;
  const int64_t head = -reinterpret_cast<intptr_t>(to) & (kLine - 1);
  if (n >= head + kLine) {
    std::memcpy(to, from, head);
    int64_t i = head;
    for (; i + kLine <= n; i += kLine) {
      const __m128i* x = reinterpret_cast<const __m128i*>(from + i);
      __m128i* r = reinterpret_cast<__m128i*>(to + i);
      const __m128i a = _mm_loadu_si128(x), b = _mm_loadu_si128(x + 1);
      const __m128i c = _mm_loadu_si128(x + 2), d = _mm_loadu_si128(x + 3);
      _mm_stream_si128(r, a);
      _mm_stream_si128(r + 1, b);
      _mm_stream_si128(r + 2, c);
      _mm_stream_si128(r + 3, d);
    }
    std::memcpy(to + i, from + i, n - i);
    return;
  }
#endif
  std::memcpy(to, from, n);
}
static inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace rbcpu

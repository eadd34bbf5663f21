// Copies that bypass the caches, for results that will not be read soon.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace compile {

/// memcpy of memory that is not needed in the cache; `stream_end` before another thread may read.
inline void stream_copy(char* to, const char* from, int64_t n) {
#if defined(__SSE2__)
  constexpr int64_t kVector = sizeof(__m128i);
  const int64_t head = std::min<int64_t>(n, -reinterpret_cast<intptr_t>(to) & (4 * kVector - 1));
  std::memcpy(to, from, head);
  int64_t i = head;
  for (; i + kVector <= n; i += kVector) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  std::memcpy(to + i, from + i, n - i);
#else
  std::memcpy(to, from, n);
#endif
}
inline void stream_end() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace compile

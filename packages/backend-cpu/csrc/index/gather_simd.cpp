// Elements at checked indices. The gathers of AVX-512 check as they go; elsewhere a block of
// indices is checked before it is followed.
#include "common/level.h"
#include "index/gather.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t kAhead = 512;  // indices

#if defined(__AVX512F__)
// Eight of the elements; outside the mask nothing is read.
RB_ALWAYS void gather_store(const uint32_t* from, __m512i at, __mmask8 valid, uint32_t* to,
                            bool stream) {
  const __m256i v =
      _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), valid, at, from, sizeof(uint32_t));
  if (stream) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), v);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), v);
  }
}
RB_ALWAYS void gather_store(const uint64_t* from, __m512i at, __mmask8 valid, uint64_t* to,
                            bool stream) {
  const __m512i v =
      _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), valid, at, from, sizeof(uint64_t));
  if (stream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v);
  } else {
    _mm512_storeu_si512(to, v);
  }
}

template <class T, bool Stream>
RB_ALWAYS bool gather_run(const int64_t* index, int64_t n, int64_t size, const T* from,
                          const T* next, T* to) {
  constexpr int kGroup = 8, kLine = 64 / sizeof(T);
  const __m512i bound = _mm512_set1_epi64(size);
  __mmask8 valid = 0xff;
  int64_t i = 0;
  for (; i + 2 * kGroup <= n; i += 2 * kGroup) {
    __builtin_prefetch(index + i + kAhead);
    __builtin_prefetch(index + i + kAhead + kGroup);
    if (next && i < size) {
#pragma GCC unroll 2
      for (int k = 0; k < 2 * kGroup; k += kLine) __builtin_prefetch(next + i + k);
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2 * kGroup; k += kGroup) {
      const __m512i at = _mm512_loadu_si512(index + i + k);
      const __mmask8 inside = _mm512_cmplt_epu64_mask(at, bound);
      valid &= inside;
      gather_store(from, at, inside, to + i + k, Stream);
    }
  }
  bool ok = valid == 0xff;
  for (; i < n; ++i) {
    const bool inside = static_cast<uint64_t>(index[i]) < static_cast<uint64_t>(size);
    if (inside) to[i] = from[index[i]];
    ok &= inside;
  }
  return ok;
}
template <class T>
bool gather(const int64_t* index, int64_t n, int64_t size, const T* from, const T* next, T* to,
            bool stream) {
  return stream ? gather_run<T, true>(index, n, size, from, next, to)
                : gather_run<T, false>(index, n, size, from, next, to);
}
#else
template <class T>
bool gather(const int64_t* index, int64_t n, int64_t size, const T* from, const T*, T* to, bool) {
  constexpr int64_t kBlock = 512;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    int64_t outside = 0;  // the sign bit: negative, or size - 1 - index is
    for (int64_t i = begin; i < end; ++i) outside |= index[i] | (size - 1 - index[i]);
    if (outside < 0) return false;
    for (int64_t i = begin; i < end; ++i) to[i] = from[index[i]];
  }
  return true;
}
#endif

}  // namespace

namespace rbcpu {
extern const GatherTable RB_LEVEL_NAME(gather_table) = {gather<uint32_t>, gather<uint64_t>};
}

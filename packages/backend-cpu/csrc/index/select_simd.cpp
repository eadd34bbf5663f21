// Keys of float32, and the few of them that lie below a bound.
#include "common/level.h"
#include "index/select.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

using rbcpu::SelectTable;

void float_keys(const float* x, int64_t n, int32_t flip, int32_t* keys) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) keys[i] = rbcpu::float_key(x[i]) ^ flip;
}

void group_minima(const int32_t* keys, int64_t n, int64_t groups, int32_t* least) {
  for (int64_t j = 0; j < groups; ++j) least[j] = INT32_MAX;
  for (int64_t begin = 0; begin + groups <= n; begin += groups) {
    const int32_t* set = keys + begin;
#pragma GCC ivdep
    for (int64_t j = 0; j < groups; ++j) least[j] = set[j] < least[j] ? set[j] : least[j];
  }
}

// One bit for each of a block of keys up to `bound`.
RB_ALWAYS uint32_t up_to(const int32_t* keys, int32_t bound) {
#if defined(__AVX512F__)
  return _mm512_cmple_epi32_mask(_mm512_loadu_si512(keys), _mm512_set1_epi32(bound));
#else
  int32_t some = 0;
  for (int i = 0; i < SelectTable::kBlock; ++i) some |= keys[i] <= bound;
  if (!some) return 0;
  uint32_t bits = 0;
  for (int i = 0; i < SelectTable::kBlock; ++i) bits |= uint32_t{keys[i] <= bound} << i;
  return bits;
#endif
}

int64_t collect(const int32_t* keys, int64_t begin, int64_t n, int32_t bound, int64_t first,
                int64_t* items, int64_t* count, int64_t room) {
  constexpr int64_t kBlock = SelectTable::kBlock;
  int64_t found = *count, i = begin;
  for (; i + kBlock <= n && found + kBlock <= room; i += kBlock) {
    for (uint32_t bits = up_to(keys + i, bound); bits; bits &= bits - 1) {
      const int64_t at = i + __builtin_ctz(bits);
      items[found++] = rbcpu::key_at(keys[at], first + at);
    }
  }
  if (i + kBlock > n) {
    for (; i < n && found < room; ++i) {
      if (keys[i] <= bound) items[found++] = rbcpu::key_at(keys[i], first + i);
    }
  }
  *count = found;
  return i;
}

}  // namespace

namespace rbcpu {
extern const SelectTable RB_LEVEL_NAME(select_table) = {float_keys, group_minima, collect};
}

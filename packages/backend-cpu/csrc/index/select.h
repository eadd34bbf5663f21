// Keys with the order of values, and picking the least of them, per instruction-set level
// (select_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

/// An integer with the order of floats: -0 equals 0, NaN is largest.
static inline __attribute__((always_inline)) int32_t float_key(float x) {
  const int32_t bits = __builtin_bit_cast(int32_t, x + 0.0f);
  const int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
  return x != x ? INT32_MAX : key;
}

/// A key and where it stands as one integer: ordered by key, then by place.
static inline __attribute__((always_inline)) int64_t key_at(int32_t key, int64_t index) {
  return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(key)) << 32) | index;
}

struct SelectTable {
  /// keys[i] = float_key(x[i]) ^ flip
  void (*float_keys)(const float* x, int64_t n, int32_t flip, int32_t* keys);
  /// least[j] = the least of every `groups`-th key from the j-th on; those behind the last whole
  /// set of groups do not count.
  void (*group_minima)(const int32_t* keys, int64_t n, int64_t groups, int32_t* least);
  /// Append to the `count` items key_at(keys[i], first + i) for the keys up to `bound`, from i =
  /// begin on while kBlock more would fit. Returns where it stopped.
  int64_t (*collect)(const int32_t* keys, int64_t begin, int64_t n, int32_t bound, int64_t first,
                     int64_t* items, int64_t* count, int64_t room);
  static constexpr int64_t kBlock = 16;
};
extern const SelectTable select_table_v2, select_table_v3, select_table_v4;

}  // namespace rbcpu

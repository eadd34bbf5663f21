// Runs of random words and of normal numbers, per instruction-set level (words_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

struct WordTable {
  /// Store the four words of each counter first + i (rabbet/philox.h), i < n, at words + 4 * i.
  void (*philox)(uint64_t seed, uint64_t first, int64_t n, uint32_t* words);
  /// Store the two standard normal numbers of words 2 * i and 2 * i + 1, i < pairs, at r + 2 * i.
  /// They differ from rb_normal_f32 only by the rounding of log, sin and cos.
  void (*normal)(const uint32_t* words, int64_t pairs, float* r);
};
extern const WordTable word_table_v2, word_table_v3, word_table_v4;

}  // namespace rbcpu

// Runs of random words, and normal numbers made of them, per instruction-set level
// (words_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

struct WordTable {
  /// words[4 * i, ...] = the four words of counter `first` + i (rabbet/philox.h) for i < n.
  void (*philox)(uint64_t seed, uint64_t first, int64_t n, uint32_t* words);
  /// r[2 * i] and r[2 * i + 1] = the standard normal numbers of two words, as rb_normal_f32 up to
  /// the last bits of log, sin and cos, for i < pairs.
  void (*normal)(const uint32_t* words, int64_t pairs, float* r);
};
extern const WordTable word_table_v2, word_table_v3, word_table_v4;

}  // namespace rbcpu

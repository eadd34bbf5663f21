// Runs of random words, per instruction-set level
// (words_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

struct WordTable {
  /// words[4 * i, ...] = the four words of counter `first` + i (rabbet/philox.h) for i < n.
  void (*philox)(uint64_t seed, uint64_t first, int64_t n, uint32_t* words);
};
extern const WordTable word_table_v2, word_table_v3, word_table_v4;

}  // namespace rbcpu

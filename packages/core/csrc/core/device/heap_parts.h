// What the files of the heap share.
#pragma once
#include <iterator>
#include <vector>

#include "device/heap.h"

namespace rabbet {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kUnit = 512;
constexpr uint64_t kSmallLimit = kMiB;  // blocks up to it come from segments of their own
constexpr uint64_t kSmallSegment = 2 * kMiB;
constexpr uint64_t kLargeSegment = 20 * kMiB;  // of blocks up to half of it
constexpr uint64_t kOversize = 2 * kMiB;       // larger ones are multiples of this
constexpr int kClasses = 416;                  // eight for each power of two

inline uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

inline uint64_t segment_size(uint64_t size) {
  if (size <= kSmallLimit) return kSmallSegment;
  if (size <= kLargeSegment / 2) return kLargeSegment;
  return round_up(size, kOversize);
}

struct Segment {
  Heap& heap;
  RbBuffer buffer;
  Arena* arena;  // that it was made for
  Block *first, *last;
  Segment *prev, *next;
  bool busy = false;  // the backend changes its length; it stays where it is
};

struct Arena {
  void* stream;
  uint64_t pool;
  bool small, closed;
  int64_t parts;   // segments and blocks that refer to it
  Segment* grows;  // the newest of its segments, unless it cannot grow
  /// Small blocks that were freed last, by size, each a list. They are not joined yet: the next
  /// block of the size is one of them.
  std::vector<Block*> kept;
  Block* lists[kClasses];
  uint64_t occupied[(kClasses + 63) / 64];  // a bit for each list that is not empty

  int next_class(int from) const {
    for (int word = from / 64; word < static_cast<int>(std::size(occupied)); ++word) {
      const uint64_t bits =
          occupied[word] & (word == from / 64 ? ~uint64_t{0} << from % 64 : ~0ull);
      if (bits) return word * 64 + __builtin_ctzll(bits);
    }
    return kClasses;
  }
};

inline Arena& Heap::arena(void* stream, uint64_t pool, bool small) {
  Arena* recent = recent_[small];
  if (__builtin_expect(recent && recent->stream == stream && recent->pool == pool, 1))
    return *recent;
  return *(recent_[small] = &find_arena(stream, pool, small));
}

template <class F>
void Heap::count(bool small, F change) {
  change(stats_.all);
  change(small ? stats_.small : stats_.large);
}

}  // namespace rabbet

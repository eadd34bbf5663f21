#include "ops/radix.h"

#include <algorithm>
#include <utility>

#include "launch/texts.h"

namespace rbcuda {
namespace {

constexpr int64_t kTile = 4096;  // twin of RB_TILE

unsigned blocks_of(int64_t count) {
  return static_cast<unsigned>(std::min<int64_t>(count, 1 << 20));
}

}  // namespace

Sorting sorting_of(int64_t n) { return {n, n, {1, 1, 1}, 0, 0, (n + kTile - 1) / kTile}; }

RadixSort::RadixSort(const char* op, const RbTensor& like, int key_bytes, int64_t lines, int64_t n)
    : op_(op),
      device_(device_of(like)),
      key_bytes_(key_bytes),
      lines_(lines),
      s_(sorting_of(n)),
      key_memory_(like, 2 * lines * n * key_bytes),
      place_memory_(like, 2 * lines * n * 4),
      counts_(like, lines * 256 * s_.tiles * 4),
      totals_(like, lines * 256 * 4),
      key_(static_cast<char*>(key_memory_.data())),
      other_key_(key_ + lines * n * key_bytes),
      place_(static_cast<char*>(place_memory_.data())),
      other_place_(place_ + lines * n * 4) {
  if (n > INT32_MAX) rb::fail(RB_E_NOTIMPL, "%s on 'cuda': more than 2**31 elements to sort", op);
}

Kernel RadixSort::kernel(const char* text) const {
  return {op_, {{"A", key_dtype()}, {"K", key_dtype()}}, kText_order, text};
}

void RadixSort::run() {
  void *counted = counts_.data(), *totals = totals_.data();
  const Grid grid{blocks_of(lines_ * s_.tiles), 1, 1, 256};
  for (s_.digit = 0; s_.digit < key_bytes_; ++s_.digit) {
    void* count[] = {&counted, &key_, &lines_, &s_};
    launch(device_, kernel("RB_SORT_COUNT()\n"), grid, count);
    void* start[] = {&counted, &totals, &lines_, &s_};
    launch(device_, kernel("RB_SORT_STARTS()\n"), Grid{blocks_of(lines_ * 256), 1, 1, 256}, start);
    void* move[] = {&other_key_, &other_place_, &key_, &place_, &counted, &totals, &lines_, &s_};
    launch(device_, kernel("RB_SORT_MOVE()\n"), grid, move);
    std::swap(key_, other_key_);
    std::swap(place_, other_place_);
  }
}

}  // namespace rbcuda

// Stable sorting of unsigned keys, byte by byte; kernels/order.cuh.
#pragma once
#include "launch/jit.h"
#include "launch/temporary.h"

namespace rbcuda {

/// Twin of Sorting in order.cuh.
struct Sorting {
  int64_t n, k, steps[3];  // elements of a line, how many are wanted, steps of values, x, indices
  int32_t descending, digit;
  int64_t tiles;
};
/// For lines of n elements, of which all are wanted and lie side by side.
Sorting sorting_of(int64_t n);

/// Keys of each of `lines` lines, with the places that they had in it (uint32).
class RadixSort {
 public:
  /// Memory where `like` lies; the caller fills keys() and places().
  RadixSort(const char* op, const RbTensor& like, int key_bytes, int64_t lines, int64_t n);
  int key_dtype() const { return unit_dtype(key_bytes_); }
  void* keys() const { return key_; }
  void* places() const { return place_; }
  /// Afterwards keys() and places() are in order.
  void run();

 private:
  Kernel kernel(const char* text) const;
  const char* op_;
  Device& device_;
  int key_bytes_;
  int64_t lines_;
  Sorting s_;
  Temporary key_memory_, place_memory_, counts_, totals_;
  char *key_, *other_key_, *place_, *other_place_;
};

}  // namespace rbcuda

// rabbet/packed_steps.hpp: where the rows of a packed batch of sequences lie, for kernels of
// recurrent layers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rb {

/// Step t has sizes[t] rows of the tensors of all steps, from row offsets[t] on: those of sequences
/// 0 to sizes[t] - 1. Sizes never grow.
struct PackedSteps {
  std::vector<int64_t> sizes, offsets;
  bool reverse;

  /// `count` sizes, or none: all `rows` are steps of `batch`.
  PackedSteps(const int64_t* given, size_t count, int64_t rows, int64_t batch, bool backwards)
      : sizes(given, given + count), reverse(backwards) {
    if (count == 0 && batch) sizes.assign(static_cast<size_t>(rows / batch), batch);
    offsets.reserve(sizes.size());
    int64_t at = 0;
    for (int64_t n : sizes) {
      offsets.push_back(at);
      at += n;
    }
  }
  int64_t count() const { return static_cast<int64_t>(sizes.size()); }
  /// The s-th step in order of time, or of time reversed.
  int64_t at(int64_t s) const { return reverse ? count() - 1 - s : s; }
  /// The step before t in that order, or -1.
  int64_t before(int64_t t) const {
    const int64_t previous = reverse ? t + 1 : t - 1;
    return previous < count() ? previous : -1;
  }
  /// The row of `sequence` in the step before t, or -1: it had its initial state.
  int64_t row_before(int64_t t, int64_t sequence) const {
    const int64_t previous = before(t);
    if (previous < 0 || sequence >= sizes[previous]) return -1;
    return offsets[previous] + sequence;
  }
};

}  // namespace rb

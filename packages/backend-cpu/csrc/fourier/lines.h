// Transforms of lines of complex numbers, one table per instruction-set level.
#pragma once
#include "common/level.h"
#include "fourier/plan.h"

namespace rbcpu::fourier {

/// Complex numbers are pairs of T, and steps between them count complex numbers. A backward
/// transform has the conjugate roots; results are multiplied by `scale`. Sources and destinations
/// may be the same.
template <class T>
struct Lines {
  int lanes;  // of a vector: how many lines `side_by_side` takes at a time
  /// Up to `lanes` lines; the numbers of a line lie `step` apart, lines `lane`. Working memory: 4 *
  /// lanes * n.
  void (*side_by_side)(const Leaf<T>& leaf, const T* from, int64_t step, int64_t lane, T* to,
                       int64_t to_step, int64_t to_lane, int count, T* work, bool backward,
                       T scale);
  /// One contiguous line.
  void (*line)(const Plan<T>& plan, const T* from, T* to, T* work, bool backward, T scale);
  /// The two halves of a line whose plan has columns: transforms of the columns [begin, end) into
  /// `between` (2 * n numbers), then of the rows into the result. Steps of `begin` are multiples of
  /// `lanes`.
  void (*columns)(const Plan<T>& plan, const T* from, T* between, int64_t begin, int64_t end,
                  T* work, bool backward);
  void (*rows)(const Plan<T>& plan, const T* between, T* to, int64_t begin, int64_t end, T* work,
               bool backward, T scale);
  /// From the transform of n / 2 pairs, in place, to the n / 2 + 1 numbers of the transform of n
  /// real ones.
  void (*unpack_real)(int64_t n, const T* half_turn, T* x);
  /// From half a Hermitian spectrum to what transforms backward to n / 2 pairs of real numbers.
  void (*pack_real)(int64_t n, const T* half_turn, const T* from, T* to);
};

struct LinesTable {
  Lines<float> f32;
  Lines<double> f64;
};
extern const LinesTable lines_v2, lines_v3, lines_v4;
inline const LinesTable& lines_table() { return RB_PICK_LEVEL(lines); }
template <class T>
const Lines<T>& lines() {
  if constexpr (sizeof(T) == sizeof(float))
    return lines_table().f32;
  else
    return lines_table().f64;
}

}  // namespace rbcpu::fourier

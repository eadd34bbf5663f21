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
  /// Transforms up to `lanes` lines. The numbers of a line lie `step` apart, and the lines `lane`
  /// apart. `work` holds 4 * lanes * n elements.
  void (*side_by_side)(const Leaf<T>& leaf, const T* from, int64_t step, int64_t lane, T* to,
                       int64_t to_step, int64_t to_lane, int count, T* work, bool backward,
                       T scale);
  /// Transforms one contiguous line.
  void (*line)(const Plan<T>& plan, const T* from, T* to, T* work, bool backward, T scale);
  /// The two steps of the transform of a line whose plan has columns. `columns` transforms the
  /// columns [begin, end) into `between`, which holds 2 * n elements. `rows` transforms the rows
  /// [begin, end) of `between` into the result. `begin` must be a multiple of `lanes`.
  void (*columns)(const Plan<T>& plan, const T* from, T* between, int64_t begin, int64_t end,
                  T* work, bool backward);
  void (*rows)(const Plan<T>& plan, const T* between, T* to, int64_t begin, int64_t end, T* work,
               bool backward, T scale);
  /// Converts the transform of n / 2 pairs of real numbers to the n / 2 + 1 numbers of the
  /// transform of those n numbers, in place.
  void (*unpack_real)(int64_t n, const T* half_turn, T* x);
  /// The inverse: converts half of a Hermitian spectrum to numbers whose backward transform is
  /// n / 2 pairs of real numbers.
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

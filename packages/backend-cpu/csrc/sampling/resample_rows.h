// Kernels for resizing along one direction, per level (resample_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

/// How `in` elements along one direction are resized to `out` results. Result o is the sum of
/// weight[k * out + o] * element[index[k * out + o]] over the `count` taps k.
template <class T>
struct Taps {
  int count;
  int64_t in, out;
  const int32_t* index;
  const T* weight;  // null for one tap with weight 1
  /// The first element of each block of kTapBlock results, or null if some block reads elements
  /// more than 2 * kTapBlock apart.
  const int32_t* start;
};
constexpr int kMaxTaps = 4;
constexpr int kTapBlock = 16;

template <class T>
struct ResampleTable {
  /// Resize a line of `in` elements to one of `out`.
  void (*line)(const T* from, const Taps<T>& taps, T* to);
  /// to = the weighted sum of `count` rows of n elements, or the first row if `weights` is null.
  void (*mix)(const T* const* rows, const T* weights, int count, int64_t n, T* to);
  /// Add the transpose of `line`, applied to `from`, to `to`.
  void (*spread_line)(const T* from, const Taps<T>& taps, T* to);
  /// to += weight * from.
  void (*add_row)(const T* from, T weight, int64_t n, T* to);
};
struct ResampleTables {
  ResampleTable<float> f32;
  ResampleTable<double> f64;
};
extern const ResampleTables resample_table_v2, resample_table_v3, resample_table_v4;

}  // namespace rbcpu

// Resizing along one direction, per level (resample_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

/// How results along one direction follow from `in` elements: result o is the sum over `count`
/// taps k of weight[k * out + o] times the element index[k * out + o].
template <class T>
struct Taps {
  int count;
  int64_t in, out;
  const int32_t* index;
  const T* weight;  // null: one tap with weight 1
  const int32_t*
      start;  // of each block of 16 results the first element where 32 cover all; or null
};
constexpr int kMaxTaps = 4;
constexpr int kTapBlock = 16;

template <class T>
struct ResampleTable {
  /// A line of `in` elements to one of `out`.
  void (*line)(const T* from, const Taps<T>& taps, T* to);
  /// The sum of `count` rows of n elements; null weights: the first row.
  void (*mix)(const T* const* rows, const T* weights, int count, int64_t n, T* to);
  /// The transpose of `line`, added to `to`.
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

// Kernels for distances between rows, per level (distance_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

/// Formulas of norms, chosen by the order p.
enum class Norm { kZero, kOne, kTwo, kInf, kOther };
constexpr int kNorms = 5;

constexpr int kDistanceRows = 4;       // rows at a time
constexpr int kMaxDistancePanel = 64;  // maximum of DistanceTable::panel

template <class T>
struct DistanceTable {
  int panel;  // columns at a time
  /// Distances between `count` rows (at most kDistanceRows) and `panel` columns of m elements each.
  /// The rows lie `step` apart, and `to` has `panel` elements for each. The index is a Norm.
  void (*tile[kNorms])(const T* rows, int64_t step, int count, const T* columns, int64_t m, T p,
                       T* to);
  /// Add the gradients by x of the distances |x - y| to `to`, for `count` rows y that lie `step`
  /// apart. The index is a Norm.
  void (*slope[kNorms])(const T* x, const T* rows, int64_t step, int64_t count, int64_t m,
                        const T* gradient, const T* distance, T p, T* to);
};
struct DistanceTables {
  DistanceTable<float> f32;
  DistanceTable<double> f64;
};
extern const DistanceTables distance_table_v2, distance_table_v3, distance_table_v4;

}  // namespace rbcpu

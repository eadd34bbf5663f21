// Distances between rows, per level (distance_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

/// How norms are computed: by their order p.
enum class Norm { kZero, kOne, kTwo, kInf, kOther };
constexpr int kNorms = 5;

constexpr int kDistanceRows = 4;       // rows at a time
constexpr int kMaxDistancePanel = 64;  // the most columns at a time

template <class T>
struct DistanceTable {
  int panel;  // columns at a time
  /// Distances of `count` (at most kDistanceRows) rows of m elements, `step` apart, to the `panel`
  /// columns of m rows, by Norm; `to` has `panel` elements for each row.
  void (*tile[kNorms])(const T* rows, int64_t step, int count, const T* columns, int64_t m, T p,
                       T* to);
  /// to += the sum over `count` rows y, `step` apart, of the gradient of |x - y| by x.
  void (*slope[kNorms])(const T* x, const T* rows, int64_t step, int64_t count, int64_t m,
                        const T* gradient, const T* distance, T p, T* to);
};
struct DistanceTables {
  DistanceTable<float> f32;
  DistanceTable<double> f64;
};
extern const DistanceTables distance_table_v2, distance_table_v3, distance_table_v4;

}  // namespace rbcpu

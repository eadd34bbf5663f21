// Kernels for sampling at points, per level (grid_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

enum class GridMode { kNearest, kLinear, kCubic };
enum class GridPadding { kZeros, kBorder, kReflection };

constexpr int kGridBlock = 64;   // points at a time
constexpr int kMaxGridTaps = 4;  // along one direction
constexpr int kMaxCorners = 16;

/// One direction of a volume: `size` elements that lie `stride` elements apart.
struct GridDirection {
  int64_t size, stride;
};
struct GridRule {
  int rank;
  GridDirection direction[3];
  GridMode mode;
  GridPadding padding;
  bool align;

  int taps() const { return mode == GridMode::kNearest ? 1 : mode == GridMode::kLinear ? 2 : 4; }
  int corners() const {
    int n = 1;
    for (int d = 0; d < rank; ++d) n *= taps();
    return n;
  }
};

/// The elements around `kGridBlock` points: their indices in the plane, their weights, and the
/// derivatives of the weights by each coordinate. An index of -1 means an element outside, whose
/// value is 0.
template <class T>
struct GridCorners {
  int32_t index[kMaxCorners][kGridBlock];
  T weight[kMaxCorners][kGridBlock];
  T slope[3][kMaxCorners][kGridBlock];
};

template <class T>
struct GridTable {
  /// Find the corners of n points. Coordinate d of point p is points[d][p]. `slope` is filled only
  /// if `slopes` is set.
  void (*corners)(const GridRule& rule, const T (*points)[kGridBlock], int n, bool slopes,
                  GridCorners<T>* to);
  /// to[p] = the sum of weight * plane[index] over the `count` corners of point p, for n points.
  void (*sample)(const T* plane, const GridCorners<T>& corners, int count, int n, T* to);
  /// sums[d][p] += from[p] * the sum of slope[d] * plane[index] over the corners of point p.
  void (*slopes)(const T* plane, const GridCorners<T>& corners, int rank, int count, int n,
                 const T* from, T (*sums)[kGridBlock]);
};
struct GridTables {
  GridTable<float> f32;
  GridTable<double> f64;
};
extern const GridTables grid_table_v2, grid_table_v3, grid_table_v4;

}  // namespace rbcpu

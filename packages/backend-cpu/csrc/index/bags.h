// Sums of rows of a table, per instruction-set level (bags_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

/// r = sum of the rows of `table` at n valid indices but `padding`, times `factors` unless those
/// are null. Some rows are summed in T, and such sums in double.
template <class T>
using BagSum = void (*)(const T* table, int64_t width, const int64_t* index, const T* factors,
                        int64_t n, int64_t padding, T* r);
struct BagTable {
  BagSum<float> f32;
  BagSum<double> f64;
};
extern const BagTable bag_table_v2, bag_table_v3, bag_table_v4;

}  // namespace rbcpu

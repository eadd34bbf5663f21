// Vector kernels over runs and columns of integers and bools, per instruction-set level
// (integers_simd.cpp).
#pragma once
#include <stdint.h>

namespace rbcpu {

template <class T>
struct Integers {
  /// Modulo 2^64.
  uint64_t (*sum)(const T* x, int64_t n);
  /// n > 0.
  T (*max)(const T* x, int64_t n);
  T (*min)(const T* x, int64_t n);
  /// top = largest (smallest) of top and the column x[i * stride + j].
  void (*column_max)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top);
  void (*column_min)(const T* x, int64_t stride, int64_t n, int64_t cols, T* top);
};
struct IntegerTable : Integers<bool>,
                      Integers<uint8_t>,
                      Integers<int8_t>,
                      Integers<int16_t>,
                      Integers<int32_t>,
                      Integers<int64_t>,
                      Integers<uint16_t>,
                      Integers<uint32_t>,
                      Integers<uint64_t> {};
extern const IntegerTable integer_table_v2, integer_table_v3, integer_table_v4;
const IntegerTable& integer_table();

template <class T>
const Integers<T>& integers() {
  return integer_table();
}

}  // namespace rbcpu

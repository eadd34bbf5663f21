// The pointwise part of recurrent cells for one sequence and one step, per instruction-set level
// (recurrent_simd.cpp). Gates lie one after the other, n elements each, in PyTorch's order.
#pragma once
#include <stdint.h>

namespace rbcpu {

/// Forward: `product` is weight_hh h, `x` the input's part; h and c hold the state before and
/// afterwards; `saved` is kept for the derivative.
template <class T>
struct CellForward {
  const T *product, *x;
  T *h, *c, *saved;
};
/// Backward: dh and dc hold the gradients of the new state. dx and dproduct become those of `x` and
/// `product`; dc that of the old c, dh what reaches the old h without `product`. `grad_saved` may
/// be null.
template <class T>
struct CellBackward {
  const T *h, *h_before, *c, *c_before, *saved, *grad_saved;
  T *dh, *dc, *dx, *dproduct;
};
template <class T>
struct Cell {
  void (*forward)(const CellForward<T>&, int64_t n);
  void (*backward)(const CellBackward<T>&, int64_t n);
};
template <class T>
struct Cells {
  Cell<T> lstm, gru, tanh, relu;
};
struct RecurrentTable {
  Cells<float> f32;
  Cells<double> f64;
};
extern const RecurrentTable recurrent_table_v2, recurrent_table_v3, recurrent_table_v4;

}  // namespace rbcpu

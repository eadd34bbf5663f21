#include "cells.cuh"
// One step of all rows that it has; a thread has a unit of a row.
// Twin of rbcuda::RecurrentStep.
struct RecurrentStep {
  Int64 rows, hidden, first;  // `first`: row of the step in tensors of all steps
};

// `product` (rows, gates) of the state before, without the bias. h and c are the states.
template <char MODE>
__device__ inline void forward(const A* x, const T* product, const A* bias, A* h, T* c, A* output,
                               A* cells, A* saved, const RecurrentStep& p) {
  enum { GATES = Gates<MODE>::count };
  const Int64 n = p.hidden;
  RB_FOR(e, p.rows * n) {
    const Int64 i = e / n, j = e - i * n, row = p.first + i;
    T mine[GATES], theirs[GATES], kept[4], cell = MODE == 'l' ? c[e] : T(0);
    for (int k = 0; k < GATES; ++k) {
      mine[k] = As<T>::of(x[(row * GATES + k) * n + j]);
      theirs[k] = product[(i * GATES + k) * n + j];
      if (bias) theirs[k] += As<T>::of(bias[k * n + j]);
    }
    const T state = new_state<MODE>(mine, theirs, As<T>::of(h[e]), cell, kept);
    if constexpr (MODE == 'l') {
      c[e] = cell;
      cells[row * n + j] = As<A>::of(cell);
    }
    if constexpr (GATES > 1)
      for (int k = 0; k < 4; ++k) saved[(row * 4 + k) * n + j] = As<A>::of(kept[k]);
    h[e] = output[row * n + j] = As<A>::of(state);
  }
}

// Gradients of a step's gates out of those of its states, dh and dc, which become those of the
// states before, but for the product by the weight. `before` gets the states before. Rows of the
// step before: `known`, from row `earlier` on; other sequences had the initial states.
template <char MODE>
__device__ inline void backward(A* dx, A* dproduct, T* dh, T* dc, A* before, const Results& results,
                                const RecurrentStep& p, Int64 known, Int64 earlier) {
  enum { GATES = Gates<MODE>::count };
  const Int64 n = p.hidden;
  RB_FOR(e, p.rows * n) {
    const Int64 i = e / n, j = e - i * n, row = p.first + i;
    T grad, grad_c = 0, mine[GATES], theirs[GATES];
    const Unit unit =
        read_unit<MODE>(results, row, i < known ? earlier + i : -1, i, n, j, grad, grad_c);
    before[row * n + j] = As<A>::of(unit.h);
    if constexpr (MODE == 'l') grad_c += dc[e];
    dh[e] = gate_gradients<MODE>(unit, grad + dh[e], grad_c, mine, theirs);
    if constexpr (MODE == 'l') dc[e] = grad_c;
    for (int k = 0; k < GATES; ++k) {
      dx[(row * GATES + k) * n + j] = As<A>::of(mine[k]);
      if constexpr (MODE == 'g') dproduct[(row * GATES + k) * n + j] = As<A>::of(theirs[k]);
    }
  }
}

#define RB_RECURRENT(MODE)                                                                      \
  extern "C" __global__ void rb_kernel(const A* x, const T* product, const A* bias, A* h, T* c, \
                                       A* output, A* cells, A* saved, const RecurrentStep p) {  \
    forward<MODE>(x, product, bias, h, c, output, cells, saved, p);                             \
  }
#define RB_RECURRENT_BACKWARD(MODE)                                                               \
  extern "C" __global__ void rb_kernel(A* dx, A* dproduct, T* dh, T* dc, A* before,               \
                                       const Results results, const RecurrentStep p, Int64 known, \
                                       Int64 earlier) {                                           \
    backward<MODE>(dx, dproduct, dh, dc, before, results, p, known, earlier);                     \
  }

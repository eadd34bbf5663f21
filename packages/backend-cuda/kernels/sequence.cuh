#include "cells.cuh"
// All steps of a recurrent layer in one launch. Sequences never meet before the weight's gradient:
// a block has 4 of them for all steps and waits for no other block. Thread 4 j + q has unit j. In a
// product it has the elements q, q + 4, ... of the sum, for all 4 sequences; then the threads of a
// unit give each other their parts, and q has sequence q. States are in shared memory, twice: a
// step reads one and writes the other, so that it has one barrier. Weights are read at every step,
// by way of L1, in the order of RB_SEQUENCE_WEIGHT.
#define RB_SEQUENCES 4
#define RB_UNITS 128             // at most
#define RB_SEQUENCE_THREADS 512  // at most
// Twin of rbcuda::Sequence.
struct Sequence {
  Int64 steps, batch, hidden, reverse;
  const Int64* offsets;  // of each step's rows and behind the last; null: steps of `batch` rows
};
__device__ inline Int64 first_row(const Sequence& p, Int64 t) {
  return p.offsets ? p.offsets[t] : t * p.batch;
}
// Row of sequence i in tensors of all steps, or -1: step t is not there or it has ended.
__device__ inline Int64 row_of(const Sequence& p, Int64 t, Int64 i) {
  if (t < 0 || t >= p.steps) return -1;
  const Int64 first = first_row(p, t);
  return i < first_row(p, t + 1) - first ? first + i : -1;
}
// How many steps have sequence i: the first ones, as steps never grow.
__device__ inline Int64 steps_of(const Sequence& p, Int64 i) {
  Int64 least = 0, most = p.steps;
  while (least < most) {
    const Int64 t = (least + most) / 2;
    if (row_of(p, t, i) >= 0) {
      least = t + 1;
    } else {
      most = t;
    }
  }
  return least;
}

struct SequenceThread {
  Int64 unit, sequence;  // sequence: -1 where it has none
  int q;

  __device__ explicit SequenceThread(const Sequence& p) {
    q = threadIdx.x % RB_SEQUENCES;
    unit = threadIdx.x / RB_SEQUENCES;
    sequence = (Int64)blockIdx.x * RB_SEQUENCES + q;
    if (unit >= p.hidden || sequence >= p.batch) sequence = -1;
  }
};

// Thread q of a unit gets the sum over the unit's threads of element q.
__device__ inline T sum_of_parts(const T (&parts)[4], int q) {
  const bool high = q & 2, odd = q & 1;
  const T first = (high ? parts[2] : parts[0]) + shuffle_xor(high ? parts[0] : parts[2], 2),
          second = (high ? parts[3] : parts[1]) + shuffle_xor(high ? parts[1] : parts[3], 2);
  return (odd ? second : first) + shuffle_xor(odd ? first : second, 1);
}

template <char MODE>
struct SequenceStep {
  enum { GATES = Gates<MODE>::count };
  Int64 row;  // in tensors of all steps, -1: the sequence has no such step
  A x[GATES];

  __device__ SequenceStep(const Sequence& p, const A* gates, const SequenceThread& me, Int64 t) {
    row = me.sequence < 0 ? -1 : row_of(p, t, me.sequence);
    for (int k = 0; row >= 0 && k < GATES; ++k)
      x[k] = gates[(row * GATES + k) * p.hidden + me.unit];
  }
};

template <char MODE>
__device__ inline void forward(const A* x, const A* h0, const A* c0, const A* __restrict__ weight,
                               const A* bias, A* output, A* hn, A* cn, A* cells, A* saved,
                               const Sequence& p) {
  enum { GATES = Gates<MODE>::count, WIDE = GATES == 3 ? 4 : GATES };
  __shared__ Pack<T, 4> states[2][RB_UNITS];  // by unit, then sequence
  const SequenceThread me(p);
  const Int64 n = p.hidden, at = me.sequence * n + me.unit;
  const int groups = (int)((n + 3) / 4);
  T h = 0, c = 0, biases[GATES];
  if (me.sequence >= 0) {
    h = As<T>::of(h0[at]);
    if constexpr (MODE == 'l') c = As<T>::of(c0[at]);
  }
  for (int k = 0; k < GATES; ++k)
    biases[k] = bias && me.unit < n ? As<T>::of(bias[k * n + me.unit]) : T(0);
  states[0][me.unit].at[me.q] = h;
  __syncthreads();
  const Int64 steps = steps_of(p, (Int64)blockIdx.x * RB_SEQUENCES);
  const Int64 start = p.reverse ? steps - 1 : 0, by = p.reverse ? -1 : 1;
  SequenceStep<MODE> next(p, x, me, start);
  for (Int64 s = 0; s < steps; ++s) {
    const SequenceStep<MODE> now = next;  // the next one's input arrives during the product
    next = SequenceStep<MODE>(p, x, me, s + 1 < steps ? start + (s + 1) * by : -1);
    T sums[GATES][4] = {}, mine[GATES], theirs[GATES], kept[4];
#pragma unroll 4
    for (int i = 0; i < groups; ++i) {
      const Pack<A, WIDE> w = load_pack<WIDE>(weight + (i * blockDim.x + threadIdx.x) * WIDE);
      const Pack<T, 4> state = states[s & 1][4 * i + me.q];
#pragma unroll
      for (int k = 0; k < GATES; ++k)
#pragma unroll
        for (int r = 0; r < 4; ++r) sums[k][r] = fma(As<T>::of(w.at[k]), state.at[r], sums[k][r]);
    }
#pragma unroll
    for (int k = 0; k < GATES; ++k) theirs[k] = sum_of_parts(sums[k], me.q) + biases[k];
    if (now.row >= 0) {
      for (int k = 0; k < GATES; ++k) mine[k] = As<T>::of(now.x[k]);
      const A state = As<A>::of(new_state<MODE>(mine, theirs, h, c, kept));
      h = As<T>::of(state);
      output[now.row * n + me.unit] = state;
      if constexpr (MODE == 'l') cells[now.row * n + me.unit] = As<A>::of(c);
      if constexpr (GATES > 1)
        for (int k = 0; k < 4; ++k) saved[(now.row * 4 + k) * n + me.unit] = As<A>::of(kept[k]);
    }
    states[(s + 1) & 1][me.unit].at[me.q] = h;
    __syncthreads();
  }
  if (me.sequence < 0) return;
  hn[at] = As<A>::of(h);
  if constexpr (MODE == 'l') cn[at] = As<A>::of(c);
}

// What a step's derivative reads, before it is its turn.
template <char MODE>
struct SequenceUnit {
  Int64 row;
  Unit unit;
  T grad, grad_c;

  __device__ SequenceUnit(const Sequence& p, const Results& results, const SequenceThread& me,
                          Int64 t) {
    row = me.sequence < 0 ? -1 : row_of(p, t, me.sequence);
    if (row < 0) return;
    const Int64 before = row_of(p, p.reverse ? t + 1 : t - 1, me.sequence);
    unit = read_unit<MODE>(results, row, before, me.sequence, p.hidden, me.unit, grad, grad_c);
  }
};

// Gradients of the gates of all steps and of the initial states. `before` gets the states before.
template <char MODE>
__device__ inline void backward(A* dx, A* dproduct, A* before, A* dh0, A* dc0, const A* grad_hn,
                                const A* grad_cn, const A* __restrict__ weight,
                                const Results& results, const Sequence& p) {
  enum { GATES = Gates<MODE>::count, WIDE = GATES == 3 ? 4 : GATES };
  __shared__ Pack<T, 4> grads[2][GATES][RB_UNITS];  // of the products, by unit, then sequence
  const SequenceThread me(p);
  const Int64 n = p.hidden, at = me.sequence * n + me.unit;
  const int groups = (int)((n + 3) / 4);
  T dh = 0, dc = 0;
  if (me.sequence >= 0 && grad_hn) dh = As<T>::of(grad_hn[at]);
  if (me.sequence >= 0 && grad_cn) dc = As<T>::of(grad_cn[at]);
  const Int64 steps = steps_of(p, (Int64)blockIdx.x * RB_SEQUENCES);
  const Int64 start = p.reverse ? 0 : steps - 1, by = p.reverse ? 1 : -1;
  SequenceUnit<MODE> next(p, results, me, steps > 0 ? start : -1);
  for (Int64 s = 0; s < steps; ++s) {
    const SequenceUnit<MODE> now = next;
    T mine[GATES], theirs[GATES] = {}, left = 0;
    if (now.row >= 0) {
      if constexpr (MODE == 'l') dc += now.grad_c;
      left = gate_gradients<MODE>(now.unit, now.grad + dh, dc, mine, theirs);
      before[now.row * n + me.unit] = As<A>::of(now.unit.h);
      for (int k = 0; k < GATES; ++k) {
        const Int64 to = (now.row * GATES + k) * n + me.unit;
        const A rounded = As<A>::of(theirs[k]);
        theirs[k] = As<T>::of(rounded);
        dx[to] = MODE == 'g' ? As<A>::of(mine[k]) : rounded;
        if constexpr (MODE == 'g') dproduct[to] = rounded;
      }
    }
    for (int k = 0; k < GATES; ++k) grads[s & 1][k][me.unit].at[me.q] = theirs[k];
    __syncthreads();
    next = SequenceUnit<MODE>(p, results, me, s + 1 < steps ? start + (s + 1) * by : -1);
    T sums[4] = {};
#pragma unroll 4
    for (int i = 0; i < groups; ++i) {
      const Pack<A, WIDE> w = load_pack<WIDE>(weight + (i * blockDim.x + threadIdx.x) * WIDE);
#pragma unroll
      for (int k = 0; k < GATES; ++k) {
        const Pack<T, 4> grad = grads[s & 1][k][4 * i + me.q];
#pragma unroll
        for (int r = 0; r < 4; ++r) sums[r] = fma(As<T>::of(w.at[k]), grad.at[r], sums[r]);
      }
    }
    const T product = sum_of_parts(sums, me.q);
    if (now.row >= 0) dh = left + product;
  }
  if (me.sequence < 0) return;
  dh0[at] = As<A>::of(dh);
  if constexpr (MODE == 'l') dc0[at] = As<A>::of(dc);
}

#define RB_SEQUENCE(MODE)                                                                        \
  extern "C" __global__ void __launch_bounds__(RB_SEQUENCE_THREADS, 1)                           \
      rb_kernel(const A* x, const A* h0, const A* c0, const A* weight, const A* bias, A* output, \
                A* hn, A* cn, A* cells, A* saved, const Sequence p) {                            \
    forward<MODE>(x, h0, c0, weight, bias, output, hn, cn, cells, saved, p);                     \
  }
#define RB_SEQUENCE_BACKWARD(MODE)                                                                 \
  extern "C" __global__ void __launch_bounds__(RB_SEQUENCE_THREADS, 1)                             \
      rb_kernel(A* dx, A* dproduct, A* before, A* dh0, A* dc0, const A* grad_hn, const A* grad_cn, \
                const A* weight, const Results results, const Sequence p) {                        \
    backward<MODE>(dx, dproduct, before, dh0, dc0, grad_hn, grad_cn, weight, results, p);          \
  }

// The weight (gates * n, n) as the threads of a block read it: `wide` gates of an element for each
// thread, 4 elements of the sum after 4 others; zero where there is none. turned: products are by
// the weight's columns, as in the derivative.
#define RB_SEQUENCE_WEIGHT()                                                                     \
  extern "C" __global__ void rb_kernel(A* to, const A* weight, Int64 n, Int64 gates, Int64 wide, \
                                       Int64 threads, Int64 turned) {                            \
    RB_FOR(e, (n + 3) / 4 * threads * wide) {                                                    \
      const Int64 place = e / wide, k = e - place * wide, group = place / threads,               \
                  thread = place - group * threads, unit = thread / 4,                           \
                  element = group * 4 + thread % 4;                                              \
      const bool there = k < gates && unit < n && element < n;                                   \
      const Int64 row = turned ? element : unit, column = turned ? unit : element;               \
      to[e] = there ? weight[(k * n + row) * n + column] : A(0);                                 \
    }                                                                                            \
  }

// A piece of a table that the host knows. Twin of rbcuda::Offsets.
struct Offsets {
  Int64 first, count, at[256];
};
#define RB_SEQUENCE_OFFSETS()                                              \
  extern "C" __global__ void rb_kernel(Int64* table, const Offsets part) { \
    RB_FOR(i, part.count) table[part.first + i] = part.at[i];              \
  }

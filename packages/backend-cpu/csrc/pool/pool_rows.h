// Pooling row by row: one position of the window for all outputs of a row at a time. Everything
// here is internal to the file that includes it (level.h).
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace rbcpu {

/// `place` counts in the input from where indices begin; elements of a row are `step` apart.
template <class T>
struct PoolTable {
  void (*max_row)(const T* row, int64_t n, int64_t step, T* best, int32_t* at, int32_t place);
  void (*max_channels)(const T* from, int64_t n, T* best, int32_t* at, int32_t place);
  void (*add_row)(const T* row, int64_t n, int64_t step, T* sum);
  void (*spread_row)(const T* share, int64_t n, int64_t step, T* to);
  T (*sum_run)(const T* from, int64_t n);
};
struct PoolTables {
  PoolTable<float> f32;
  PoolTable<double> f64;
};
extern const PoolTables pool_table_v2, pool_table_v3, pool_table_v4;

namespace {

template <class T, class C, class I, int Step>
inline __attribute__((always_inline)) void max_steps(const T* row, int64_t n, int64_t step, C* best,
                                                     I* at, I place) {
  const int64_t by = Step ? Step : step;
  for (int64_t c = 0; c < n; ++c) {
    const C v = C(row[c * by]), old = best[c];
    const bool take = (v > old) | (v != v);  // the last NaN wins, as in a scan of the window
    best[c] = take ? v : old;
    at[c] = take ? static_cast<I>(place + static_cast<I>(c * by)) : at[c];
  }
}
template <class T, class C, class I>
void max_row(const T* row, int64_t n, int64_t step, C* best, I* at, I place) {
  if (step == 1) return max_steps<T, C, I, 1>(row, n, step, best, at, place);
  if (step == 2) return max_steps<T, C, I, 2>(row, n, step, best, at, place);
  max_steps<T, C, I, 0>(row, n, step, best, at, place);
}

// The same for the channels of one place, which lie side by side.
template <class T, class C, class I>
void max_channels(const T* from, int64_t n, C* best, I* at, I place) {
  for (int64_t c = 0; c < n; ++c) {
    const C v = C(from[c]), old = best[c];
    const bool take = (v > old) | (v != v);
    best[c] = take ? v : old;
    at[c] = take ? place : at[c];
  }
}

template <class T, class C, int Step>
inline __attribute__((always_inline)) void add_steps(const T* row, int64_t n, int64_t step,
                                                     C* sum) {
  const int64_t by = Step ? Step : step;
  for (int64_t c = 0; c < n; ++c) sum[c] += C(row[c * by]);
}
template <class T, class C>
void add_row(const T* row, int64_t n, int64_t step, C* sum) {
  if (step == 1) return add_steps<T, C, 1>(row, n, step, sum);
  if (step == 2) return add_steps<T, C, 2>(row, n, step, sum);
  add_steps<T, C, 0>(row, n, step, sum);
}

template <class C>
void spread_row(const C* share, int64_t n, int64_t step, C* to) {
  if (step == 1) {
    for (int64_t c = 0; c < n; ++c) to[c] += share[c];
  } else {
    for (int64_t c = 0; c < n; ++c) to[c * step] += share[c];
  }
}

// In 16 interleaved sums: the order follows from n alone.
template <class T, class C>
C sum_run(const T* from, int64_t n) {
  constexpr int kSums = 16;
  C part[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int k = 0; k < kSums; ++k) part[k] += C(from[i + k]);
  }
  C sum = C(0);
  for (int k = 0; k < kSums; ++k) sum += part[k];
  for (; i < n; ++i) sum += C(from[i]);
  return sum;
}

}  // namespace
}  // namespace rbcpu

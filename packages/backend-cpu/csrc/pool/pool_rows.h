// Pooling row by row: one position of the window for all outputs of a row at a time. Everything
// here is internal to the file that includes it (level.h).
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

namespace rbcpu {

/// `place` counts in the input from where indices begin; elements of a row are `step` apart.
template <class T>
struct PoolTable {
  void (*max_row)(const T* row, int64_t n, int64_t step, T* best, int32_t* at, int32_t place);
  /// Whole windows of `taps` > 1 elements of a row, `dilation` apart, the first at row[0].
  void (*max_windows)(const T* row, int64_t n, int64_t step, int64_t taps, int64_t dilation,
                      T* values, int64_t* at, int64_t place);
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

// The largest of `Taps` elements, after those seen before if there are any. `at` counts from the
// beginning of each window.
template <int Taps, bool Begin, int Step, class T, class C, class Lane>
inline __attribute__((always_inline)) void see_taps(const T* from, int64_t n, int64_t step,
                                                    int64_t dilation, Lane place, C* best,
                                                    Lane* at) {
  const int64_t by = Step ? Step : step;
  const Lane next = static_cast<Lane>(dilation);
  for (int64_t c = 0; c < n; ++c) {
    const T* window = from + c * by;
    C old;
    Lane where;
    const auto see = [&](C v, Lane here) {
      const bool take = (v > old) | (v != v);
      old = take ? v : old;
      where = take ? here : where;
    };
    if constexpr (Begin) {
      old = C(window[0]), where = place;
    } else {
      old = best[c], where = at[c];
      see(C(window[0]), place);
    }
    see(C(window[dilation]), static_cast<Lane>(place + next));
    if constexpr (Taps == 3) see(C(window[2 * dilation]), static_cast<Lane>(place + 2 * next));
    best[c] = old;
    at[c] = where;
  }
}

// Block by block, so that what is largest so far stays in the L1 cache.
template <class T, class C, int Step>
inline __attribute__((always_inline)) void max_window_steps(const T* row, int64_t n, int64_t step,
                                                            int64_t taps, int64_t dilation,
                                                            T* values, int64_t* at, int64_t place) {
  using Lane = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;
  constexpr int64_t kBlock = 128;
  const int64_t by = Step ? Step : step;
  alignas(64) C best[kBlock];
  alignas(64) Lane where[kBlock];
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t count = n - done < kBlock ? n - done : kBlock;
    const T* from = row + done * by;
    if (taps % 2) {
      see_taps<3, true, Step>(from, count, step, dilation, Lane{0}, best, where);
    } else {
      see_taps<2, true, Step>(from, count, step, dilation, Lane{0}, best, where);
    }
    for (int64_t k = 2 + taps % 2; k < taps; k += 2) {
      see_taps<2, false, Step>(from + k * dilation, count, step, dilation,
                               static_cast<Lane>(k * dilation), best, where);
    }
    for (int64_t c = 0; c < count; ++c) {
      values[done + c] = T(best[c]);
      at[done + c] = place + (done + c) * by + where[c];
    }
  }
}
template <class T, class C>
void max_windows(const T* row, int64_t n, int64_t step, int64_t taps, int64_t dilation, T* values,
                 int64_t* at, int64_t place) {
  if (step == 1) return max_window_steps<T, C, 1>(row, n, step, taps, dilation, values, at, place);
  if (step == 2) return max_window_steps<T, C, 2>(row, n, step, taps, dilation, values, at, place);
  if (step == 3) return max_window_steps<T, C, 3>(row, n, step, taps, dilation, values, at, place);
  max_window_steps<T, C, 0>(row, n, step, taps, dilation, values, at, place);
}

// As max_row, for the channels of one place, which lie side by side.
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

// Runs of float32 and float64: sums, extremes, softmax. Lanes are as many at every level, so that the results are the
// same bits everywhere.
#include "level.h"
#include "rows.h"
#include "scalar.h"

namespace {

constexpr int kLanes = 16;
constexpr int64_t kBlock = 512;

// A tree over the lanes, of fixed shape.
template <class T>
RB_INLINE T fold(T* lanes) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

// Sum of f(i) over a run: 2 x 16 lanes of T within a block, double across blocks.
template <class T, class F>
RB_INLINE double blocked_sum(int64_t n, const F& f) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    T lanes[kLanes] = {}, more[kLanes] = {};
    int64_t i = begin;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
      for (int l = 0; l < kLanes; ++l) more[l] += f(i + kLanes + l);
    }
    for (int l = 0; l < kLanes; ++l) lanes[l] += more[l];
    T rest = 0;
    for (; i < end; ++i) rest += f(i);
    total += static_cast<double>(fold(lanes) + rest);
  }
  return total;
}

template <class T>
double sum(const T* x, int64_t n) {
  return blocked_sum<T>(n, [=](int64_t i) __attribute__((always_inline)) { return x[i]; });
}
template <class T>
double squares(const T* x, int64_t n, double mean) {
  const T m = static_cast<T>(mean);
  const double shift = mean - static_cast<double>(m);
  const double s = blocked_sum<T>(n, [=](int64_t i) __attribute__((always_inline)) {
    const T d = x[i] - m;
    return d * d;
  });
  // (x - mean)^2 summed = s - n shift^2, shift being what rounding the mean to T lost.
  return s - static_cast<double>(n) * shift * shift;
}

template <class T, class Op>
T extreme(const T* x, int64_t n) {
  T lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] = Op::f(lanes[l], x[i + l]);
  }
  for (; i < n; ++i) lanes[0] = Op::f(lanes[0], x[i]);
  for (int l = 1; l < kLanes; ++l) lanes[0] = Op::f(lanes[0], lanes[l]);
  return lanes[0];
}

template <class T>
void softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, op_maximum>(x, n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = s_exp(x[i] - top);
  const T scale = static_cast<T>(1.0 / sum(r, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] *= scale;
}

template <class T>
void log_softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, op_maximum>(x, n);
  double total = 0;
  T buffer[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = n - begin < kBlock ? n - begin : kBlock;
    for (int64_t i = 0; i < m; ++i) buffer[i] = s_exp(x[begin + i] - top);
    total += sum(buffer, m);
  }
  const T log_total = static_cast<T>(__builtin_log(total));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = (x[i] - top) - log_total;
}

template <class T>
void softmax_vjp(const T* g, const T* out, T* r, int64_t n) {
  const T s = static_cast<T>(blocked_sum<T>(n, [=](int64_t i) __attribute__((always_inline)) { return g[i] * out[i]; }));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = out[i] * (g[i] - s);
}
template <class T>
void log_softmax_vjp(const T* g, const T* out, T* r, int64_t n) {
  const T s = static_cast<T>(sum(g, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = g[i] - s_exp(out[i]) * s;
}
template <class T>
void standardize(const T* x, T* r, int64_t n, T shift, T scale) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = (x[i] - shift) * scale;
}

}  // namespace

namespace rbcpu {
extern const RowTable RB_LEVEL_NAME(row_table) = {
    sum<float>,
    sum<double>,
    squares<float>,
    squares<double>,
    extreme<float, op_maximum>,
    extreme<float, op_minimum>,
    extreme<double, op_maximum>,
    extreme<double, op_minimum>,
    softmax<float>,
    log_softmax<float>,
    softmax<double>,
    log_softmax<double>,
    softmax_vjp<float>,
    log_softmax_vjp<float>,
    softmax_vjp<double>,
    log_softmax_vjp<double>,
    standardize<float>,
    standardize<double>,
};
}

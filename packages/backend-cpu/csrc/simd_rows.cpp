// Runs of float32 and float64: sums, extremes, softmax. Lanes are as many at every level, so that
// the results are the same bits everywhere.
#include "level.h"
#include "rows.h"
#include "scalar.h"

namespace {

#define RB_INLINE_MEMBER inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kLanes = 16;
constexpr int64_t kBlock = 512;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
};
template <class T>
constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int kParts = kLanes / kWidth<T>;  // registers that make up the lanes

// One element or a vector of them. (The vector type must not pass as a template argument: that
// drops its alignment.)
template <bool Wide, class T>
RB_INLINE auto read(const T* p) {
  if constexpr (Wide) {
    return *reinterpret_cast<const typename VectorOf<T>::type*>(p);
  } else {
    return *p;
  }
}

// A tree over the lanes, of fixed shape.
template <class T>
RB_INLINE T fold(T* lanes) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

// Sum of f.at(i) over a run: 2 x 16 lanes of T within a block, double across blocks.
template <class T, class F>
RB_INLINE double blocked_sum(int64_t n, const F& f) {
  constexpr int W = kWidth<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    int64_t i = begin;
    T rest = 0;
    if (end - begin >= 2 * kLanes) {
      V low[P] = {}, high[P] = {};
      for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
          low[p] += f.template at<true>(i + p * W);
          high[p] += f.template at<true>(i + kLanes + p * W);
        }
      }
      alignas(64) T lanes[kLanes];
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) *reinterpret_cast<V*>(lanes + p * W) = low[p] + high[p];
      rest = fold(lanes);
    }
    for (; i < end; ++i) rest += f.template at<false>(i);
    total += static_cast<double>(rest);
  }
  return total;
}

template <class T>
struct Elements {
  const T* x;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    return read<Wide>(x + i);
  }
};
template <class T>
struct Squares {
  const T* x;
  T mean;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    const auto d = read<Wide>(x + i) - mean;
    return d * d;
  }
};
template <class T>
struct Products {
  const T *x, *y;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    return read<Wide>(x + i) * read<Wide>(y + i);
  }
};

template <class T>
double sum(const T* x, int64_t n) {
  return blocked_sum<T>(n, Elements<T>{x});
}
template <class T>
double squares(const T* x, int64_t n, double mean) {
  const T m = static_cast<T>(mean);
  const double shift = mean - static_cast<double>(m);
  // (x - mean)^2 summed = s - n shift^2, shift being what rounding the mean to T lost.
  return blocked_sum<T>(n, Squares<T>{x, m}) - static_cast<double>(n) * shift * shift;
}

// `Max` or the smallest; once a lane holds NaN it keeps it.
template <class T, bool Max>
T extreme(const T* x, int64_t n) {
  constexpr int W = kWidth<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  using Op = typename std::conditional<Max, op_maximum, op_minimum>::type;
  T best = x[0];
  int64_t i = 0;
  if (n >= kLanes) {
    V lanes[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) lanes[p] = read<true>(x + p * W);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V v = read<true>(x + i + p * W);
        lanes[p] = (Max ? v > lanes[p] : v < lanes[p]) | (v != v) ? v : lanes[p];
      }
    }
    alignas(64) T flat[kLanes];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) *reinterpret_cast<V*>(flat + p * W) = lanes[p];
    for (int l = 0; l < kLanes; ++l) best = Op::f(best, flat[l]);
  }
  for (; i < n; ++i) best = Op::f(best, x[i]);
  return best;
}

template <class T>
void softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] = s_exp(x[i] - top);
  const T scale = static_cast<T>(1.0 / sum(r, n));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) r[i] *= scale;
}

template <class T>
void log_softmax(const T* x, T* r, int64_t n) {
  if (n == 0) return;
  const T top = extreme<T, true>(x, n);
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
  const T s = static_cast<T>(blocked_sum<T>(n, Products<T>{g, out}));
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
    extreme<float, true>,
    extreme<float, false>,
    extreme<double, true>,
    extreme<double, false>,
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

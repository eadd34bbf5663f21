// Blocked sums over contiguous runs, and runs written by vectors. For simd_*.cpp files only:
// everything has internal linkage. Sums have sixteen lanes at every level, so that the results are
// the same bits everywhere.
#pragma once
#include "common/scalar.h"
#include "common/vector.h"

namespace {

#define RB_INLINE_MEMBER inline __attribute__((always_inline))

constexpr int kSumLanes = 16;
constexpr int64_t kSumBlock = 2048;
constexpr int64_t kFetched = 4096;  // longest row that is fetched ahead

template <class T>
constexpr int kParts = kSumLanes / kLanes<T>;  // registers that make up the lanes

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
template <bool Wide, class T, class V>
RB_INLINE void write(T* p, const V& v) {
  if constexpr (Wide) {
    *reinterpret_cast<typename VectorOf<T>::type*>(p) = v;
  } else {
    *p = v;
  }
}

// to[i] = f.at(i). With `Stream` past the caches (stream.h), and what follows the runs that f reads
// is fetched meanwhile: the next row.
template <bool Stream, class T, class F>
RB_INLINE void fill(T* to, int64_t n, const F& f) {
  constexpr int W = kLanes<T>, kLine = 64 / static_cast<int>(sizeof(T));
  int64_t i = 0;
  if constexpr (Stream) {
    const int64_t head = (-reinterpret_cast<intptr_t>(to) & 63) / static_cast<int>(sizeof(T));
    for (; i < head && i < n; ++i) to[i] = f.template at<false>(i);
    for (; i + kLine <= n; i += kLine) {
      if (n <= kFetched) f.fetch(n + i);
#pragma GCC unroll 4
      for (int k = 0; k < kLine; k += W) stream_vector(to + i + k, f.template at<true>(i + k));
    }
  } else {
    for (; i + 4 * W <= n; i += 4 * W) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) store_vector(to + i + k * W, f.template at<true>(i + k * W));
    }
  }
  for (; i + W <= n; i += W) store_vector(to + i, f.template at<true>(i));
  for (; i < n; ++i) to[i] = f.template at<false>(i);
}
template <class T, class F>
RB_INLINE void fill_row(T* r, int64_t n, bool stream, const F& f) {
  if (stream) {
    fill<true>(r, n, f);
  } else {
    fill<false>(r, n, f);
  }
}

// A tree over the lanes, of fixed shape.
template <class T>
RB_INLINE T fold(T* lanes) {
#pragma GCC unroll 4
  for (int step = kSumLanes / 2; step > 0; step /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

// Sum of f.at(i) over a run: 4 x 16 lanes of T within a block, 16 of double across blocks.
template <class T, class F>
RB_INLINE double blocked_sum(int64_t n, const F& f) {
  constexpr int W = kLanes<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  alignas(64) double total[kSumLanes] = {};
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    int64_t i = begin;
    V sums[4][P] = {};
    for (; i + 4 * kSumLanes <= end; i += 4 * kSumLanes) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sums[k][p] += f.template at<true>(i + k * kSumLanes + p * W);
      }
    }
    for (; i + kSumLanes <= end; i += kSumLanes) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sums[0][p] += f.template at<true>(i + p * W);
    }
    alignas(64) T lanes[kSumLanes];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      *reinterpret_cast<V*>(lanes + p * W) = (sums[0][p] + sums[1][p]) + (sums[2][p] + sums[3][p]);
    }
    for (int k = 0; i < end; ++i, ++k) lanes[k] += f.template at<false>(i);
    for (int k = 0; k < kSumLanes; ++k) total[k] += static_cast<double>(lanes[k]);
  }
  return fold(total);
}

template <class T>
struct Elements {
  const T* x;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    return read<Wide>(x + i);
  }
};
// What is not NaN.
template <class T>
struct Numbers {
  const T* x;
  template <bool Wide>
  RB_INLINE_MEMBER auto at(int64_t i) const {
    const auto v = read<Wide>(x + i);
    return v == v ? v : decltype(v){};
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
// Sums of Count terms at once: f.terms<Wide>(i, v) fills v[0..Count). 2 x 16 lanes of T each.
template <class T, int Count, class F>
RB_INLINE void blocked_sums(int64_t n, const F& f, double* out) {
  constexpr int W = kLanes<T>, P = kParts<T>;
  using V = typename VectorOf<T>::type;
  alignas(64) double total[Count][kSumLanes] = {};
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    int64_t i = begin;
    V sums[2][Count][P] = {};
    for (; i + 2 * kSumLanes <= end; i += 2 * kSumLanes) {
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
          V terms[Count];
          f.template terms<true>(i + k * kSumLanes + p * W, terms);
#pragma GCC unroll 4
          for (int c = 0; c < Count; ++c) sums[k][c][p] += terms[c];
        }
      }
    }
    alignas(64) T lanes[Count][kSumLanes];
#pragma GCC unroll 4
    for (int c = 0; c < Count; ++c) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p)
        *reinterpret_cast<V*>(lanes[c] + p * W) = sums[0][c][p] + sums[1][c][p];
    }
    for (int k = 0; i < end; ++i, k = (k + 1) % kSumLanes) {
      T terms[Count];
      f.template terms<false>(i, terms);
      for (int c = 0; c < Count; ++c) lanes[c][k] += terms[c];
    }
    for (int c = 0; c < Count; ++c) {
      for (int k = 0; k < kSumLanes; ++k) total[c][k] += static_cast<double>(lanes[c][k]);
    }
  }
  for (int c = 0; c < Count; ++c) out[c] = fold(total[c]);
}

// (x - mean)^2, g w, g w (x - mean)
template <class T, bool Weighted>
struct GradientTerms {
  const T *g, *w, *x;
  T mean;
  template <bool Wide, class V>
  RB_INLINE_MEMBER void terms(int64_t i, V* v) const {
    const auto d = read<Wide>(x + i) - mean;
    auto gw = read<Wide>(g + i);
    if constexpr (Weighted) gw *= read<Wide>(w + i);
    v[0] = d * d;
    v[1] = gw;
    v[2] = gw * d;
  }
};

template <class T>
RB_INLINE double run_squares(const T* x, int64_t n, double mean) {
  const T m = static_cast<T>(mean);
  const double shift = mean - static_cast<double>(m);
  // (x - mean)^2 summed = s - n shift^2, shift being what rounding the mean to T lost.
  return blocked_sum<T>(n, Squares<T>{x, m}) - static_cast<double>(n) * shift * shift;
}

}  // namespace

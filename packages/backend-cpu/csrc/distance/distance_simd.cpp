// Distances between rows, once per instruction-set level.
#include "common/level.h"
#include "common/pack.h"
#include "common/vecmath.h"
#include "common/vecmath64.h"
#include "distance/distance_rows.h"

namespace rbcpu {
namespace {

template <class V>
RB_INLINE V sign_of(const V& x) {
  return vm_select(x > V(0), V(1), vm_select(x < V(0), V(-1), x));
}

// Add the term of the difference d to a sum, or update a maximum.
template <Norm N, class V>
RB_INLINE V with(const V& sum, const V& d, const V& p) {
  if constexpr (N == Norm::kZero) {
    return sum + vm_select(d != V(0), V(1), V(0));
  } else if constexpr (N == Norm::kOne) {
    return sum + vm_abs(d);
  } else if constexpr (N == Norm::kTwo) {
    return vm_fma(d, d, sum);
  } else if constexpr (N == Norm::kInf) {
    const V size = vm_abs(d);
    return vm_select(size <= sum, sum, vm_select(sum != sum, sum, size));  // a NaN stays
  } else {
    return sum + vm_pow(vm_abs(d), p);
  }
}
template <Norm N, class V>
RB_INLINE V total(const V& a, const V& b, const V& p) {
  if constexpr (N == Norm::kInf) {
    return with<N>(a, b, p);
  } else {
    return a + b;
  }
}
template <Norm N, class V>
RB_INLINE V root(const V& sum, const V& p) {
  if constexpr (N == Norm::kTwo) {
    return vm_sqrt(sum);
  } else if constexpr (N == Norm::kOther) {
    return vm_pow(sum, V(1) / p);
  } else {
    return sum;
  }
}

template <Norm N, class T, int Rows>
RB_INLINE void tile_rows(const T* rows, int64_t step, const T* columns, int64_t m, T p, T* to) {
  using V = Pack<T, 1>;
  constexpr int kLane = kLanesOf<V>, kWide = 2, kPanel = kWide * kLane;
  constexpr int64_t kChunk = 256;  // sums of partial sums are more accurate than one long sum
  V sums[Rows][kWide], part[Rows][kWide];
  for (int r = 0; r < Rows; ++r)
    for (int w = 0; w < kWide; ++w) sums[r][w] = V(T(0));
  for (int64_t begin = 0; begin < m; begin += kChunk) {
    const int64_t end = begin + kChunk < m ? begin + kChunk : m;
    for (int r = 0; r < Rows; ++r)
      for (int w = 0; w < kWide; ++w) part[r][w] = V(T(0));
    for (int64_t i = begin; i < end; ++i) {
      V column[kWide];
      for (int w = 0; w < kWide; ++w) column[w] = pack_load<V>(columns + i * kPanel + w * kLane);
      for (int r = 0; r < Rows; ++r) {
        const V x(rows[r * step + i]);
        for (int w = 0; w < kWide; ++w) part[r][w] = with<N>(part[r][w], x - column[w], V(p));
      }
    }
    for (int r = 0; r < Rows; ++r)
      for (int w = 0; w < kWide; ++w) sums[r][w] = total<N>(sums[r][w], part[r][w], V(p));
  }
  for (int r = 0; r < Rows; ++r)
    for (int w = 0; w < kWide; ++w)
      pack_store(to + r * kPanel + w * kLane, root<N>(sums[r][w], V(p)));
}
template <Norm N, class T>
void tile(const T* rows, int64_t step, int count, const T* columns, int64_t m, T p, T* to) {
  constexpr int kPanel = 2 * kLanesOf<Pack<T, 1>>;
  if (count == kDistanceRows) return tile_rows<N, T, kDistanceRows>(rows, step, columns, m, p, to);
  for (int r = 0; r < count; ++r)
    tile_rows<N, T, 1>(rows + r * step, step, columns, m, p, to + r * kPanel);
}

// The gradient of the distance |x - y| by x is factor * slope(x - y). It is 0 between equal rows.
template <Norm N, class T>
RB_INLINE T factor_of(T gradient, T distance, T p) {
  if constexpr (N == Norm::kOne || N == Norm::kInf) {
    return gradient;
  } else if constexpr (N == Norm::kTwo) {
    return distance == 0 ? T(0) : gradient / distance;
  } else {
    return distance == 0 ? T(0) : gradient / vm_pow(distance, p - 1);
  }
}
template <Norm N, class V>
RB_INLINE V slope_of(const V& d, const V& distance, const V& p) {
  if constexpr (N == Norm::kOne) {
    return sign_of(d);
  } else if constexpr (N == Norm::kTwo) {
    return d;
  } else if constexpr (N == Norm::kInf) {
    return vm_select(vm_abs(d) < distance, V(0), sign_of(d));
  } else {
    return vm_select(d == V(0), V(0), sign_of(d) * vm_pow(vm_abs(d), p - V(1)));
  }
}
// Update K vectors V of a row, which stay in registers.
template <Norm N, class V, int K, class T>
RB_INLINE void slope_block(const T* x, const T* rows, int64_t step, int64_t count, const T* factors,
                           const T* distance, T p, T* to) {
  constexpr int kLane = kLanesOf<V>;
  V own[K], sum[K];
  for (int k = 0; k < K; ++k) {
    own[k] = pack_load<V>(x + k * kLane);
    sum[k] = pack_load<V>(to + k * kLane);
  }
  for (int64_t r = 0; r < count; ++r) {
    const V factor(factors[r]), size(distance[r]);
    for (int k = 0; k < K; ++k) {
      const V d = own[k] - pack_load<V>(rows + r * step + k * kLane);
      sum[k] = vm_fma(factor, slope_of<N>(d, size, V(p)), sum[k]);
    }
  }
  for (int k = 0; k < K; ++k) pack_store(to + k * kLane, sum[k]);
}
template <Norm N, class T>
void slope(const T* x, const T* rows, int64_t step, int64_t count, int64_t m, const T* gradient,
           const T* distance, T p, T* to) {
  if constexpr (N == Norm::kZero) return;
  using V = Pack<T, 1>;
  constexpr int kLane = kLanesOf<V>, kWide = 4;
  constexpr int64_t kChunk = 128;
  T factors[kChunk];
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t used = count - begin < kChunk ? count - begin : kChunk;
    const T *const size = distance + begin, *const y = rows + begin * step;
    for (int64_t r = 0; r < used; ++r) factors[r] = factor_of<N>(gradient[begin + r], size[r], p);
    int64_t i = 0;
    for (; i + kWide * kLane <= m; i += kWide * kLane)
      slope_block<N, V, kWide>(x + i, y + i, step, used, factors, size, p, to + i);
    for (; i + kLane <= m; i += kLane)
      slope_block<N, V, 1>(x + i, y + i, step, used, factors, size, p, to + i);
    for (; i < m; ++i) slope_block<N, T, 1>(x + i, y + i, step, used, factors, size, p, to + i);
  }
}

template <class T>
constexpr DistanceTable<T> kTable = {
    2 * kLanesOf<Pack<T, 1>>,
    {tile<Norm::kZero, T>, tile<Norm::kOne, T>, tile<Norm::kTwo, T>, tile<Norm::kInf, T>,
     tile<Norm::kOther, T>},
    {slope<Norm::kZero, T>, slope<Norm::kOne, T>, slope<Norm::kTwo, T>, slope<Norm::kInf, T>,
     slope<Norm::kOther, T>}};
static_assert(kTable<float>.panel <= kMaxDistancePanel);
}  // namespace

extern const DistanceTables RB_LEVEL_NAME(distance_table) = {kTable<float>, kTable<double>};
}  // namespace rbcpu

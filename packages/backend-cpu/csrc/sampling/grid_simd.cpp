// Corners around points and sums over corners, once per instruction-set level.
#include "common/level.h"
#include "common/vector.h"
#include "sampling/cubic.h"
#include "sampling/grid_points.h"

namespace rbcpu {
namespace {

template <class T>
using Line = T[kGridBlock];

RB_ALWAYS float floor_of(float x) { return __builtin_floorf(x); }
RB_ALWAYS double floor_of(double x) { return __builtin_floor(x); }
RB_ALWAYS float nearest_of(float x) { return __builtin_rintf(x); }
RB_ALWAYS double nearest_of(double x) { return __builtin_rint(x); }

// Apply the padding rule to coordinates. If `slope` is not null, multiply it by the derivative of
// the padded coordinate.
template <class T>
RB_ALWAYS void pad(const GridRule& rule, int64_t size, int n, T* x, T* slope) {
  if (rule.padding == GridPadding::kZeros) return;
  const T last = static_cast<T>(size - 1);
  if (rule.padding == GridPadding::kReflection) {
    const T low = rule.align ? T(0) : T(-0.5), span = rule.align ? last : static_cast<T>(size);
    for (int p = 0; p < n; ++p) {
      const T from = x[p] - low, distance = from < 0 ? -from : from;
      const T turns = floor_of(distance / span), rest = distance - turns * span;
      const bool odd = floor_of(turns * T(0.5)) * 2 != turns;
      const T found = odd ? span - rest + low : rest + low;
      x[p] = span == 0 ? T(0) : found;
      if (slope) slope[p] = (from < 0) != odd ? -slope[p] : slope[p];
    }
  }
  for (int p = 0; p < n; ++p) {
    const T at = x[p];
    const bool above = at > 0, below = at < last;
    x[p] = above ? (below ? at : last) : T(0);  // a NaN becomes 0
    if (slope) slope[p] = above && below ? slope[p] : T(0);
  }
}

// Offsets of the elements at integral coordinates, or -1 outside.
template <class T>
RB_ALWAYS void places(const T* x, int64_t size, int64_t stride, int n, int32_t* to) {
  const T last = static_cast<T>(size - 1);  // rounded, above 2**24 in float32
  const int32_t by = static_cast<int32_t>(stride), end = static_cast<int32_t>(size - 1);
  for (int p = 0; p < n; ++p) {
    const bool inside = x[p] >= 0 && x[p] <= last;
    const int32_t at = static_cast<int32_t>(inside ? x[p] : T(0));
    to[p] = inside ? (at < end ? at : end) * by : -1;
  }
}

template <class T>
struct Taps {
  Line<int32_t> place[kMaxGridTaps];
  Line<T> weight[kMaxGridTaps], slope[kMaxGridTaps];
};

template <class T>
RB_ALWAYS void taps_of(const GridRule& rule, const GridDirection& direction, const T* point, int n,
                       bool slopes, Taps<T>& to) {
  const int64_t size = direction.size, stride = direction.stride;
  const T half = static_cast<T>(size - 1) / 2, count = static_cast<T>(size);
  Line<T> x, by, low;
  for (int p = 0; p < n; ++p)
    x[p] = rule.align ? (point[p] + 1) * half : ((point[p] + 1) * count - 1) / 2;
  for (int p = 0; p < n; ++p) by[p] = rule.align ? half : count / 2;
  if (rule.mode != GridMode::kCubic) pad(rule, size, n, x, slopes ? by : nullptr);
  if (rule.mode == GridMode::kNearest) {
    for (int p = 0; p < n; ++p) {
      low[p] = nearest_of(x[p]);
      to.weight[0][p] = 1;
      to.slope[0][p] = 0;
    }
    return places(low, size, stride, n, to.place[0]);
  }
  for (int p = 0; p < n; ++p) low[p] = floor_of(x[p]);
  if (rule.mode == GridMode::kLinear) {
    for (int p = 0; p < n; ++p) {
      to.weight[0][p] = 1 - (x[p] - low[p]);
      to.weight[1][p] = x[p] - low[p];
      to.slope[0][p] = -by[p];
      to.slope[1][p] = by[p];
    }
    places(low, size, stride, n, to.place[0]);
    for (int p = 0; p < n; ++p) low[p] += 1;
    return places(low, size, stride, n, to.place[1]);
  }
  for (int p = 0; p < n; ++p) {
    T weight[4], slope[4];
    cubic_weights(x[p] - low[p], weight);
    cubic_slopes(x[p] - low[p], slope);
    for (int k = 0; k < 4; ++k) {
      to.weight[k][p] = weight[k];
      to.slope[k][p] = slope[k] * by[p];
    }
  }
  for (int k = 0; k < 4; ++k) {
    for (int p = 0; p < n; ++p) x[p] = low[p] + (k - 1);
    pad(rule, size, n, x, static_cast<T*>(nullptr));
    places(x, size, stride, n, to.place[k]);
  }
}

template <class T>
void corners(const GridRule& rule, const T (*points)[kGridBlock], int n, bool slopes,
             GridCorners<T>* to) {
  Taps<T> taps[3];
  for (int d = 0; d < rule.rank; ++d)
    taps_of(rule, rule.direction[d], points[d], n, slopes, taps[d]);
  const int each = rule.taps(), count = rule.corners();
  for (int k = 0; k < count; ++k) {
    // The last direction changes fastest.
    int tap[3] = {};
    for (int d = rule.rank - 1, rest = k; d >= 0; --d, rest /= each) tap[d] = rest % each;
    int32_t* const index = to->index[k];
    T* const weight = to->weight[k];
    for (int p = 0; p < n; ++p) {
      index[p] = taps[0].place[tap[0]][p];
      weight[p] = taps[0].weight[tap[0]][p];
    }
    for (int d = 1; d < rule.rank; ++d) {
      const int32_t* const place = taps[d].place[tap[d]];
      const T* const factor = taps[d].weight[tap[d]];
      for (int p = 0; p < n; ++p) {
        index[p] = (index[p] | place[p]) < 0 ? -1 : index[p] + place[p];
        weight[p] *= factor[p];
      }
    }
    for (int s = 0; slopes && s < rule.rank; ++s) {
      T* const slope = to->slope[s][k];
      for (int p = 0; p < n; ++p) slope[p] = taps[s].slope[tap[s]][p];
      for (int d = 0; d < rule.rank; ++d) {
        if (d == s) continue;
        const T* const factor = taps[d].weight[tap[d]];
        for (int p = 0; p < n; ++p) slope[p] *= factor[p];
      }
    }
  }
}

// Read one element per point, or 0 where the index is -1.
template <class T>
RB_ALWAYS void values(const T* plane, const int32_t* index, int n, T* to) {
  int p = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    for (; p < n; p += 16) {  // lines have room for whole vectors
      const __m512i at = _mm512_loadu_si512(index + p);
      const __mmask16 inside =
          static_cast<__mmask16>(_mm512_cmpge_epi32_mask(at, _mm512_setzero_si512()) &
                                 (n - p >= 16 ? 0xffff : (1 << (n - p)) - 1));
      _mm512_storeu_ps(to + p, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, at, plane, 4));
    }
  }
#endif
  for (; p < n; ++p) {
    const int32_t at = index[p];
    const T found = plane[at < 0 ? 0 : at];
    to[p] = at < 0 ? T(0) : found;
  }
}

template <class T>
void sample(const T* plane, const GridCorners<T>& corners, int count, int n, T* to) {
  Line<T> found;
  for (int k = 0; k < count; ++k) {
    values(plane, corners.index[k], n, found);
    const T* const weight = corners.weight[k];
    if (k == 0) {
      for (int p = 0; p < n; ++p) to[p] = weight[p] * found[p];
    } else {
      for (int p = 0; p < n; ++p) to[p] += weight[p] * found[p];
    }
  }
}

template <class T>
void slopes(const T* plane, const GridCorners<T>& corners, int rank, int count, int n,
            const T* from, T (*sums)[kGridBlock]) {
  Line<T> found, sum[3] = {};
  for (int k = 0; k < count; ++k) {
    values(plane, corners.index[k], n, found);
    for (int d = 0; d < rank; ++d) {
      const T* const slope = corners.slope[d][k];
      for (int p = 0; p < n; ++p) sum[d][p] += slope[p] * found[p];
    }
  }
  for (int d = 0; d < rank; ++d) {
    for (int p = 0; p < n; ++p) sums[d][p] += from[p] * sum[d][p];
  }
}

template <class T>
constexpr GridTable<T> kTable = {corners<T>, sample<T>, slopes<T>};
}  // namespace

extern const GridTables RB_LEVEL_NAME(grid_table) = {kTable<float>, kTable<double>};
}  // namespace rbcpu

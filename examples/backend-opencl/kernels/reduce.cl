// Reductions. A work item reduces one segment of the elements that belong to one result; where
// results are few there are several segments each, whose partial results a second call joins. The
// order is fixed: results are the same in every run. Sums go by runs of 64 elements, so that
// float32's error grows with n / 64.
//   kept: positions of the results, strides of out and of x; inner: positions of the reduced
//   dimensions in x
#define REDUCED_RUN(BODY)                                                                  \
  const long width = inner.shape[inner.ndim - 1], step = inner.strides[0][inner.ndim - 1]; \
  for (long j = begin; j < end;) {                                                         \
    const long row = j / width, column = j - row * width;                                  \
    long base = p1 + column * step, left = row;                                            \
    for (int d = inner.ndim - 2; d >= 0; --d) {                                            \
      const long above = left / inner.shape[d];                                            \
      base += (left - above * inner.shape[d]) * inner.strides[0][d];                       \
      left = above;                                                                        \
    }                                                                                      \
    const long length = min(min(width - column, end - j), 64L);                            \
    BODY;                                                                                  \
    j += length;                                                                           \
  }
#define REDUCED_BEGIN                                                  \
  const long g = get_global_id(0);                                     \
  if (g >= kept.n * segments) return;                                  \
  const long o = g / segments, s = g - o * segments;                   \
  PLACES2(kept, o)                                                     \
  const long begin = s * segment, end = min(begin + segment, inner.n); \
  out += p0 + s;

#define REDUCE(NAME, O, START, RUN_START, STEP, JOIN, FINISH)                                   \
  __kernel void NAME(__global O* out, __global const T* x, const Space kept, const Space inner, \
                     long segment, long segments, T scale) {                                    \
    REDUCED_BEGIN                                                                               \
    T all = START;                                                                              \
    REDUCED_RUN(T part = RUN_START; for (long k = 0; k < length; ++k) {                         \
      const T v = x[base + k * step];                                                           \
      part = STEP;                                                                              \
    } all = JOIN;)                                                                              \
    *out = (O)(FINISH);                                                                         \
  }
#define LARGER(a, v) ((v) > (a) || IS_NAN(v) ? (v) : (a))
#define SMALLER(a, v) ((v) < (a) || IS_NAN(v) ? (v) : (a))

REDUCE(reduce_sum, T, 0, 0, ADD(part, v), ADD(all, part), MUL(all, scale))
REDUCE(reduce_prod, T, 1, 1, MUL(part, v), MUL(all, part), all)
REDUCE(reduce_max, T, T_MIN, T_MIN, LARGER(part, v), LARGER(all, part), all)
REDUCE(reduce_min, T, T_MAX, T_MAX, SMALLER(part, v), SMALLER(all, part), all)
REDUCE(reduce_any, uchar, 0, 0, (T)(part || v != 0), (T)(all || part), all != 0)
REDUCE(reduce_all, uchar, 1, 1, (T)(part && v != 0), (T)(all && part), all != 0)

// The first place of the extreme value; NaN is the most extreme. `given`: x holds partial results,
// with their places.
#define REDUCE_PLACE(NAME, BETTER)                                                \
  __kernel void NAME(__global T* out, __global long* places, __global const T* x, \
                     __global const long* given, int has_given, const Space kept, \
                     const Space inner, long segment, long segments) {            \
    const long g = get_global_id(0);                                              \
    if (g >= kept.n * segments) return;                                           \
    const long o = g / segments, s = g - o * segments;                            \
    PLACES2(kept, o)                                                              \
    const long begin = s * segment, end = min(begin + segment, inner.n);          \
    T best = 0;                                                                   \
    long place = -1;                                                              \
    REDUCED_RUN(for (long k = 0; k < length; ++k) {                               \
      const T v = x[base + k * step];                                             \
      if (place < 0 || (!IS_NAN(best) && (BETTER || IS_NAN(v)))) {                \
        best = v;                                                                 \
        place = has_given ? given[base + k * step] : j + k;                       \
      }                                                                           \
    })                                                                            \
    out[p0 + s] = best;                                                           \
    places[p0 + s] = place;                                                       \
  }
REDUCE_PLACE(place_max, v > best)
REDUCE_PLACE(place_min, v < best)

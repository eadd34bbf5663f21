// Normalisation. Before it stand A (x and gradients), T (computed in), O (results like x), W
// (weight), B (bias) and D (gradients of both).
#include "lines.cuh"
template <class T>
struct Stats {
  T mean, rstd, weight, shift;  // the last two of channels only
};

// Mean and reciprocal root of the variance of a line in two passes; of the squares where RMS.
template <int RMS, class T>
__device__ inline Stats<T> stats_of(T* slots, const A* x, const Layout& inner, Int64 n,
                                    const Lines& lines, const Seat& seat, double eps) {
  T mean = 0, sum = 0;
  if (!RMS) {
    for (Int64 i = seat.lane; i < n; i += lines.width)
      sum += As<T>::of(x[places_in<1>(inner, i).at[0]]);
    mean = joined<Adding>(slots, sum, lines, seat) / (T)inner.n;
    sum = 0;
  }
  for (Int64 i = seat.lane; i < n; i += lines.width) {
    const T c = As<T>::of(x[places_in<1>(inner, i).at[0]]) - mean;
    sum += c * c;
  }
  sum = joined<Adding>(slots, sum, lines, seat) / (T)inner.n;
  Stats<T> stats = {mean, 1 / sqrt(sum + (T)eps), 1, 0};
  return stats;
}

// y = (x - mean) rstd weight + bias. Strides of x, y, weight and bias.
template <int RMS, class T>
__device__ inline void norm(O* y, const A* x, const W* weight, const B* bias, const Layout& kept,
                            const Layout& inner, const Lines& lines, double eps) {
  __shared__ T slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, n = r < kept.n ? inner.n : 0;
    const Places p = places_in<4>(kept, r < kept.n ? r : 0);
    const Stats<T> s = stats_of<RMS, T>(slots, x + p.at[0], inner, n, lines, seat, eps);
    for (Int64 i = seat.lane; i < n; i += lines.width) {
      const Places q = places_in<4>(inner, i);
      T v = (As<T>::of(x[p.at[0] + q.at[0]]) - s.mean) * s.rstd;
      if (weight) v *= As<T>::of(weight[p.at[2] + q.at[2]]);
      if (bias) v += As<T>::of(bias[p.at[3] + q.at[3]]);
      y[p.at[1] + q.at[1]] = As<O>::of(v);
    }
  }
}

// dx = rstd (gw - mean(gw) - y mean(gw y)) with gw = g weight; the lines' statistics are kept for
// the weight's gradient. Strides of x, dx, g and weight; where: of (x and) stats.
template <int RMS, class T>
__device__ inline void norm_dx(O* dx, const A* g, const A* x, const W* weight, Stats<T>* stats,
                               const Layout& kept, const Layout& inner, const Layout& where,
                               const Lines& lines, double eps) {
  __shared__ T slots[RB_BLOCK];
  __shared__ Pair<T> pairs[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, n = r < kept.n ? inner.n : 0;
    const Places p = places_in<4>(kept, r < kept.n ? r : 0);
    const Stats<T> s = stats_of<RMS, T>(slots, x + p.at[0], inner, n, lines, seat, eps);
    Pair<T> sums = {0, 0};  // of gw and gw y
    for (Int64 i = seat.lane; i < n; i += lines.width) {
      const Places q = places_in<4>(inner, i);
      T gw = As<T>::of(g[p.at[2] + q.at[2]]);
      if (weight) gw *= As<T>::of(weight[p.at[3] + q.at[3]]);
      sums.a += gw;
      sums.b += gw * (As<T>::of(x[p.at[0] + q.at[0]]) - s.mean) * s.rstd;
    }
    sums = joined<AddingPairs>(pairs, sums, lines, seat);
    const T mean = RMS ? (T)0 : sums.a / (T)inner.n, slope = sums.b / (T)inner.n;
    for (Int64 i = seat.lane; i < n; i += lines.width) {
      const Places q = places_in<4>(inner, i);
      T gw = As<T>::of(g[p.at[2] + q.at[2]]);
      if (weight) gw *= As<T>::of(weight[p.at[3] + q.at[3]]);
      const T y = (As<T>::of(x[p.at[0] + q.at[0]]) - s.mean) * s.rstd;
      dx[p.at[1] + q.at[1]] = As<O>::of(s.rstd * (gw - mean - y * slope));
    }
    if (r < kept.n && seat.lane == 0) stats[places_in<2>(where, r).at[1]] = s;
  }
}

// Sums of g y and g over lines, in segments where lines are few: gradients of weight and bias.
// Strides of x, g, stats and the results, which may be null; `sums` by line.
template <class T>
struct Gradients {
  D *dw, *db;
  Pair<T>* sums;
  __device__ void write(Int64 r, Int64 at, const Pair<T>& pair) const {
    if (dw) dw[at] = As<D>::of(pair.a);
    if (db) db[at] = As<D>::of(pair.b);
    if (sums) sums[r] = pair;
  }
};
template <class T>
__device__ inline void pair_sums(const Gradients<T>& to, const A* g, const A* x,
                                 const Stats<T>* stats, Pair<T>* parts, const Layout& kept,
                                 const Layout& inner, const Lines& lines, Int64 segment,
                                 Int64 segments) {
  __shared__ Pair<T> slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  const Int64 all = kept.n * segments;
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < all;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, s = r / kept.n, o = r - s * kept.n;
    const Places p = places_in<4>(kept, o);
    const Int64 begin = s * segment;
    const Int64 end = r >= all ? 0 : begin + segment < inner.n ? begin + segment : inner.n;
    Pair<T> pair = {0, 0};
    for (Int64 i = begin + seat.lane; i < end; i += lines.width) {
      const Places q = places_in<3>(inner, i);
      const Stats<T> here = stats[p.at[2] + q.at[2]];
      const T v = As<T>::of(g[p.at[1] + q.at[1]]);
      pair.a += v * (As<T>::of(x[p.at[0] + q.at[0]]) - here.mean) * here.rstd;
      pair.b += v;
    }
    pair = joined<AddingPairs>(slots, pair, lines, seat);
    if (r >= all || seat.lane) continue;
    if (segments > 1) {
      parts[r] = pair;
    } else {
      to.write(o, p.at[3], pair);
    }
  }
}
template <class T>
__device__ inline void pair_parts(const Gradients<T>& to, const Pair<T>* parts, const Layout& kept,
                                  const Lines& lines, Int64 segments) {
  __shared__ Pair<T> slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 o = start + seat.line;
    Pair<T> pair = {0, 0};
    for (Int64 s = seat.lane; o < kept.n && s < segments; s += lines.width)
      AddingPairs::join(pair, parts[s * kept.n + o]);
    pair = joined<AddingPairs>(slots, pair, lines, seat);
    if (o < kept.n && seat.lane == 0) to.write(o, places_in<4>(kept, o).at[3], pair);
  }
}

#define RB_NORM(RMS)                                                                            \
  extern "C" __global__ void rb_kernel(O* y, const A* x, const W* weight, const B* bias,        \
                                       const Layout kept, const Layout inner, const Lines lines, \
                                       double eps) {                                            \
    norm<RMS, T>(y, x, weight, bias, kept, inner, lines, eps);                                  \
  }
#define RB_NORM_DX(RMS)                                                                         \
  extern "C" __global__ void rb_kernel(O* dx, const A* g, const A* x, const W* weight,          \
                                       Stats<T>* stats, const Layout kept, const Layout inner,  \
                                       const Layout where, const Lines lines, double eps) {     \
    norm_dx<RMS, T>(dx, g, x, weight, stats, kept, inner, where, lines, eps);                   \
  }
#define RB_PAIR_SUMS                                                                            \
  extern "C" __global__ void rb_kernel(const Gradients<T> to, const A* g, const A* x,           \
                                       const Stats<T>* stats, Pair<T>* parts, const Layout kept, \
                                       const Layout inner, const Lines lines, Int64 segment,    \
                                       Int64 segments) {                                        \
    pair_sums<T>(to, g, x, stats, parts, kept, inner, lines, segment, segments);                \
  }
#define RB_PAIR_PARTS                                                                         \
  extern "C" __global__ void rb_kernel(const Gradients<T> to, const Pair<T>* parts,           \
                                       const Layout kept, const Lines lines, Int64 segments) { \
    pair_parts<T>(to, parts, kept, lines, segments);                                          \
  }

// Statistics of channels out of moments (of dtypes A and O here), weight and bias.
#define RB_CHANNELS                                                                             \
  extern "C" __global__ void rb_kernel(Stats<T>* stats, const A* mean, const O* var,            \
                                       const W* weight, const B* bias, const Layout layout,     \
                                       double eps) {                                            \
    for (Int64 c = RB_THREAD; c < layout.n; c += RB_THREADS) {                                  \
      const Places p = places_of(layout, c);                                                    \
      const T weighs = weight ? As<T>::of(weight[p.at[2]]) : (T)1;                              \
      const T shift = bias ? As<T>::of(bias[p.at[3]]) : (T)0;                                   \
      const Stats<T> s = {As<T>::of(mean[p.at[0]]),                                             \
                          1 / sqrt(As<T>::of(var[p.at[1]]) + (T)eps), weighs, shift};           \
      stats[c] = s;                                                                             \
    }                                                                                           \
  }
// Elementwise results of channels. Strides of y, x and stats.
#define RB_CHANNEL_NORM                                                                       \
  extern "C" __global__ void rb_kernel(O* y, const A* x, const Stats<T>* stats,               \
                                       const Layout layout) {                                 \
    for (Int64 i = RB_THREAD; i < layout.n; i += RB_THREADS) {                                \
      const Places p = places_in<3>(layout, i);                                               \
      const Stats<T> s = stats[p.at[2]];                                                      \
      y[p.at[0]] = As<O>::of((As<T>::of(x[p.at[1]]) - s.mean) * (s.rstd * s.weight) + s.shift); \
    }                                                                                         \
  }
// Strides of dx, x, g and stats. part: 1 / count in training, else 0.
#define RB_CHANNEL_DX                                                                          \
  extern "C" __global__ void rb_kernel(O* dx, const A* g, const A* x, const Stats<T>* stats,   \
                                       const Pair<T>* sums, const Layout layout, double part) { \
    for (Int64 i = RB_THREAD; i < layout.n; i += RB_THREADS) {                                 \
      const Places p = places_in<4>(layout, i);                                                \
      const Stats<T> s = stats[p.at[3]];                                                       \
      T v = As<T>::of(g[p.at[2]]);                                                             \
      if (part != 0) {                                                                         \
        const Pair<T> sum = sums[p.at[3]];                                                     \
        const T y = (As<T>::of(x[p.at[1]]) - s.mean) * s.rstd;                                 \
        v = v - sum.b * (T)part - y * (sum.a * (T)part);                                       \
      }                                                                                        \
      dx[p.at[0]] = As<O>::of(s.rstd * s.weight * v);                                          \
    }                                                                                          \
  }

// Normalisation. Before it stand A (x and gradients), T (computed in), O (results like x), W
// (weight), B (bias) and D (gradients of both). N is the elements of a load, HELD the loads of a line
// that a thread holds in registers (0: the line is read again), Inner the type of its positions.
#define RB_CONTRACTED  // see compile.h
#include "lines.cuh"
template <class T>
struct Stats {
  T mean, rstd, weight, shift;  // the last two of channels only
};
template <class T>
struct Moments {
  T mean, squares, count;
};
// Chan, Golub, LeVeque 1979.
struct JoinMoments {
  template <class T>
  static __device__ void join(Moments<T>& m, const Moments<T>& later) {
    const T count = m.count + later.count, apart = later.mean - m.mean;
    const T part = count == 0 ? (T)0 : later.count / count;
    m.squares += later.squares + apart * apart * (m.count * part);
    m.mean += apart * part;
    m.count = count;
  }
};

// Mean and reciprocal root of the variance of a line whose elements `v` the threads hold; of the
// squares where RMS.
template <int RMS, class T, int N, int HELD>
__device__ inline Stats<T> stats_of_held(T* slots, const T (&v)[HELD][N], Int64 n,
                                         const Lines& lines, const Seat& seat, double eps) {
  const T count = (T)(n * N);
  T mean = 0, sum = 0;
  if (!RMS) {
    for (int k = 0; k < HELD; ++k)
      for (int e = 0; e < N; ++e) sum += v[k][e];  // 0 behind the end
    mean = joined<Adding>(slots, sum, lines, seat) / count;
    sum = 0;
  }
  each_held<HELD>(n, seat.lane, lines.width, [&](int k, Int64) {
    for (int e = 0; e < N; ++e) sum += (v[k][e] - mean) * (v[k][e] - mean);
  });
  sum = joined<Adding>(slots, sum, lines, seat) / count;
  return {mean, 1 / sqrt(sum + (T)eps), 1, 0};
}
// The same of a line in memory, in one pass: the moments of packs are joined.
template <int RMS, class T, int N, class Inner>
__device__ inline Stats<T> stats_of_line(Moments<T>* slots, const A* x, const Inner& inner, Int64 n,
                                         const Lines& lines, const Seat& seat, double eps) {
  enum { AHEAD = 4 };
  Moments<T> all = {0, 0, 0};
  T v[AHEAD][N];
  sweep<AHEAD>(
      0, n, seat.lane, lines.width,
      [&](int k, Int64 i) { load_as(v[k], x + inner.at(i).at[0], inner.singles & 1); },
      [&](int k, Int64) {
        Moments<T> pack = {0, 0, N};
        for (int e = 0; !RMS && e < N; ++e) pack.mean += v[k][e];
        pack.mean /= N;
        for (int e = 0; e < N; ++e) pack.squares += (v[k][e] - pack.mean) * (v[k][e] - pack.mean);
        if (RMS) {
          all.squares += pack.squares;
        } else {
          JoinMoments::join(all, pack);
        }
      });
  all = joined<JoinMoments>(slots, all, lines, seat);
  return {all.mean, 1 / sqrt(all.squares / (T)(inner.count() * N) + (T)eps), 1, 0};
}

// y = (x - mean) rstd weight + bias. Strides of x, y, weight and bias.
template <int RMS, int N, int HELD, class Inner>
__device__ inline void norm(O* y, const A* x, const W* weight, const B* bias, const Layout& kept,
                            const Inner& inner, const Lines& lines, double eps) {
  __shared__ T slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, n = r < kept.n ? inner.count() : 0;
    const Places p = places_in<4>(kept, r < kept.n ? r : 0);
    const auto finish = [&](T(&v)[N], const Places& q, const Stats<T>& s) {
      T scale[N], shift[N];
      if (weight) load_as(scale, weight + p.at[2] + q.at[2], inner.singles & 4);
      if (bias) load_as(shift, bias + p.at[3] + q.at[3], inner.singles & 8);
      for (int e = 0; e < N; ++e) {
        v[e] = (v[e] - s.mean) * s.rstd;
        if (weight) v[e] *= scale[e];
        if (bias) v[e] += shift[e];
      }
      store_as(y + p.at[1] + q.at[1], v);
    };
    if constexpr (HELD > 0) {
      T v[HELD][N] = {};
      each_held<HELD>(n, seat.lane, lines.width, [&](int k, Int64 i) {
        load_as(v[k], x + p.at[0] + inner.at(i).at[0], inner.singles & 1);
      });
      const Stats<T> s = stats_of_held<RMS>(slots, v, n, lines, seat, eps);
      each_held<HELD>(n, seat.lane, lines.width,
                      [&](int k, Int64 i) { finish(v[k], inner.at(i), s); });
    } else {
      __shared__ Moments<T> moments[RB_BLOCK];
      const Stats<T> s =
          stats_of_line<RMS, T, N>(moments, x + p.at[0], inner, n, lines, seat, eps);
      for (Int64 i = seat.lane; i < n; i += lines.width) {
        const Places q = inner.at(i);
        T v[N];
        load_as(v, x + p.at[0] + q.at[0], inner.singles & 1);
        finish(v, q, s);
      }
    }
  }
}

// dx = rstd (gw - mean(gw) - y mean(gw y)) with gw = g weight. Strides of x, dx, g and weight. The
// lines' statistics go to `stats`, which may be null; where: of (x and) stats. SUMS: each block sums
// g y and g over its lines for every load of the line, and leaves that in `parts`.
template <int RMS, int SUMS, int N, int HELD, class Inner>
__device__ inline void norm_dx(O* dx, const A* g, const A* x, const W* weight, Stats<T>* stats,
                               Pair<T>* parts, const Layout& kept, const Inner& inner,
                               const Layout& where, const Lines& lines, double eps) {
  __shared__ T slots[RB_BLOCK];
  __shared__ Pair<T> pairs[RB_BLOCK];
  const Seat seat = seat_of(lines);
  const Int64 length = inner.count();
  const T count = (T)(length * N);
  T dw[SUMS ? HELD : 1][N] = {}, db[SUMS ? HELD : 1][N] = {};
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, n = r < kept.n ? length : 0;
    const Places p = places_in<4>(kept, r < kept.n ? r : 0);
    Pair<T> sums = {0, 0};  // of gw and gw y
    // x becomes y and g becomes gw.
    const auto weigh = [&](T(&v)[N], T(&d)[N], const Places& q, const Stats<T>& s, int k) {
      T w[N];
      if (weight) load_as(w, weight + p.at[3] + q.at[3], inner.singles & 8);
      for (int e = 0; e < N; ++e) {
        v[e] = (v[e] - s.mean) * s.rstd;
        if constexpr (SUMS) dw[k][e] += d[e] * v[e], db[k][e] += d[e];
        if (weight) d[e] *= w[e];
      }
    };
    const auto add = [&](const T(&v)[N], const T(&d)[N]) {
      for (int e = 0; e < N; ++e) sums.a += d[e], sums.b += d[e] * v[e];
    };
    const auto finish = [&](const T(&v)[N], T(&d)[N], const Places& q, T rstd, T mean, T slope) {
      for (int e = 0; e < N; ++e) d[e] = rstd * (d[e] - mean - v[e] * slope);
      store_as(dx + p.at[1] + q.at[1], d);
    };
    Stats<T> s;
    if constexpr (HELD > 0) {
      T v[HELD][N] = {}, d[HELD][N] = {};
      each_held<HELD>(n, seat.lane, lines.width, [&](int k, Int64 i) {
        const Places q = inner.at(i);
        load_as(v[k], x + p.at[0] + q.at[0], inner.singles & 1);
        load_as(d[k], g + p.at[2] + q.at[2], inner.singles & 4);
      });
      s = stats_of_held<RMS>(slots, v, n, lines, seat, eps);
      each_held<HELD>(n, seat.lane, lines.width, [&](int k, Int64 i) {
        weigh(v[k], d[k], inner.at(i), s, k);
        add(v[k], d[k]);
      });
      sums = joined<AddingPairs>(pairs, sums, lines, seat);
      const T mean = RMS ? (T)0 : sums.a / count, slope = sums.b / count;
      each_held<HELD>(n, seat.lane, lines.width, [&](int k, Int64 i) {
        finish(v[k], d[k], inner.at(i), s.rstd, mean, slope);
      });
    } else {
      __shared__ Moments<T> moments[RB_BLOCK];
      s = stats_of_line<RMS, T, N>(moments, x + p.at[0], inner, n, lines, seat, eps);
      for (int pass = 0; pass < 2; ++pass) {
        const T mean = RMS ? (T)0 : sums.a / count, slope = sums.b / count;
        for (Int64 i = seat.lane; i < n; i += lines.width) {
          const Places q = inner.at(i);
          T v[N], d[N];
          load_as(v, x + p.at[0] + q.at[0], inner.singles & 1);
          load_as(d, g + p.at[2] + q.at[2], inner.singles & 4);
          weigh(v, d, q, s, 0);
          if (pass == 0) {
            add(v, d);
          } else {
            finish(v, d, q, s.rstd, mean, slope);
          }
        }
        if (pass == 0) sums = joined<AddingPairs>(pairs, sums, lines, seat);
      }
    }
    if (stats && r < kept.n && seat.lane == 0) stats[places_in<2>(where, r).at[1]] = s;
  }
  // Through shared memory: threads that are neighbours write neighbours.
  if constexpr (SUMS) {
    __shared__ Pair<T> elements[RB_MOST_THREADS * N];
    Pair<T>* to = parts + blockIdx.x * length * N;
    const int row = lines.width * N;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      for (int e = 0; e < N; ++e) elements[threadIdx.x * N + e] = {dw[k][e], db[k][e]};
      __syncthreads();
      for (int j = threadIdx.x; j < row && k * row + j < length * N; j += blockDim.x) {
        Pair<T> sum = elements[j];
        for (int line = 1; line < lines.across; ++line)
          AddingPairs::join(sum, elements[line * row + j]);
        to[k * row + j] = sum;
      }
      __syncthreads();
    }
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
template <int N, class Inner>
__device__ inline void pair_sums(const Gradients<T>& to, const A* g, const A* x,
                                 const Stats<T>* stats, Pair<T>* parts, const Layout& kept,
                                 const Inner& inner, const Lines& lines, Int64 segment,
                                 Int64 segments) {
  enum { AHEAD = N > 1 ? 2 : 4 };
  __shared__ Pair<T> slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  const Int64 all = kept.n * segments;
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < all;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, s = segments == 1 ? 0 : r / kept.n, o = r - s * kept.n;
    const Places p = places_in<4>(kept, r < all ? o : 0);
    const Int64 begin = s * segment, n = inner.count();
    const Int64 end = r >= all ? 0 : begin + segment < n ? begin + segment : n;
    Pair<T> pair = {0, 0};
    T v[AHEAD][N], d[AHEAD][N];
    Stats<T> here[AHEAD];
    sweep<AHEAD>(
        begin, end, seat.lane, lines.width,
        [&](int k, Int64 i) {
          const Places q = inner.at(i);
          load_as(v[k], x + p.at[0] + q.at[0], inner.singles & 1);
          load_as(d[k], g + p.at[1] + q.at[1], inner.singles & 2);
          here[k] = stats[p.at[2] + q.at[2]];
        },
        [&](int k, Int64) {
          for (int e = 0; e < N; ++e) {
            pair.a += d[k][e] * (v[k][e] - here[k].mean) * here[k].rstd;
            pair.b += d[k][e];
          }
        });
    pair = joined<AddingPairs>(slots, pair, lines, seat);
    if (r >= all || seat.lane) continue;
    if (segments > 1) {
      parts[r] = pair;
    } else {
      to.write(o, p.at[3], pair);
    }
  }
}
// Line o has the parts o, o + kept.n, ...
__device__ inline void pair_parts(const Gradients<T>& to, const Pair<T>* parts, const Layout& kept,
                                  const Lines& lines, Int64 segments) {
  enum { AHEAD = 4 };
  __shared__ Pair<T> slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 o = start + seat.line;
    Pair<T> pair = {0, 0}, part[AHEAD];
    sweep<AHEAD>(
        0, o < kept.n ? segments : 0, seat.lane, lines.width,
        [&](int k, Int64 s) { part[k] = parts[s * kept.n + o]; },
        [&](int k, Int64) { AddingPairs::join(pair, part[k]); });
    pair = joined<AddingPairs>(slots, pair, lines, seat);
    if (o < kept.n && seat.lane == 0) to.write(o, places_in<4>(kept, o).at[3], pair);
  }
}

// Statistics of channels out of moments (of dtypes A and O here), weight and bias.
__device__ inline void channels(Stats<T>* stats, const A* mean, const O* var, const W* weight,
                                const B* bias, const Layout& layout, double eps) {
  RB_FOR(c, layout.n) {
    const Places p = places_of(layout, c);
    const T weighs = weight ? As<T>::of(weight[p.at[2]]) : (T)1;
    const T shift = bias ? As<T>::of(bias[p.at[3]]) : (T)0;
    stats[c] = {As<T>::of(mean[p.at[0]]), 1 / sqrt(As<T>::of(var[p.at[1]]) + (T)eps), weighs, shift};
  }
}
// Elementwise results of channels. Strides of y, x and stats.
template <int N, class Inner>
__device__ inline void channel_norm(O* y, const A* x, const Stats<T>* stats, const Inner& all) {
  RB_FOR(i, all.count()) {
    const Places p = all.at(i);
    T v[N];
    Stats<T> s[N];
    load_as(v, x + p.at[1], all.singles & 2);
    for (int e = 0; e < N; ++e) s[e] = stats[p.at[2] + (all.singles & 4 ? 0 : e)];
    for (int e = 0; e < N; ++e) v[e] = (v[e] - s[e].mean) * (s[e].rstd * s[e].weight) + s[e].shift;
    store_as(y + p.at[0], v);
  }
}
// Strides of dx, x, g and stats. part: 1 / count in training, else 0.
template <int N, class Inner>
__device__ inline void channel_dx(O* dx, const A* g, const A* x, const Stats<T>* stats,
                                  const Pair<T>* sums, const Inner& all, double part) {
  RB_FOR(i, all.count()) {
    const Places p = all.at(i);
    T d[N], v[N];
    load_as(d, g + p.at[2], all.singles & 4);
    if (part != 0) load_as(v, x + p.at[1], all.singles & 2);
    for (int e = 0; e < N; ++e) {
      const Int64 c = p.at[3] + (all.singles & 8 ? 0 : e);
      const Stats<T> s = stats[c];
      if (part != 0) {
        const Pair<T> sum = sums[c];
        const T y = (v[e] - s.mean) * s.rstd;
        d[e] = d[e] - sum.b * (T)part - y * (sum.a * (T)part);
      }
      d[e] *= s.rstd * s.weight;
    }
    store_as(dx + p.at[0], d);
  }
}

#define RB_NORM(RMS, N, HELD, INNER)                                                             \
  extern "C" __global__ void __launch_bounds__(RB_MOST_THREADS, 1)                                  \
      rb_kernel(O* y, const A* x, const W* weight, const B* bias, const Layout kept,             \
                const INNER inner, const Lines lines, double eps) {                              \
    norm<RMS, N, HELD>(y, x, weight, bias, kept, inner, lines, eps);                             \
  }
#define RB_NORM_DX(RMS, SUMS, N, HELD, INNER)                                                    \
  extern "C" __global__ void __launch_bounds__(RB_MOST_THREADS, 1)                                  \
      rb_kernel(O* dx, const A* g, const A* x, const W* weight, Stats<T>* stats, Pair<T>* parts, \
                const Layout kept, const INNER inner, const Layout where, const Lines lines,     \
                double eps) {                                                                    \
    norm_dx<RMS, SUMS, N, HELD>(dx, g, x, weight, stats, parts, kept, inner, where, lines, eps); \
  }
#define RB_PAIR_SUMS(N, HELD, INNER)                                                             \
  extern "C" __global__ void rb_kernel(const Gradients<T> to, const A* g, const A* x,            \
                                       const Stats<T>* stats, Pair<T>* parts, const Layout kept, \
                                       const INNER inner, const Lines lines, Int64 segment,      \
                                       Int64 segments) {                                         \
    pair_sums<N>(to, g, x, stats, parts, kept, inner, lines, segment, segments);                 \
  }
#define RB_PAIR_PARTS                                                                            \
  extern "C" __global__ void rb_kernel(const Gradients<T> to, const Pair<T>* parts,              \
                                       const Layout kept, const Lines lines, Int64 segments) {   \
    pair_parts(to, parts, kept, lines, segments);                                                \
  }
#define RB_CHANNELS                                                                              \
  extern "C" __global__ void rb_kernel(Stats<T>* stats, const A* mean, const O* var,             \
                                       const W* weight, const B* bias, const Layout layout,      \
                                       double eps) {                                             \
    channels(stats, mean, var, weight, bias, layout, eps);                                       \
  }
#define RB_CHANNEL_NORM(N, HELD, INNER)                                                          \
  extern "C" __global__ void rb_kernel(O* y, const A* x, const Stats<T>* stats, const INNER all) { \
    channel_norm<N>(y, x, stats, all);                                                           \
  }
#define RB_CHANNEL_DX(N, HELD, INNER)                                                            \
  extern "C" __global__ void rb_kernel(O* dx, const A* g, const A* x, const Stats<T>* stats,     \
                                       const Pair<T>* sums, const INNER all, double part) {      \
    channel_dx<N>(dx, g, x, stats, sums, all, part);                                             \
  }

// Reductions: each thread goes through its part of a line's elements by a fold, then the threads'
// parts are joined. Where lines are few, they are cut into segments whose states a second launch
// joins. Before it stand A (elements), T (computed in), O (results) and D (second results).
#include "lines.cuh"
struct Finish {  // twin of rbcuda's
  double count, number;
};
template <class T>
struct SumFold {
  typedef T State;
  static __device__ State start() { return As<T>::of(0); }
  static __device__ void step(State& s, T v, Int64) { s = (T)(s + v); }
  static __device__ void join(State& s, const State& later) { s = (T)(s + later); }
  static __device__ void write(const State& s, const Finish&, O* out, D*, const Places& p) {
    out[p.at[0]] = As<O>::of(s);
  }
};
template <class T>
struct MeanFold : SumFold<T> {
  static __device__ void write(const T& s, const Finish& f, O* out, D*, const Places& p) {
    out[p.at[0]] = As<O>::of((T)(s / As<T>::of(f.count)));
  }
};
template <class T>
struct ProductFold : SumFold<T> {
  static __device__ T start() { return As<T>::of(1); }
  static __device__ void step(T& s, T v, Int64) { s = (T)(s * v); }
  static __device__ void join(T& s, const T& later) { s = (T)(s * later); }
};
struct AnyFold : SumFold<bool> {
  static __device__ void step(bool& s, bool v, Int64) { s = s || v; }
  static __device__ void join(bool& s, const bool& later) { s = s || later; }
};
struct EveryFold : SumFold<bool> {
  static __device__ bool start() { return true; }
  static __device__ void step(bool& s, bool v, Int64) { s = s && v; }
  static __device__ void join(bool& s, const bool& later) { s = s && later; }
};
struct CountFold : SumFold<Int64> {
  static __device__ void step(Int64& s, bool v, Int64) { s += v; }
};

// NaN wins.
template <class T, int LARGEST>
__device__ inline bool beats(T v, T best) {
  return (LARGEST ? v > best : v < best) || v != v;
}
template <class T, class Start, int LARGEST>
struct ExtremeFold : SumFold<T> {
  static __device__ T start() { return Start::of(); }
  static __device__ void step(T& s, T v, Int64) {
    if (beats<T, LARGEST>(v, s)) s = v;
  }
  static __device__ void join(T& s, const T& later) { step(s, later, 0); }
};

// The first place of the extreme value, which `out` may want, too.
template <class T, int LARGEST>
struct PlaceFold {
  struct State {
    T value;
    Int64 at;
  };
  static __device__ State start() { return {0, -1}; }
  static __device__ void step(State& s, T v, Int64 at) {
    const State one = {v, at};
    join(s, one);
  }
  static __device__ void join(State& s, const State& other) {
    if (other.at < 0) return;
    const bool same = other.value == s.value || (other.value != other.value && s.value != s.value);
    const bool better =
        same ? other.at < s.at : s.value == s.value && beats<T, LARGEST>(other.value, s.value);
    if (s.at < 0 || better) s = other;
  }
  static __device__ void write(const State& s, const Finish&, O* out, D* places, const Places& p) {
    if (out) out[p.at[0]] = As<O>::of(s.value);
    places[p.at[2]] = As<D>::of(s.at);
  }
};

// Mean and sum of squared deviations, merged pairwise (Chan, Golub, LeVeque 1979).
template <class T>
struct MomentsFold {
  struct State {
    T mean, squares, count;
  };
  static __device__ State start() { return {0, 0, 0}; }
  static __device__ void join(State& s, const State& later) {
    if (later.count == 0) return;
    if (s.count == 0) {
      s = later;
      return;
    }
    const T count = s.count + later.count, apart = later.mean - s.mean, part = later.count / count;
    s.squares += later.squares + apart * apart * (s.count * part);
    s.mean += apart * part;
    s.count = count;
  }
  // Divided by the count less the correction; the mean goes to `means` if wanted.
  static __device__ void write(const State& s, const Finish& f, O* out, D* means, const Places& p) {
    const double freedom = f.count > f.number ? f.count - f.number : 0;
    out[p.at[0]] = As<O>::of((T)(s.squares / (T)freedom));
    if (means) means[p.at[2]] = As<D>::of(s.count == 0 ? (T)NAN : s.mean);
  }
};

template <class T>
struct LogSumExpFold {
  typedef Exponentials<T> State;
  static __device__ State start() { return State::none(); }
  static __device__ void step(State& s, T v, Int64) { s.add(v); }
  static __device__ void join(State& s, const State& later) { State::join(s, later); }
  static __device__ void write(const State& s, const Finish&, O* out, D*, const Places& p) {
    out[p.at[0]] = As<O>::of(s.logarithm());
  }
};

// The elements of a load, the first of which is at place `at`.
template <class Fold, class State, class T, int N>
__device__ inline void step_all(Fold*, State& s, const T (&v)[N], Int64 at) {
  for (int e = 0; e < N; ++e) Fold::step(s, v[e], at + e);
}
// The moments of a pack are computed in two passes, with one division for the whole pack.
template <class T, class State, int N>
__device__ inline void step_all(MomentsFold<T>*, State& s, const T (&v)[N], Int64 at) {
  State pack = {0, 0, N};
  for (int e = 0; e < N; ++e) pack.mean += v[e];
  pack.mean /= N;
  for (int e = 0; e < N; ++e) pack.squares += (v[e] - pack.mean) * (v[e] - pack.mean);
  MomentsFold<T>::join(s, pack);
}

// kept: strides of out, x and second; inner: of (nothing,) x. States go to `parts` if there are
// several segments, of `segment` loads of N elements.
template <class Fold, int N, class Inner>
__device__ inline void reduce(O* out, D* second, const A* x, typename Fold::State* parts,
                              const Layout& kept, const Inner& inner, const Lines& lines,
                              Int64 segment, Int64 segments, const Finish& finish) {
  typedef typename Fold::State State;
  enum { AHEAD = N == 1 ? 8 : 4 };
  __shared__ State slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  const Int64 all = kept.n * segments;
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < all;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, s = segments == 1 ? 0 : r / kept.n, o = r - s * kept.n;
    const bool here = r < all;
    const Places p = places_in<3>(kept, here ? o : 0);
    const A* from = x + p.at[1];
    const Int64 begin = s * segment, n = inner.count();
    const Int64 end = !here ? 0 : begin + segment < n ? begin + segment : n;
    State state = Fold::start();
    Pack<A, N> held[AHEAD];
    sweep<AHEAD>(
        begin, end, seat.lane, lines.width,
        [&](int k, Int64 i) { held[k] = load_pack<N>(from + inner.at(i).at[1]); },
        [&](int k, Int64 i) {
          T v[N];
          for (int e = 0; e < N; ++e) v[e] = As<T>::of(held[k].at[e]);
          step_all((Fold*)0, state, v, i * N);
        });
    state = joined<Fold>(slots, state, lines, seat);
    if (!here || seat.lane) continue;
    if (segments > 1) {
      parts[r] = state;
    } else {
      Fold::write(state, finish, out, second, p);
    }
  }
}
template <class Fold>
__device__ inline void reduce_parts(O* out, D* second, const typename Fold::State* parts,
                                    const Layout& kept, const Lines& lines, Int64 segments,
                                    const Finish& finish) {
  typedef typename Fold::State State;
  enum { AHEAD = 4 };
  __shared__ State slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 o = start + seat.line;
    State state = Fold::start(), part[AHEAD];
    sweep<AHEAD>(
        0, o < kept.n ? segments : 0, seat.lane, lines.width,
        [&](int k, Int64 s) { part[k] = parts[s * kept.n + o]; },
        [&](int k, Int64) { Fold::join(state, part[k]); });
    state = joined<Fold>(slots, state, lines, seat);
    if (o < kept.n && seat.lane == 0)
      Fold::write(state, finish, out, second, places_in<3>(kept, o));
  }
}

#define RB_REDUCE(N, HELD, INNER)                                                            \
  extern "C" __global__ void rb_kernel(O* out, D* second, const A* x, Fold::State* parts,    \
                                       const Layout kept, const INNER inner,                 \
                                       const Lines lines, Int64 segment, Int64 segments,     \
                                       const Finish finish) {                                \
    reduce<Fold, N>(out, second, x, parts, kept, inner, lines, segment, segments, finish);   \
  }
#define RB_REDUCE_PARTS                                                                     \
  extern "C" __global__ void rb_kernel(O* out, D* second, const Fold::State* parts,         \
                                       const Layout kept, const Lines lines, Int64 segments, \
                                       const Finish finish) {                               \
    reduce_parts<Fold>(out, second, parts, kept, lines, segments, finish);                  \
  }

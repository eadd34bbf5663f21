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
  static __device__ void step(State& s, T v, Int64) {
    s.count += 1;
    const T before = v - s.mean;
    s.mean += before / s.count;
    s.squares += before * (v - s.mean);
  }
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

// kept: strides of out, x and second; inner: of (nothing,) x. States go to `parts` if there are
// several segments. vector: elements lie one after another from addresses that 16 divides.
template <class Fold>
__device__ inline void reduce(O* out, D* second, const A* x, typename Fold::State* parts,
                              const Layout& kept, const Layout& inner, const Lines& lines,
                              Int64 segment, Int64 segments, int vector, const Finish& finish) {
  typedef typename Fold::State State;
  enum { EACH = 16 / sizeof(A) };
  __shared__ State slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  const Int64 all = kept.n * segments;
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < all;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, s = segments == 1 ? 0 : r / kept.n, o = r - s * kept.n;
    const bool here = r < all;
    Places p = {{0, 0, 0, 0}};
    State state = Fold::start();
    if (here) {
      p = places_in<3>(kept, o);
      const A* from = x + p.at[1];
      const Int64 begin = s * segment;
      const Int64 end = begin + segment < inner.n ? begin + segment : inner.n;
      Int64 i = begin + seat.lane;
      if (vector) {
        const Int64 packs = (end - begin) / EACH;
        #pragma unroll 4
        for (Int64 k = seat.lane; k < packs; k += lines.width) {
          const Pack<A, EACH> held = load_pack<EACH>(from + begin + k * EACH);
          for (int e = 0; e < EACH; ++e)
            Fold::step(state, As<T>::of(held.at[e]), begin + k * EACH + e);
        }
        i = begin + packs * EACH + seat.lane;
      }
      for (; i < end; i += lines.width)
        Fold::step(state, As<T>::of(from[places_in<2>(inner, i).at[1]]), i);
    }
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
  __shared__ State slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 o = start + seat.line;
    State state = Fold::start();
    for (Int64 s = seat.lane; o < kept.n && s < segments; s += lines.width)
      Fold::join(state, parts[s * kept.n + o]);
    state = joined<Fold>(slots, state, lines, seat);
    if (o < kept.n && seat.lane == 0)
      Fold::write(state, finish, out, second, places_in<3>(kept, o));
  }
}

#define RB_REDUCE                                                                               \
  extern "C" __global__ void rb_kernel(O* out, D* second, const A* x, Fold::State* parts,       \
                                       const Layout kept, const Layout inner, const Lines lines, \
                                       Int64 segment, Int64 segments, int vector,               \
                                       const Finish finish) {                                   \
    reduce<Fold>(out, second, x, parts, kept, inner, lines, segment, segments, vector, finish); \
  }
#define RB_REDUCE_PARTS                                                                     \
  extern "C" __global__ void rb_kernel(O* out, D* second, const Fold::State* parts,         \
                                       const Layout kept, const Lines lines, Int64 segments, \
                                       const Finish finish) {                               \
    reduce_parts<Fold>(out, second, parts, kept, lines, segments, finish);                  \
  }

// softmax, its logarithm and their derivatives along lines. Before it stand A (x, or the gradient
// and the result), T (computed in) and O (results). N is the elements of a load, HELD the loads of a
// line that a thread holds in registers (0: the line is read again).
#define RB_CONTRACTED  // see compile.h
#include "lines.cuh"

// Strides of out and x. Maximum and sum of lines that are not held are found in one pass.
template <int LOGARITHM, int N, int HELD>
__device__ inline void softmax(O* out, const A* x, const Layout& kept, const Strided& inner,
                               const Lines& lines) {
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, length = r < kept.n ? inner.n : 0;
    const Places p = places_in<2>(kept, r < kept.n ? r : 0);
    const Int64 to = inner.steps[0], from = inner.steps[1];
    const A* line = x + p.at[1];
    O* result = out + p.at[0];
    // An infinite maximum makes all of the line NaN.
    if constexpr (HELD > 0) {
      __shared__ T slots[RB_BLOCK];
      T v[HELD][N], top = -(T)INFINITY, sum = 0;
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64 i) {
        load_as(v[k], line + i * from, inner.singles & 2);
        for (int e = 0; e < N; ++e) top = v[k][e] > top ? v[k][e] : top;
      });
      top = joined<Larger>(slots, top, lines, seat);
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64) {
        for (int e = 0; e < N; ++e) {
          v[k][e] -= top;
          const T part = exp(v[k][e]);
          sum += part;
          if (!LOGARITHM) v[k][e] = part;
        }
      });
      sum = joined<Adding>(slots, sum, lines, seat);
      const T logarithm = log(sum), part = 1 / sum;
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64 i) {
        for (int e = 0; e < N; ++e)
          v[k][e] = LOGARITHM ? v[k][e] - logarithm : v[k][e] * part;
        store_as(result + i * to, v[k]);
      });
    } else {
      __shared__ Exponentials<T> slots[RB_BLOCK];
      const Int64 step = from / N;
      Exponentials<T> all = Exponentials<T>::none();
      walk<T>(line, step, length * N, step == 1, seat.lane, lines.width,
              [&](const auto& v, Int64) { all.add(v); });
      all = joined<Exponentials<T> >(slots, all, lines, seat);
      const T sum = all.sum + (all.top - all.top), logarithm = log(sum), part = 1 / sum;
      const bool packs = step == 1 && goes_along(line, result, to / N);
      walk<T>(line, step, length * N, packs, seat.lane, lines.width, [&](auto v, Int64 i) {
        for (T& value : v.at) {
          value -= all.top;
          value = LOGARITHM ? value - logarithm : exp(value) * part;
        }
        put(result, to / N, i, v);
      });
    }
  }
}

// Strides of out, of the gradient g and of the result y.
template <int LOGARITHM, int N, int HELD>
__device__ inline void softmax_vjp(O* out, const A* g, const A* y, const Layout& kept,
                                   const Strided& inner, const Lines& lines) {
  __shared__ T slots[RB_BLOCK];
  const Seat seat = seat_of(lines);
  for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;
       start += (Int64)gridDim.x * lines.across) {
    const Int64 r = start + seat.line, length = r < kept.n ? inner.n : 0;
    const Places p = places_in<3>(kept, r < kept.n ? r : 0);
    const Int64 to = inner.steps[0], dg = inner.steps[1], dy = inner.steps[2];
    const A *gradient = g + p.at[1], *given = y + p.at[2];
    O* result = out + p.at[0];
    T sum = 0;
    const auto add = [&](T v, T w) { sum += LOGARITHM ? v : v * w; };
    const auto finish = [&](T v, T w) { return LOGARITHM ? v - exp(w) * sum : w * (v - sum); };
    if constexpr (HELD > 0) {
      T v[HELD][N], w[HELD][N];
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64 i) {
        load_as(v[k], gradient + i * dg, inner.singles & 2);
        load_as(w[k], given + i * dy, inner.singles & 4);
      });
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64) {
        for (int e = 0; e < N; ++e) add(v[k][e], w[k][e]);
      });
      sum = joined<Adding>(slots, sum, lines, seat);
      each_held<HELD>(length, seat.lane, lines.width, [&](int k, Int64 i) {
        for (int e = 0; e < N; ++e) v[k][e] = finish(v[k][e], w[k][e]);
        store_as(result + i * to, v[k]);
      });
    } else {
      const Int64 step = dg / N;
      bool packs = step == 1 && goes_along(gradient, given, dy / N);
      walk<T>(gradient, step, length * N, packs, seat.lane, lines.width,
              [&](const auto& v, Int64 i) {
                const auto w = beside(v, given, dy / N, i);
                for (int e = 0; e < v.count; ++e) add(v.at[e], w.at[e]);
              });
      sum = joined<Adding>(slots, sum, lines, seat);
      packs = packs && goes_along(gradient, result, to / N);
      walk<T>(gradient, step, length * N, packs, seat.lane, lines.width, [&](auto v, Int64 i) {
        const auto w = beside(v, given, dy / N, i);
        for (int e = 0; e < v.count; ++e) v.at[e] = finish(v.at[e], w.at[e]);
        put(result, to / N, i, v);
      });
    }
  }
}

#define RB_SOFTMAX(LOGARITHM, N, HELD, INNER)                                                     \
  extern "C" __global__ void __launch_bounds__(RB_MOST_THREADS, 1) rb_kernel(                        \
      O* out, const A* x, const Layout kept, const INNER inner, const Lines lines) {              \
    softmax<LOGARITHM, N, HELD>(out, x, kept, inner, lines);                                      \
  }
#define RB_SOFTMAX_VJP(LOGARITHM, N, HELD, INNER)                                                 \
  extern "C" __global__ void __launch_bounds__(RB_MOST_THREADS, 1) rb_kernel(                        \
      O* out, const A* g, const A* y, const Layout kept, const INNER inner, const Lines lines) {  \
    softmax_vjp<LOGARITHM, N, HELD>(out, g, y, kept, inner, lines);                               \
  }

// softmax, its logarithm and their derivatives along lines. Before it stand A (x, or the gradient
// and the result), T (computed in) and O (results).
#include "lines.cuh"

// Maximum and sum in one pass, results in a second. Strides of out and x.
#define RB_SOFTMAX(LOGARITHM)                                                                   \
  extern "C" __global__ void rb_kernel(O* out, const A* x, const Layout kept,                   \
                                       const Layout inner, const Lines lines) {                 \
    __shared__ Exponentials<T> slots[RB_BLOCK];                                                 \
    const Seat seat = seat_of(lines);                                                           \
    for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;                        \
         start += (Int64)gridDim.x * lines.across) {                                            \
      const Int64 r = start + seat.line, length = r < kept.n ? inner.n : 0;                     \
      const Places p = places_in<2>(kept, r);                                                   \
      const Int64 to = inner.strides[0][0], from = inner.strides[1][0];                         \
      Exponentials<T> all = Exponentials<T>::none();                                            \
      const A* line = x + p.at[1];                                                              \
      O* result = out + p.at[0];                                                                \
      walk<T>(line, from, length, from == 1, seat.lane, lines.width,                            \
              [&](const auto& v, Int64) { all.add(v); });                                       \
      all = joined<Exponentials<T> >(slots, all, lines, seat);                                  \
      /* An infinite maximum makes all of the line NaN. */                                      \
      const T sum = all.sum + (all.top - all.top), logarithm = log(sum), part = 1 / sum;        \
      const bool packs = from == 1 && goes_along(line, result, to);                             \
      walk<T>(line, from, length, packs, seat.lane, lines.width, [&](auto v, Int64 i) {         \
        for (T& value : v.at) {                                                                 \
          value -= all.top;                                                                     \
          value = LOGARITHM ? value - logarithm : exp(value) * part;                            \
        }                                                                                       \
        put(result, to, i, v);                                                                  \
      });                                                                                       \
    }                                                                                           \
  }

// Strides of out, of the gradient g and of the result y.
#define RB_SOFTMAX_VJP(LOGARITHM)                                                               \
  extern "C" __global__ void rb_kernel(O* out, const A* g, const A* y, const Layout kept,       \
                                       const Layout inner, const Lines lines) {                 \
    __shared__ T slots[RB_BLOCK];                                                               \
    const Seat seat = seat_of(lines);                                                           \
    for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;                        \
         start += (Int64)gridDim.x * lines.across) {                                            \
      const Int64 r = start + seat.line, length = r < kept.n ? inner.n : 0;                     \
      const Places p = places_in<3>(kept, r);                                                   \
      const Int64 to = inner.strides[0][0], dg = inner.strides[1][0], dy = inner.strides[2][0]; \
      T sum = 0;                                                                                \
      const A *gradient = g + p.at[1], *given = y + p.at[2];                                    \
      O* result = out + p.at[0];                                                                \
      bool packs = dg == 1 && goes_along(gradient, given, dy);                                  \
      walk<T>(gradient, dg, length, packs, seat.lane, lines.width, [&](const auto& v, Int64 i) { \
        const auto w = beside(v, given, dy, i);                                                 \
        for (int e = 0; e < v.count; ++e) sum += LOGARITHM ? v.at[e] : v.at[e] * w.at[e];       \
      });                                                                                       \
      sum = joined<Adding>(slots, sum, lines, seat);                                            \
      packs = packs && goes_along(gradient, result, to);                                        \
      walk<T>(gradient, dg, length, packs, seat.lane, lines.width, [&](auto v, Int64 i) {       \
        const auto w = beside(v, given, dy, i);                                                 \
        for (int e = 0; e < v.count; ++e)                                                       \
          v.at[e] = LOGARITHM ? v.at[e] - exp(w.at[e]) * sum : w.at[e] * (v.at[e] - sum);       \
        put(result, to, i, v);                                                                  \
      });                                                                                       \
    }                                                                                           \
  }

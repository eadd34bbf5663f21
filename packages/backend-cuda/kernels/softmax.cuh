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
      for (Int64 i = seat.lane; i < length; i += lines.width)                                   \
        all.add(As<T>::of(x[p.at[1] + i * from]));                                              \
      all = joined<Exponentials<T> >(slots, all, lines, seat);                                  \
      /* An infinite maximum makes all of the line NaN. */                                      \
      const T sum = all.sum + (all.top - all.top), logarithm = log(sum), part = 1 / sum;        \
      for (Int64 i = seat.lane; i < length; i += lines.width) {                                 \
        const T v = As<T>::of(x[p.at[1] + i * from]) - all.top;                                 \
        out[p.at[0] + i * to] = As<O>::of(LOGARITHM ? v - logarithm : exp(v) * part);           \
      }                                                                                         \
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
      for (Int64 i = seat.lane; i < length; i += lines.width) {                                 \
        const T v = As<T>::of(g[p.at[1] + i * dg]);                                             \
        sum += LOGARITHM ? v : v * As<T>::of(y[p.at[2] + i * dy]);                              \
      }                                                                                         \
      sum = joined<Adding>(slots, sum, lines, seat);                                            \
      for (Int64 i = seat.lane; i < length; i += lines.width) {                                 \
        const T v = As<T>::of(g[p.at[1] + i * dg]), w = As<T>::of(y[p.at[2] + i * dy]);         \
        out[p.at[0] + i * to] = As<O>::of(LOGARITHM ? v - exp(w) * sum : w * (v - sum));        \
      }                                                                                         \
    }                                                                                           \
  }

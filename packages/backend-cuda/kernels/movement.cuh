// Triangles, evenly spaced numbers, many tensors side by side.
// ---- before it stands E, elements of some size. layout: strides of out and x; the last two
// dimensions have `rows` and `columns`.
#define RB_TRIANGLE(KEEPS)                                                                   \
  extern "C" __global__ void rb_kernel(E* out, const E* x, const Layout layout, Int64 rows,  \
                                       Int64 columns, Int64 diagonal) {                      \
    RB_FOR(i, layout.n) {                                                                    \
      const Places p = places_of(layout, i);                                                 \
      const Int64 above = i / columns, column = i - above * columns, row = above % rows;     \
      const Int64 edge = row + diagonal;                                                     \
      out[p.at[0]] = KEEPS ? x[p.at[1]] : E();                                               \
    }                                                                                        \
  }
// ---- before it stands O.
#define RB_EYE()                                                                             \
  extern "C" __global__ void rb_kernel(O* out, const Layout layout, Int64 columns) {         \
    RB_FOR(i, layout.n)                                                                      \
      out[places_of(layout, i).at[0]] = As<O>::of(i % columns == i / columns ? 1 : 0);       \
  }
// From both ends towards the middle, so that both are exact. T: double, or two of them.
template <class T>
__device__ inline T times(T a, double b) { return a * b; }
__device__ inline Complex<double> times(Complex<double> a, double b) {
  return {a.re * b, a.im * b};
}
#define RB_EVENLY()                                                                          \
  extern "C" __global__ void rb_kernel(O* out, Int64 n, Int64 stride, const T start,         \
                                       const T end, const T step) {                          \
    RB_FOR(i, n)                                                                             \
      out[i * stride] = As<O>::of(i < (n + 1) / 2 ? start + times(step, (double)i)           \
                                                  : end - times(step, (double)(n - 1 - i))); \
  }
// ---- up to 32 tensors without gaps, whose parts of `out` lie one after another: rows of them, each
// part begin[k + 1] - begin[k] units of E wide.
struct Parts {  // twin of rbcuda's
  const E* from[32];
  Int64 begin[33];
  int count, reserved;
};
#define RB_JOIN_PARTS()                                                                      \
  extern "C" __global__ void rb_kernel(E* out, const Parts parts, Int64 rows, Int64 row_step) { \
    const Int64 first = parts.begin[0], width = parts.begin[parts.count] - first;            \
    RB_FOR(i, rows * width) {                                                                \
      const Int64 row = i / width, at = i - row * width + first;                             \
      int low = 0, high = parts.count;                                                       \
      while (high - low > 1) {                                                               \
        const int middle = (low + high) / 2;                                                 \
        if (at < parts.begin[middle]) high = middle;                                         \
        else low = middle;                                                                   \
      }                                                                                      \
      const Int64 own = parts.begin[low + 1] - parts.begin[low];                             \
      out[row * row_step + at] = parts.from[low][row * own + at - parts.begin[low]];         \
    }                                                                                        \
  }

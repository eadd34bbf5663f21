// Scans along lines. Before it stand A, the elements, and T, which is computed in. Floats are summed
// in float64, as the CPU does.
#define RB_SCAN_BLOCK 256
#define RB_SCAN_ITEMS 4

struct JoinOr {
  __device__ bool operator()(bool a, bool b) const { return a || b; }
};
struct JoinAnd {
  __device__ bool operator()(bool a, bool b) const { return a && b; }
};
// acc -> factor * acc + term; `b` comes after `a`.
struct Affine {
  T factor, term;
};
struct JoinAffine {
  __device__ Affine operator()(Affine a, Affine b) const {
    const Affine result = {(T)(a.factor * b.factor), (T)((T)(b.factor * a.term) + b.term)};
    return result;
  }
};
struct ScanLine {  // twin of rbcuda's: steps of out, x and y along a line
  Int64 n, segment, segments, steps[3];
};
__device__ inline T loaded(T*, const A* x, const A* y, Int64 i, const ScanLine& line) {
  return As<T>::of(x[i * line.steps[1]]);
}
__device__ inline Affine loaded(Affine*, const A* x, const A* y, Int64 i, const ScanLine& line) {
  return {As<T>::of(x[i * line.steps[1]]), As<T>::of(y[i * line.steps[2]])};
}
// What a scan begins with.
__device__ inline T start_of(T*, JoinSum) { return As<T>::of(0); }
__device__ inline T start_of(T*, JoinProduct) { return As<T>::of(1); }
__device__ inline bool start_of(bool*, JoinOr) { return false; }
__device__ inline bool start_of(bool*, JoinAnd) { return true; }
__device__ inline Affine start_of(Affine*, JoinAffine) { return {As<T>::of(1), As<T>::of(0)}; }
__device__ inline T result_of(T s) { return s; }
__device__ inline T result_of(Affine s) { return s.term; }

// Few elements a line, or lines that lie side by side: a thread for each line.
#define RB_SCAN_LINES(S, JOIN)                                                                 \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,     \
                                       const ScanLine line) {                                  \
    RB_FOR(l, lines.n) {                                                                       \
      const Places p = places_of(lines, l);                                                    \
      S all = start_of((S*)0, JOIN());                                                         \
      for (Int64 i = 0; i < line.n; ++i) {                                                     \
        all = JOIN()(all, loaded((S*)0, x + p.at[1], y + p.at[2], i, line));                   \
        out[p.at[0] + i * line.steps[0]] = As<A>::of(result_of(all));                          \
      }                                                                                        \
    }                                                                                          \
  }

// A block for each segment of a line. Where lines have several, a first launch leaves the sums of
// the segments in `states`, a second one begins with those before its own.
#define RB_SCAN_SEGMENTS(S, JOIN)                                                              \
  extern "C" __global__ void rb_kernel(A* out, const A* x, const A* y, const Layout lines,     \
                                       const ScanLine line, S* states, int writes) {           \
    const JOIN join = JOIN();                                                                  \
    const S start = start_of((S*)0, join);                                                     \
    const int thread = threadIdx.x;                                                            \
    for (Int64 b = blockIdx.x; b < lines.n * line.segments; b += gridDim.x) {                  \
      const Int64 l = b / line.segments, own = b - l * line.segments;                          \
      const Places p = places_of(lines, l);                                                    \
      const A *from = x + p.at[1], *also = y + p.at[2];                                        \
      A* to = out + p.at[0];                                                                   \
      const Int64 begin = own * line.segment;                                                  \
      const Int64 end = begin + line.segment < line.n ? begin + line.segment : line.n;         \
      S carry = start, total;                                                                  \
      if (writes && own > 0)                                                                   \
        block_scan(thread < own ? states[l * line.segments + thread] : start, join, &carry);   \
      for (Int64 at = begin; at < end; at += blockDim.x * RB_SCAN_ITEMS) {                     \
        const Int64 first = at + (Int64)thread * RB_SCAN_ITEMS;                                \
        S items[RB_SCAN_ITEMS], all = start;                                                   \
        for (int k = 0; k < RB_SCAN_ITEMS; ++k) {                                              \
          if (first + k < end) all = join(all, loaded((S*)0, from, also, first + k, line));    \
          items[k] = all;                                                                      \
        }                                                                                      \
        const S before = join(carry, block_scan_before(all, join, start, &total));             \
        for (int k = 0; writes && k < RB_SCAN_ITEMS; ++k) {                                    \
          if (first + k < end)                                                                 \
            to[(first + k) * line.steps[0]] = As<A>::of(result_of(join(before, items[k])));    \
        }                                                                                      \
        carry = join(carry, total);                                                            \
      }                                                                                        \
      if (!writes && thread == 0) states[b] = carry;                                           \
    }                                                                                          \
  }

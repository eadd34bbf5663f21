// Cross-entropy and negative log likelihood of class indices. Before it stand A (scores), T
// (computed in), W (weights of classes), O (results) and G (gradients of losses).
#define RB_CONTRACTED  // see compile.h
#include "lines.cuh"
#include "report.cuh"
struct Task {  // twin of rbcuda's
  Int64 ignored, weight_step;
  double smoothing;
  Finder finder;
};
// Nothing is read at a class out of range: the host hears of it.
__device__ inline bool is_class(Int64 target, Int64 classes, const Task& task) {
  if (target == task.ignored) return false;
  if (target >= 0 && target < classes) return true;
  found(task.finder, target, 0);
  return false;
}
template <class T>
__device__ inline T weight_of(const W* weight, Int64 c, Int64 step) {
  return weight ? As<T>::of(weight[c * step]) : (T)1;
}

// Strides of x, target and lse (which may be null); losses and weights by the positions' numbers.
#define RB_CROSS_ENTROPY                                                                       \
  extern "C" __global__ void rb_kernel(T* losses, T* weights, O* lse, const A* x,              \
                                       const Int64* target, const W* weight, const Layout kept, \
                                       const Layout inner, const Lines lines, const Task task) { \
    __shared__ Exponentials<T> slots[RB_BLOCK];                                                \
    __shared__ Pair<T> pairs[RB_BLOCK];                                                        \
    const Seat seat = seat_of(lines);                                                          \
    const Int64 step = inner.strides[0][0];                                                    \
    for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;                       \
         start += (Int64)gridDim.x * lines.across) {                                           \
      const Int64 r = start + seat.line, n = r < kept.n ? inner.n : 0;                         \
      const Places p = places_of(kept, r < kept.n ? r : 0);                                    \
      const A* scores = x + p.at[0];                                                           \
      Exponentials<T> all = Exponentials<T>::none();                                           \
      Pair<T> smooth = {0, 0}; /* weighted scores, weights */                                  \
      walk<T>(scores, step, n, step == 1, seat.lane, lines.width, [&](const auto& v, Int64 c) { \
        all.add(v);                                                                            \
        if (task.smoothing == 0) return;                                                       \
        for (int e = 0; e < v.count; ++e) {                                                    \
          const T w = weight_of<T>(weight, c + e, task.weight_step);                           \
          smooth.a += w * v.at[e], smooth.b += w;                                              \
        }                                                                                      \
      });                                                                                      \
      all = joined<Exponentials<T> >(slots, all, lines, seat);                                 \
      if (task.smoothing != 0) smooth = joined<AddingPairs>(pairs, smooth, lines, seat);       \
      if (r >= kept.n || seat.lane) continue;                                                  \
      const T log_sum = all.logarithm();                                                       \
      lse[p.at[2]] = As<O>::of(log_sum);                                                       \
      const Int64 t = target[p.at[1]];                                                         \
      T loss = 0, w = 0;                                                                       \
      if (is_class(t, inner.n, task)) {                                                \
        w = weight_of<T>(weight, t, task.weight_step);                                         \
        loss = w * (log_sum - As<T>::of(scores[t * step]));                                    \
        if (task.smoothing != 0)                                                               \
          loss = loss * (T)(1 - task.smoothing) +                                              \
                 (T)(task.smoothing / inner.n) * (log_sum * smooth.b - smooth.a);              \
      }                                                                                        \
      losses[p.at[3]] = loss;                                                                  \
      weights[p.at[3]] = w;                                                                    \
    }                                                                                          \
  }

// The same of log-probabilities, one thread for each position.
#define RB_NLL                                                                                 \
  extern "C" __global__ void rb_kernel(T* losses, T* weights, const A* x, const Int64* target, \
                                       const W* weight, const Layout kept, const Layout inner, \
                                       const Task task) {                                      \
    for (Int64 r = RB_THREAD; r < kept.n; r += RB_THREADS) {                                   \
      const Places p = places_of(kept, r);                                                     \
      const Int64 t = target[p.at[1]];                                                         \
      T loss = 0, w = 0;                                                                       \
      if (is_class(t, inner.n, task)) {                                                \
        w = weight_of<T>(weight, t, task.weight_step);                                         \
        loss = -w * As<T>::of(x[p.at[0] + t * inner.strides[0][0]]);                           \
      }                                                                                        \
      losses[p.at[3]] = loss;                                                                  \
      weights[p.at[3]] = w;                                                                    \
    }                                                                                          \
  }

// One block: the sum of weights, and the sum or the mean of losses where `loss` is not null.
#define RB_LOSS_SUM(LOSS, TOTAL)                                                               \
  extern "C" __global__ void rb_kernel(LOSS* loss, TOTAL* total, const T* losses,              \
                                       const T* weights, Int64 n, int mean) {                  \
    Pair<double> sums = {0, 0};                                                                \
    for (Int64 i = threadIdx.x; i < n; i += blockDim.x)                                        \
      sums.a += losses[i], sums.b += weights[i];                                               \
    sums.a = block_reduce(sums.a, JoinSum());                                                  \
    sums.b = block_reduce(sums.b, JoinSum());                                                  \
    if (threadIdx.x) return;                                                                   \
    total[0] = As<TOTAL>::of(sums.b);                                                          \
    if (loss) loss[0] = As<LOSS>::of(mean ? sums.a / sums.b : sums.a);                         \
  }

// dx of cross-entropy. Strides of x, target, lse and g; of dx within `to`, which counts alike.
#define RB_CROSS_ENTROPY_DX                                                                    \
  extern "C" __global__ void rb_kernel(O* dx, const A* x, const Int64* target, const W* weight, \
                                       const D* lse, const G* g, const B* total,               \
                                       const Layout kept, const Layout inner, const Layout to, \
                                       const Layout to_inner, const Lines lines,               \
                                       const Task task) {                                      \
    __shared__ T slots[RB_BLOCK];                                                              \
    const Seat seat = seat_of(lines);                                                          \
    const Int64 step = inner.strides[0][0], to_step = to_inner.strides[1][0];                  \
    const T spread = (T)(task.smoothing / inner.n);                                            \
    for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;                       \
         start += (Int64)gridDim.x * lines.across) {                                           \
      const Int64 r = start + seat.line, n = r < kept.n ? inner.n : 0;                         \
      const Places p = places_of(kept, r < kept.n ? r : 0);                                    \
      const A* scores = x + p.at[0];                                                           \
      O* result = dx + places_in<2>(to, r < kept.n ? r : 0).at[1];                             \
      T weights = (T)inner.n;                                                                  \
      if (weight && task.smoothing != 0) {                                                     \
        T sum = 0;                                                                             \
        for (Int64 c = seat.lane; c < n; c += lines.width)                                     \
          sum += weight_of<T>(weight, c, task.weight_step);                                    \
        weights = joined<Adding>(slots, sum, lines, seat);                                     \
      }                                                                                        \
      if (r >= kept.n) continue;                                                               \
      const Int64 t = target[p.at[1]];                                                         \
      const bool counts = is_class(t, inner.n, task);                                  \
      T scale = counts ? As<T>::of(g[p.at[3]]) : (T)0;                                         \
      if (total) scale /= As<T>::of(total[0]);                                                 \
      const T picked = counts ? weight_of<T>(weight, t, task.weight_step) : (T)0;              \
      const T part = picked * (T)(1 - task.smoothing), top = As<T>::of(lse[p.at[2]]);          \
      const T soft = part + spread * weights;                                                  \
      const bool packs = step == 1 && goes_along(scores, result, to_step);                     \
      walk<T>(scores, step, n, packs, seat.lane, lines.width, [&](auto v, Int64 c) {           \
        for (int e = 0; e < v.count; ++e) {                                                    \
          T d = exp(v.at[e] - top) * soft - (c + e == t ? part : (T)0);                        \
          if (task.smoothing != 0) d -= spread * weight_of<T>(weight, c + e, task.weight_step); \
          v.at[e] = counts ? d * scale : (T)0;                                                 \
        }                                                                                      \
        put(result, to_step, c, v);                                                            \
      });                                                                                      \
    }                                                                                          \
  }

// dx of the negative log likelihood, zeros included. Strides of dx, target and g.
#define RB_NLL_DX                                                                              \
  extern "C" __global__ void rb_kernel(O* dx, const Int64* target, const W* weight, const G* g, \
                                       const B* total, const Layout kept, const Layout inner,  \
                                       const Lines lines, const Task task) {                   \
    const Seat seat = seat_of(lines);                                                          \
    for (Int64 start = (Int64)blockIdx.x * lines.across; start < kept.n;                       \
         start += (Int64)gridDim.x * lines.across) {                                           \
      const Int64 r = start + seat.line;                                                       \
      if (r >= kept.n) break;                                                                  \
      const Places p = places_of(kept, r);                                                     \
      const Int64 t = target[p.at[1]];                                                         \
      T v = 0;                                                                                 \
      if (is_class(t, inner.n, task)) {                                                \
        v = -As<T>::of(g[p.at[2]]) * weight_of<T>(weight, t, task.weight_step);                \
        if (total) v /= As<T>::of(total[0]);                                                   \
      }                                                                                        \
      for (Int64 c = seat.lane; c < inner.n; c += lines.width)                                 \
        dx[p.at[0] + c * inner.strides[0][0]] = As<O>::of(c == t ? v : (T)0);                  \
    }                                                                                          \
  }

// Reductions. A block of threads reduces one segment of the elements that belong to one result:
// each thread goes through every blockDim.x-th element, then the threads' parts are joined in a
// tree. Where results are few there are several segments each, whose parts a second launch joins.
// The order is fixed: results are the same in every run. Before it stand A (elements), T (computed
// in) and O (results).
#define RB_BLOCK 256
template <class T>
__device__ inline T larger(T a, T v) {
  return v > a || v != v ? v : a;
}
template <class T>
__device__ inline T smaller(T a, T v) {
  return v < a || v != v ? v : a;
}

// STEP and JOIN combine `all` and `v`; kept: strides of out and of x; inner: those of x.
#define RB_REDUCE(START, STEP, JOIN)                                                           \
  extern "C" __global__ void rb_kernel(O* out, const A* x, const Layout kept,                  \
                                       const Layout inner, Int64 segment, Int64 segments) {    \
    __shared__ T parts[RB_BLOCK];                                                              \
    const int thread = threadIdx.x;                                                            \
    for (Int64 r = blockIdx.x; r < kept.n * segments; r += gridDim.x) {                        \
      const Int64 o = r / segments, s = r - o * segments;                                      \
      const Places p = places_of(kept, o);                                                     \
      const Int64 begin = s * segment;                                                         \
      const Int64 end = begin + segment < inner.n ? begin + segment : inner.n;                 \
      T all = START;                                                                           \
      for (Int64 i = begin + thread; i < end; i += blockDim.x) {                               \
        const T v = As<T>::of(x[p.at[1] + places_of(inner, i).at[0]]);                         \
        all = STEP;                                                                            \
      }                                                                                        \
      parts[thread] = all;                                                                     \
      __syncthreads();                                                                         \
      for (int half = blockDim.x / 2; half > 0; half /= 2) {                                   \
        if (thread < half) {                                                                   \
          const T v = parts[thread + half];                                                    \
          all = JOIN;                                                                          \
          parts[thread] = all;                                                                 \
        }                                                                                      \
        __syncthreads();                                                                       \
      }                                                                                        \
      if (thread == 0) out[p.at[0] + s] = As<O>::of(all);                                      \
      __syncthreads();                                                                         \
    }                                                                                          \
  }

// The first place of the extreme value; NaN is the most extreme. `values` may be null. kept:
// strides of values, of x and of places.
#define RB_REDUCE_PLACE(BETTER)                                                                \
  template <class T>                                                                           \
  __device__ inline bool goes_before(T v, Int64 at, T best, Int64 place) {                     \
    if (at < 0 || place < 0) return place < 0 && at >= 0;                                      \
    if (v != v || best != best) return v != v && (best == best || at < place);                 \
    return BETTER || (v == best && at < place);                                                \
  }                                                                                            \
  extern "C" __global__ void rb_kernel(O* values, const A* x, Int64* places,                   \
                                       const Layout kept, const Layout inner) {                \
    __shared__ T parts[RB_BLOCK];                                                              \
    __shared__ Int64 at[RB_BLOCK];                                                             \
    const int thread = threadIdx.x;                                                            \
    for (Int64 r = blockIdx.x; r < kept.n; r += gridDim.x) {                                   \
      const Places p = places_of(kept, r);                                                     \
      T best = 0;                                                                              \
      Int64 place = -1;                                                                        \
      for (Int64 i = thread; i < inner.n; i += blockDim.x) {                                   \
        const T v = As<T>::of(x[p.at[1] + places_of(inner, i).at[0]]);                         \
        if (goes_before(v, i, best, place)) best = v, place = i;                               \
      }                                                                                        \
      parts[thread] = best;                                                                    \
      at[thread] = place;                                                                      \
      __syncthreads();                                                                         \
      for (int half = blockDim.x / 2; half > 0; half /= 2) {                                   \
        if (thread < half &&                                                                   \
            goes_before(parts[thread + half], at[thread + half], parts[thread], at[thread])) { \
          parts[thread] = parts[thread + half];                                                \
          at[thread] = at[thread + half];                                                      \
        }                                                                                      \
        __syncthreads();                                                                       \
      }                                                                                        \
      if (thread == 0) {                                                                       \
        if (values) values[p.at[0]] = As<O>::of(parts[0]);                                     \
        places[p.at[2]] = at[0];                                                               \
      }                                                                                        \
      __syncthreads();                                                                         \
    }                                                                                          \
  }

// softmax or its logarithm of one line a block: kept: strides of out and of x, without the
// dimension; `length` elements, `to` and `from` apart.
#define RB_SOFTMAX(LOGARITHM)                                                                  \
  extern "C" __global__ void rb_kernel(O* out, const A* x, const Layout kept, Int64 length,    \
                                       Int64 to, Int64 from) {                                 \
    __shared__ T parts[RB_BLOCK];                                                              \
    const int thread = threadIdx.x;                                                            \
    for (Int64 r = blockIdx.x; r < kept.n; r += gridDim.x) {                                   \
      const Places p = places_of(kept, r);                                                     \
      O* line = out + p.at[0];                                                                 \
      const A* given = x + p.at[1];                                                            \
      T top = -INFINITY;                                                                       \
      for (Int64 i = thread; i < length; i += blockDim.x)                                      \
        top = larger(top, As<T>::of(given[i * from]));                                         \
      parts[thread] = top;                                                                     \
      __syncthreads();                                                                         \
      for (int half = blockDim.x / 2; half > 0; half /= 2) {                                   \
        if (thread < half) parts[thread] = larger(parts[thread], parts[thread + half]);        \
        __syncthreads();                                                                       \
      }                                                                                        \
      top = parts[0];                                                                          \
      __syncthreads();                                                                         \
      T sum = 0;                                                                               \
      for (Int64 i = thread; i < length; i += blockDim.x)                                      \
        sum += exp(As<T>::of(given[i * from]) - top);                                          \
      parts[thread] = sum;                                                                     \
      __syncthreads();                                                                         \
      for (int half = blockDim.x / 2; half > 0; half /= 2) {                                   \
        if (thread < half) parts[thread] += parts[thread + half];                              \
        __syncthreads();                                                                       \
      }                                                                                        \
      sum = parts[0];                                                                          \
      __syncthreads();                                                                         \
      for (Int64 i = thread; i < length; i += blockDim.x) {                                    \
        const T v = As<T>::of(given[i * from]) - top;                                          \
        line[i * to] = As<O>::of(LOGARITHM ? v - log(sum) : exp(v) / sum);                     \
      }                                                                                        \
    }                                                                                          \
  }

// Optimizer steps, and norms, factors and limits, of lists of tensors in one launch: a block takes
// a chunk of one tensor. Before it stand P (parameters), G (gradients), A, B and C (states) and T
// (computed in).
#define RB_TENSORS 64
#define RB_CHUNK 4096
#define RB_FUNCTION __device__ inline
#include "coefficients.cuh"
struct Entry {
  void* at[5];  // parameter, gradient, states
  Int64 n;
};
struct Table {  // twin of rbcuda's
  Entry entries[RB_TENSORS];
  int first[RB_TENSORS + 1];  // numbers of their blocks
  int count;
};
// What lies in tensors instead of Options; null: it does not. Twin of rbcuda's.
struct Now {
  const double* factors;  // rows of `width`, one for each tensor
  Int64 width;
  const double* divisor;
  const float *lr, *skip;
};

__device__ inline int entry_of(const Table& table, int block) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// One element, in the dtype of the computation.
template <class T>
struct Element {
  T p, g, a, b, c;
};
// What a step reads and writes beside the parameter.
enum { USES_A = 1, USES_B = 2, USES_C = 4, USES_G = 8 };

template <class Step, int READS, int WRITES, int N, class T>
__device__ inline void elements(const Entry& e, Int64 i, const T* k) {
  Pack<P, N> p = load_pack<N>((P*)e.at[0] + i);
  Pack<G, N> g;
  Pack<A, N> a;
  Pack<B, N> b;
  Pack<C, N> c;
  if (READS & USES_G) g = load_pack<N>((const G*)e.at[1] + i);
  if (READS & USES_A) a = load_pack<N>((A*)e.at[2] + i);
  if (READS & USES_B) b = load_pack<N>((B*)e.at[3] + i);
  if (READS & USES_C) c = load_pack<N>((C*)e.at[4] + i);
  for (int j = 0; j < N; ++j) {
    Element<T> x = {As<T>::of(p.at[j]), 0, 0, 0, 0};
    if (READS & USES_G) x.g = As<T>::of(g.at[j]);
    if (READS & USES_A) x.a = As<T>::of(a.at[j]);
    if (READS & USES_B) x.b = As<T>::of(b.at[j]);
    if (READS & USES_C) x.c = As<T>::of(c.at[j]);
    Step::run(x, k);
    p.at[j] = As<P>::of(x.p);
    if (WRITES & USES_A) a.at[j] = As<A>::of(x.a);
    if (WRITES & USES_B) b.at[j] = As<B>::of(x.b);
    if (WRITES & USES_C) c.at[j] = As<C>::of(x.c);
  }
  store_pack((P*)e.at[0] + i, p);
  if (WRITES & USES_A) store_pack((A*)e.at[2] + i, a);
  if (WRITES & USES_B) store_pack((B*)e.at[3] + i, b);
  if (WRITES & USES_C) store_pack((C*)e.at[4] + i, c);
}

// Whether every tensor that is used starts at an address for vectors of N.
template <int USED, int N>
__device__ inline bool all_packed(const Entry& e) {
  return is_packed<N>((P*)e.at[0]) && (!(USED & USES_G) || is_packed<N>((G*)e.at[1])) &&
         (!(USED & USES_A) || is_packed<N>((A*)e.at[2])) &&
         (!(USED & USES_B) || is_packed<N>((B*)e.at[3])) &&
         (!(USED & USES_C) || is_packed<N>((C*)e.at[4]));
}

template <class Step, int READS, int WRITES, class T>
__device__ inline void step_on(const Table& table, const Numbers& numbers) {
  enum { N = sizeof(T) == 8 ? 2 : 4 };
  T k[RB_NUMBERS];
  for (int j = 0; j < RB_NUMBERS; ++j) k[j] = (T)numbers.at[j];
  const int index = entry_of(table, blockIdx.x);
  const Entry e = table.entries[index];
  const Int64 begin = (Int64)(blockIdx.x - table.first[index]) * RB_CHUNK;
  const Int64 end = begin + RB_CHUNK < e.n ? begin + RB_CHUNK : e.n;
  Int64 i = begin + threadIdx.x;
  if (all_packed<READS | WRITES, N>(e)) {
    const Int64 packs = (end - begin) / N;
    for (Int64 pack = threadIdx.x; pack < packs; pack += blockDim.x)
      elements<Step, READS, WRITES, N, T>(e, begin + pack * N, k);
    i = begin + packs * N + threadIdx.x;
  }
  for (; i < end; i += blockDim.x) elements<Step, READS, WRITES, 1, T>(e, i, k);
}
#define RB_OPTIM(STEP, READS, WRITES)                                                    \
  extern "C" __global__ void rb_kernel(const Table table, const Numbers numbers) {       \
    step_on<STEP, READS, WRITES, T>(table, numbers);                                     \
  }

// The same with numbers in device memory.
#define RB_OPTIM_NOW(STEP, COEFFICIENTS, READS, WRITES)                                  \
  extern "C" __global__ void rb_kernel(const Table table, const Options given,           \
                                       const Now now) {                                  \
    __shared__ Numbers numbers;                                                          \
    if (now.skip && *now.skip != 0) return;                                              \
    if (threadIdx.x == 0) {                                                              \
      Options options = given;                                                           \
      const double* factors = now.factors + entry_of(table, blockIdx.x) * now.width;     \
      for (int k = 0; k < 3; ++k)                                                        \
        if (k < now.width) options.factors[k] = factors[k];                              \
      if (now.lr) options.lr = *now.lr;                                                  \
      if (now.divisor) options.sign /= *now.divisor;                                     \
      numbers = COEFFICIENTS(options);                                                   \
    }                                                                                    \
    __syncthreads();                                                                     \
    step_on<STEP, READS, WRITES, T>(table, numbers);                                     \
  }

#define RB_STEP(name, ...)                                        \
  struct name {                                                   \
    template <class T>                                            \
    static __device__ void run(Element<T>& x, const T* k) {       \
      __VA_ARGS__                                                 \
    }                                                             \
  };
// Numbers: sign, decay, then those of the step.
RB_STEP(Plain, x.p -= k[2] * (x.g * k[0] + k[1] * x.p);)
RB_STEP(MomentumFirst, {  // the buffer may hold anything
  x.a = x.g * k[0] + k[1] * x.p;
  x.p -= k[2] * (k[3] * x.a + k[4] * x.a);
})
RB_STEP(Momentum, {
  const T g = x.g * k[0] + k[1] * x.p;
  x.a = k[5] * x.a + k[6] * g;
  x.p -= k[2] * (k[3] * g + k[4] * x.a);
})
// Mean and mean square; 2 shrink, 3 and 4 what is new in them, 5 beta2.
#define RB_MOMENTS                                \
  const T g = x.g * k[0] + k[1] * x.p;            \
  x.a += k[3] * (g - x.a);                        \
  x.b = x.b * k[5] + k[4] * g * g;
RB_STEP(Adam, {
  RB_MOMENTS
  x.p = x.p * k[2] - k[8] * x.a / (sqrt(x.b) * k[6] + k[7]);
})
RB_STEP(AdamLargest, {
  RB_MOMENTS
  x.c = x.c > x.b || x.c != x.c ? x.c : x.b;
  x.p = x.p * k[2] - k[8] * x.a / (sqrt(x.c) * k[6] + k[7]);
})
// 8 and 9: steps of the mean and of the gradient.
RB_STEP(Nadam, {
  RB_MOMENTS
  x.p = x.p * k[2] - (k[9] * g + k[8] * x.a) / (sqrt(x.b) * k[6] + k[7]);
})
RB_STEP(Radam, {  // 6: whether the mean square is used
  RB_MOMENTS
  x.p = x.p * k[2] - (k[6] != 0 ? k[8] * x.a / (sqrt(x.b) + k[7]) : k[8] * x.a);
})
RB_STEP(Adamax, {
  const T g = x.g * k[0] + k[1] * x.p;
  x.a += k[3] * (g - x.a);
  const T was = x.b * k[5], now = fabs(g) + k[7];
  x.b = was > now || was != was ? was : now;
  x.p -= k[8] * x.a / x.b;
})
RB_STEP(Adagrad, {
  const T g = x.g * k[0] + k[1] * x.p;
  x.a += g * g;
  x.p -= k[2] * (g / (sqrt(x.a) + k[3]));
})
// States: mean square, momentum (B), mean (C). 3 alpha, 4 what is new, 5 eps, 6 momentum.
#define RB_RMSPROP(CENTERED, WITH)                       \
  const T g = x.g * k[0] + k[1] * x.p;                   \
  x.a = x.a * k[3] + k[4] * g * g;                       \
  T spread = x.a;                                        \
  if (CENTERED) {                                        \
    x.c += k[4] * (g - x.c);                             \
    spread = x.a - x.c * x.c;                            \
  }                                                      \
  T step = g / (sqrt(spread) + k[5]);                    \
  if (WITH) x.b = step = k[6] * x.b + step;              \
  x.p -= k[2] * step;
RB_STEP(Rmsprop, { RB_RMSPROP(0, 0) })
RB_STEP(RmspropMomentum, { RB_RMSPROP(0, 1) })
RB_STEP(RmspropCentered, { RB_RMSPROP(1, 0) })
RB_STEP(RmspropBoth, { RB_RMSPROP(1, 1) })
RB_STEP(Scale, x.p *= k[0];)
RB_STEP(Clamp, {  // NaN stays
  if (x.p < k[0]) x.p = k[0];
  if (x.p > k[1]) x.p = k[1];
})

// One more step in each count (P); its new number, as if it were not skipped, to `out`.
#define RB_COUNT()                                                                       \
  extern "C" __global__ void rb_kernel(const Table table, double* out, const float* skip) { \
    if (threadIdx.x >= table.count) return;                                              \
    P* count = (P*)table.entries[threadIdx.x].at[0];                                     \
    const T next = As<T>::of(*count) + 1;                                                \
    out[threadIdx.x] = next;                                                             \
    if (!skip || *skip == 0) *count = As<P>::of(next);                                   \
  }

// Norms: the parts of chunks, then their sums. Orders 1, 2 and 0 for the largest.
template <int ORDER>
struct Norm {
  __device__ double operator()(double a, double b) const {
    return ORDER ? a + b : JoinLargest()(a, b);
  }
};
#define RB_NORM_PARTS(ORDER)                                                             \
  extern "C" __global__ void rb_kernel(const Table table, double* parts) {               \
    const int index = entry_of(table, blockIdx.x);                                       \
    const P* x = (const P*)table.entries[index].at[0];                                   \
    const Int64 n = table.entries[index].n;                                              \
    const Int64 begin = (Int64)(blockIdx.x - table.first[index]) * RB_CHUNK;             \
    const Int64 end = begin + RB_CHUNK < n ? begin + RB_CHUNK : n;                       \
    double all = 0;                                                                      \
    for (Int64 i = begin + threadIdx.x; i < end; i += blockDim.x) {                      \
      const double v = As<double>::of(x[i]);                                             \
      all = Norm<ORDER>()(all, ORDER == 2 ? v * v : fabs(v));                            \
    }                                                                                    \
    all = block_reduce(all, Norm<ORDER>());                                              \
    if (threadIdx.x == 0) parts[blockIdx.x] = all;                                       \
  }
#define RB_NORMS(ORDER)                                                                  \
  extern "C" __global__ void rb_kernel(double* norms, const double* parts, const Table table, \
                                       Int64 step) {                                     \
    double all = 0;                                                                      \
    const int i = blockIdx.x;                                                            \
    for (int k = table.first[i] + threadIdx.x; k < table.first[i + 1]; k += blockDim.x)  \
      all = Norm<ORDER>()(all, parts[k]);                                                \
    all = block_reduce(all, Norm<ORDER>());                                              \
    if (threadIdx.x == 0) norms[i * step] = ORDER == 2 ? sqrt(all) : all;                \
  }

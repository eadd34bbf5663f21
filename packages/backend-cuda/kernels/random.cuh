// Random numbers as core's header maps counters to elements. Before it stands O, the results.
#include "philox.cuh"
#include "report.cuh"
struct Stream {  // twin of rbcuda's
  UInt64 seed, offset;
  const UInt64* base;  // of a captured launch: its seed, and what its counters begin at
};
__device__ inline RbPhilox words_at(const Stream& s, UInt64 counter) {
  return s.base ? rb_philox(s.base[0], s.base[1] + s.offset + counter)
                : rb_philox(s.seed, s.offset + counter);
}
template <class T>
struct Uniform {
  enum { per_counter = 4 };
  typedef float type;
  static __device__ float of(const RbPhilox& r, int k) { return rb_uniform_f32(r.w[k]); }
};
template <>
struct Uniform<double> {
  enum { per_counter = 2 };
  typedef double type;
  static __device__ double of(const RbPhilox& r, int k) {
    return rb_uniform_f64(r.w[2 * k], r.w[2 * k + 1]);
  }
};
typedef typename Uniform<O>::type U;
template <class V>
__device__ inline O stored(V v) {
  return As<O>::of(v);
}

// A thread makes the elements of a counter; where out has no gaps (FLAT) those of as many counters as
// fill packs of 16 bytes. value(r, k, i): element i, number k of its counter's.
template <int PER_COUNTER, int FLAT, class Value>
__device__ inline void random_numbers(O* out, const Stream& stream, const Layout& layout,
                                      Value value) {
  enum { PACK = 16 / sizeof(O), EACH = FLAT && PACK > PER_COUNTER ? PACK : PER_COUNTER };
  for (Int64 first = RB_THREAD * EACH; first < layout.n; first += RB_THREADS * EACH) {
    O made[EACH];
#pragma unroll
    for (int c = 0; c < EACH / PER_COUNTER; ++c) {
      const RbPhilox r = words_at(stream, (UInt64)(first / PER_COUNTER + c));
      for (int k = 0; k < PER_COUNTER; ++k) {
        const int e = c * PER_COUNTER + k;
        if (first + e < layout.n) made[e] = value(r, k, first + e);
      }
    }
    if (FLAT && first + EACH <= layout.n) {
      store_as(out + first, made);
      continue;
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (first + e < layout.n) out[places_of(layout, first + e).at[0]] = made[e];
  }
}
// VALUE is of r, k, i and the numbers p0 to p2; layout: strides of out, and of what else is read. The
// host says before it what FLAT is.
#define RB_RANDOM(PER_COUNTER, VALUE)                                                          \
  extern "C" __global__ void rb_kernel(O* out, const P* given, const Stream stream,            \
                                       const Layout layout, double p0, double p1, double p2,   \
                                       UInt64 from, UInt64 range, const Finder finder) {       \
    random_numbers<PER_COUNTER, FLAT>(                                                         \
        out, stream, layout, [&](const RbPhilox& r, int k, Int64 i) -> O { return VALUE; });   \
  }
#define RB_FROM_UNIFORM(VALUE) RB_RANDOM(Uniform<O>::per_counter, VALUE)
#define RB_U (Uniform<O>::of(r, k))

__device__ inline O uniform_value(U u, double from, double width, double top) {
  const U x = (U)from + u * (U)width;
  return stored(x < (U)top ? x : (U)top);
}
__device__ inline O exponential_value(U u, double rate) {
  return stored(-log((U)1 - u) / (U)rate);
}
__device__ inline O bernoulli_value(U u, double p) { return stored(u < (U)p ? 1 : 0); }
__device__ inline O bernoulli_checked(U u, double p, const Finder& finder) {
  if (!(p >= 0 && p <= 1)) found(finder, 0, p);
  return bernoulli_value(u, p);
}
__device__ inline float normal_value(float, const RbPhilox& r, int k, double mean, double std) {
  float pair[2];
  rb_normal_f32(r.w[k & 2], r.w[(k & 2) + 1], pair, pair + 1);
  return (float)mean + (float)std * (k & 1 ? pair[1] : pair[0]);
}
__device__ inline double normal_value(double, const RbPhilox& r, int k, double mean, double std) {
  double pair[2];
  rb_normal_f64(r, pair, pair + 1);
  return mean + std * pair[k];
}

// One thread shuffles by Fisher and Yates' method, in the order of the CPU: place n - 1 - s takes
// the s-th draw of 64 bits.
#define RB_PERMUTE()                                                                           \
  extern "C" __global__ void rb_kernel(Int64* order, const Stream stream, Int64 n) {           \
    for (Int64 i = threadIdx.x; i < n; i += blockDim.x) order[i] = i;                          \
    __syncthreads();                                                                           \
    if (threadIdx.x != 0) return;                                                              \
    RbPhilox r = {};                                                                           \
    for (Int64 s = 0; s + 1 < n; ++s) {                                                        \
      if (s % 2 == 0) r = words_at(stream, (UInt64)s / 2);                                     \
      const Int64 place = n - 1 - s;                                                           \
      const int w = s % 2 ? 2 : 0;                                                             \
      const Int64 other = (Int64)rb_below_64(r.w[w], r.w[w + 1], (UInt64)place + 1);           \
      const Int64 kept = order[place];                                                         \
      order[place] = order[other];                                                             \
      order[other] = kept;                                                                     \
    }                                                                                          \
  }

// Elements at indices that lie in other tensors. Before it stand E, the elements, and I, the
// indices. Nothing is read or written at an index out of range; the host hears of it.
#include "report.cuh"
#include "atomics.cuh"
struct Reach {  // twin of rbcuda's
  Int64 size, step;
  int wraps, reserved;  // wraps: indices below 0 count from the end
  Finder finder;
};
#define RB_OUTSIDE ((Int64)((UInt64)1 << 63))
// How far from the first element index `k` lies. Where size is below 0, `k` is that already.
__device__ inline Int64 offset_of(Int64 k, const Reach& reach) {
  if (reach.size < 0) return k;
  const Int64 at = k < 0 && reach.wraps ? k + reach.size : k;
  if ((UInt64)at < (UInt64)reach.size) return at * reach.step;
  found(reach.finder, k, 0);
  return RB_OUTSIDE;
}

// L and N: Layout and Int64, or Layout32 and UInt32 where that is wide enough.
// layout: strides of out, index, and x without the indexed dimensions.
#define RB_TAKE(L, N)                                                                         \
  extern "C" __global__ void rb_kernel(E* out, const I* index, const E* x,                  \
                                       const L layout, const Reach reach) {                 \
    for (N i = (N)RB_THREAD; i < layout.n; i += (N)RB_THREADS) {                            \
      const auto p = places_of(layout, i);                                                  \
      const Int64 k = offset_of((Int64)index[p.at[1]], reach);                              \
      out[p.at[0]] = k == RB_OUTSIDE ? E() : x[p.at[2] + k];                                \
    }                                                                                       \
  }

// Whole rows of `width` elements, by a power of two of threads each; index: its places apart.
#define RB_TAKE_ROWS()                                                                      \
  struct alignas(16) Sixteen {                                                              \
    UInt64 a, b;                                                                            \
  };                                                                                        \
  typedef RB_ROW_TYPE Row;                                                                  \
  extern "C" __global__ void rb_kernel(Row* out, const I* index, const Row* x, Int64 rows,  \
                                       Int64 width, int across, const Reach reach) {        \
    const int lane = threadIdx.x & (across - 1), down = blockDim.x / across;                \
    for (Int64 r = (Int64)blockIdx.x * down + threadIdx.x / across; r < rows;               \
         r += (Int64)gridDim.x * down) {                                                    \
      const Int64 k = offset_of((Int64)index[r], reach);                                    \
      Row* to = out + r * width;                                                            \
      for (Int64 j = lane; j < width; j += across)                                          \
        to[j] = k == RB_OUTSIDE ? Row() : x[k + j];                                         \
    }                                                                                       \
  }

// *p = v by threads that may meet there: the value of one of them stays.
template <class T>
__device__ inline void set_to(T* p, T v) {
  *(volatile T*)p = v;
}
__device__ inline void set_to(Half* p, Half v) { set_to(&p->bits, v.bits); }
__device__ inline void set_to(BFloat16* p, BFloat16 v) { set_to(&p->bits, v.bits); }
// By one store: of two, one of each of two threads could stay.
__device__ inline void set_to(Complex<float>* p, Complex<float> v) {
  UInt64 bits;
  memcpy(&bits, &v, sizeof bits);
  set_to((UInt64*)p, bits);
}
__device__ inline void set_to(Complex<double>* p, Complex<double> v) {
#ifdef __CUDACC__
  asm volatile("st.volatile.v2.f64 [%0], {%1, %2};" ::"l"(p), "d"(v.re), "d"(v.im) : "memory");
#else
  __int128 bits;
  memcpy(&bits, &v, sizeof bits);
  set_to((__int128*)p, bits);
#endif
}

// A number as an element.
template <class T>
struct Put {
  static __device__ T of(Number re, Number im) { return as_number<T>(re); }
};
template <class R>
struct Put<Complex<R>> {
  static __device__ Complex<R> of(Number re, Number im) { return {(R)re.real, (R)im.real}; }
};
// layout: strides of out without the indexed dimensions, index, and src. FROM is the value at p,
// TO what is done with it at the place `to`; indices that equal `skipped` are left out. Before it
// stands V, in which the values are stored.
#define RB_PUT(L, N, FROM, TO)                                                              \
  extern "C" __global__ void rb_kernel(E* out, const I* index, const V* src,                \
                                       const L layout, const Reach reach,                   \
                                       const Number re, const Number im, Int64 skipped) {   \
    for (N i = (N)RB_THREAD; i < layout.n; i += (N)RB_THREADS) {                            \
      const auto p = places_of(layout, i);                                                  \
      const Int64 given = (Int64)index[p.at[1]];                                            \
      const Int64 k = given == skipped ? RB_OUTSIDE : offset_of(given, reach);              \
      if (k == RB_OUTSIDE) continue;                                                        \
      E* const to = out + p.at[0] + k;                                                      \
      const E v = FROM;                                                                     \
      TO;                                                                                   \
    }                                                                                       \
  }
// ---- sums in a fixed order: the positions are sorted by where they go. Before it stand K, wide
// enough for each offset (the largest K stands for none), and S, in which is summed.
#define RB_PUT_KEYS()                                                                       \
  extern "C" __global__ void rb_kernel(K* keys, UInt32* places, const I* index,             \
                                       const Layout layout, const Reach reach,              \
                                       Int64 skipped) {                                     \
    RB_FOR(i, layout.n) {                                                                   \
      const Places p = places_of(layout, i);                                                \
      const Int64 given = (Int64)index[p.at[1]];                                            \
      const Int64 k = given == skipped ? RB_OUTSIDE : offset_of(given, reach);              \
      keys[i] = k == RB_OUTSIDE ? (K) ~(K)0 : (K)(p.at[0] + k);                             \
      places[i] = (UInt32)i;                                                                \
    }                                                                                       \
  }
#define RB_PUT_SORTED(FROM)                                                                 \
  extern "C" __global__ void rb_kernel(E* out, const K* keys, const UInt32* places,         \
                                       const V* src, const Layout layout, const Number re,  \
                                       const Number im) {                                   \
    RB_FOR(i, layout.n) {                                                                   \
      const K key = keys[i];                                                                \
      if (key == (K) ~(K)0 || (i > 0 && keys[i - 1] == key)) continue;                      \
      S sum = As<S>::of(out[key]);                                                          \
      for (Int64 j = i; j < layout.n && keys[j] == key; ++j) {                              \
        const Places p = places_of(layout, places[j]);                                      \
        const S v = FROM;                                                                   \
        sum = sum_of(sum, v);                                                               \
      }                                                                                     \
      out[key] = As<E>::of(sum);                                                            \
    }                                                                                       \
  }
// index_add's factor: multiplied in the dtype that is computed in.
template <class T>
__device__ inline T scaled(T v, Number re, Number im) {
  return (T)(v * as_number<T>(re));
}
__device__ inline bool scaled(bool v, Number re, Number im) { return v && re.whole != 0; }
template <class R>
__device__ inline Complex<R> scaled(Complex<R> v, Number re, Number im) {
  const Complex<R> factor = {(R)re.real, (R)im.real};
  return factor * v;
}

// layout: strides of offsets and index. Each index tensor adds what it moves by.
#define RB_OFFSETS()                                                                        \
  extern "C" __global__ void rb_kernel(Int64* offsets, const I* index, const Layout layout, \
                                       const Reach reach, int first) {                      \
    for (Int64 i = RB_THREAD; i < layout.n; i += RB_THREADS) {                              \
      const Places p = places_of(layout, i);                                                \
      const Int64 before = first ? 0 : offsets[p.at[0]];                                    \
      const Int64 k = offset_of((Int64)index[p.at[1]], reach);                              \
      offsets[p.at[0]] = before == RB_OUTSIDE || k == RB_OUTSIDE ? RB_OUTSIDE : before + k; \
    }                                                                                       \
  }

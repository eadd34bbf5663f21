// add_to(p, v): *p += v, by threads that may meet there. Of bools: or.
template <class R>
__device__ inline Complex<R> sum_of(Complex<R> a, Complex<R> b) {
  return a + b;
}
template <class T>
__device__ inline T sum_of(T a, T b) {
  return (T)(a + b);
}
__device__ inline bool sum_of(bool a, bool b) { return a || b; }
__device__ inline Half sum_of(Half a, Half b) { return As<Half>::of(widen(a) + widen(b)); }
__device__ inline BFloat16 sum_of(BFloat16 a, BFloat16 b) {
  return As<BFloat16>::of(widen(a) + widen(b));
}
// The element in 2 bytes that begins at bit `at`, and with another value there.
template <class T>
__device__ inline T taken(UInt16 bytes, int at) {
  const UInt8 byte = (UInt8)(bytes >> at);
  T v;
  memcpy(&v, sizeof(T) == 1 ? (const void*)&byte : (const void*)&bytes, sizeof(T));
  return v;
}
template <class T>
__device__ inline UInt16 replaced(UInt16 bytes, int at, T v) {
  UInt16 own = 0;
  memcpy(&own, &v, sizeof(T));
  if (sizeof(T) == 2) return own;
  return (UInt16)((bytes & ~(0xff << at)) | own << at);
}
// Elements of 1 or 2 bytes: the 2 bytes around them are exchanged until nobody came between.
template <class T>
__device__ inline void add_to(T* p, T v) {
  const UInt64 address = (UInt64)p;
  UInt16* around = (UInt16*)(address & ~(UInt64)1);
  const int at = sizeof(T) == 1 ? (int)(address & 1) * 8 : 0;
  UInt16 seen = *(volatile UInt16*)around, before;
  do {
    before = seen;
    seen = atomicCAS(around, before, replaced(before, at, sum_of(taken<T>(before, at), v)));
  } while (seen != before);
}
__device__ inline void add_to(float* p, float v) { atomicAdd(p, v); }
__device__ inline void add_to(double* p, double v) { atomicAdd(p, v); }
__device__ inline void add_to(int* p, int v) { atomicAdd(p, v); }
__device__ inline void add_to(UInt32* p, UInt32 v) { atomicAdd(p, v); }
__device__ inline void add_to(UInt64* p, UInt64 v) { atomicAdd(p, v); }
__device__ inline void add_to(Int64* p, Int64 v) { atomicAdd((UInt64*)p, (UInt64)v); }
template <class R>
__device__ inline void add_to(Complex<R>* p, Complex<R> v) {
  atomicAdd(&p->re, v.re);
  atomicAdd(&p->im, v.im);
}
#ifdef __CUDACC__
__device__ inline void add_to(Half* p, Half v) {
  asm volatile("red.relaxed.gpu.add.noftz.f16 [%0], %1;" ::"l"(p), "h"(v.bits) : "memory");
}
#if __CUDA_ARCH__ >= 900
__device__ inline void add_to(BFloat16* p, BFloat16 v) {
  asm volatile("red.relaxed.gpu.add.noftz.bf16 [%0], %1;" ::"l"(p), "h"(v.bits) : "memory");
}
#endif
#endif

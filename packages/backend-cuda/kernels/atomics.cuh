// add_to(p, v): *p += v, by threads that may meet there. Of bools: or. Not of 16-bit floats, whose
// sums would be rounded at each term: they are taken in float32.
template <class R>
__device__ inline Complex<R> sum_of(Complex<R> a, Complex<R> b) {
  return a + b;
}
template <class T>
__device__ inline T sum_of(T a, T b) {
  return (T)(a + b);
}
__device__ inline bool sum_of(bool a, bool b) { return a || b; }
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

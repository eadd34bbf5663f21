// Before every kernel: the dtypes of the header, and conversions between them.
#ifndef INFINITY  // NVRTC has no headers
#define INFINITY __uint_as_float(0x7f800000u)
#define NAN __uint_as_float(0x7fc00000u)
#endif
typedef signed char Int8;
typedef unsigned char UInt8;
typedef short Int16;
typedef unsigned short UInt16;
typedef unsigned int UInt32;
typedef long long Int64;
typedef unsigned long long UInt64;
struct Half {
  UInt16 bits;
};
struct BFloat16 {
  UInt16 bits;
};
template <class R>
struct Complex {
  R re, im;
};

// Devices convert by one instruction; the bits that the other path gives differ in NaN only.
__device__ inline float widen(Half x) {
#ifdef __CUDACC__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#endif
  const UInt32 sign = (x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return __uint_as_float(sign | ((rest << 13) + 0x38000000u));
  const float small = (float)rest * 5.9604644775390625e-8f;  // 2**-24
  return sign ? -small : small;
}
__device__ inline float widen(BFloat16 x) { return __uint_as_float((UInt32)x.bits << 16); }

// To the nearest, ties to even.
template <class S>
struct Narrow;
template <>
struct Narrow<Half> {
  static __device__ Half of(float x) {
#ifdef __CUDACC__
    Half narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
#endif
    const UInt32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    UInt32 half;
    if (size > 0x7f800000u) {
      half = 0x7e00u;
    } else if (size >= 0x477ff000u) {
      half = 0x7c00u;
    } else if (size < 0x38800000u) {  // subnormal: one step of 0.5f is one of the result
      half = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u;
    } else {
      half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    }
    Half result = {(UInt16)(sign | half)};
    return result;
  }
};
template <>
struct Narrow<BFloat16> {
  static __device__ BFloat16 of(float x) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    BFloat16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
#endif
    const UInt32 bits = __float_as_uint(x);
    const UInt32 wide = x != x ? 0x7fc00000u : bits + 0x7fffu + (bits >> 16 & 1u);
    BFloat16 result = {(UInt16)(wide >> 16)};
    return result;
  }
};

template <class T>
struct IsFloat {
  enum { value = 0 };
};
template <>
struct IsFloat<float> {
  enum { value = 1 };
};
template <>
struct IsFloat<double> {
  enum { value = 1 };
};
// Real numbers as T. Floats become unsigned integers by way of int64, as on the CPU and in PyTorch:
// the instruction for it makes 0 of -1.
template <class T, class S, bool through_int64 = IsFloat<S>::value && (T)-1 >= (T)1>
struct Convert {
  static __device__ T of(S x) { return (T)x; }
};
template <class T, class S>
struct Convert<T, S, true> {
  static __device__ T of(S x) {
    const S half = (S)9223372036854775808.0;  // 2**63: from there on only uint64 goes
    return sizeof(T) == 8 && x >= half ? (T)((UInt64)(Int64)(x - half) + ((UInt64)1 << 63))
                                       : (T)(Int64)x;
  }
};

// As<T>::of(x): x as T.
template <class T>
struct As {
  template <class S>
  static __device__ T of(S x) { return Convert<T, S>::of(x); }
  static __device__ T of(Half x) { return Convert<T, float>::of(widen(x)); }
  static __device__ T of(BFloat16 x) { return Convert<T, float>::of(widen(x)); }
  template <class R>
  static __device__ T of(Complex<R> x) { return Convert<T, R>::of(x.re); }
};
template <>
struct As<bool> {
  template <class S>
  static __device__ bool of(S x) { return x != 0; }
  static __device__ bool of(Half x) { return widen(x) != 0; }
  static __device__ bool of(BFloat16 x) { return widen(x) != 0; }
  template <class R>
  static __device__ bool of(Complex<R> x) { return x.re != 0 || x.im != 0; }
};
template <>
struct As<Half> {
  template <class S>
  static __device__ Half of(S x) { return Narrow<Half>::of(As<float>::of(x)); }
  static __device__ Half of(Half x) { return x; }
};
template <>
struct As<BFloat16> {
  template <class S>
  static __device__ BFloat16 of(S x) { return Narrow<BFloat16>::of(As<float>::of(x)); }
  static __device__ BFloat16 of(BFloat16 x) { return x; }
};
template <class R>
struct As<Complex<R>> {
  template <class S>
  static __device__ Complex<R> of(S x) {
    Complex<R> result = {As<R>::of(x), 0};
    return result;
  }
  template <class Q>
  static __device__ Complex<R> of(Complex<Q> x) {
    Complex<R> result = {(R)x.re, (R)x.im};
    return result;
  }
};

template <class R>
__device__ inline Complex<R> operator-(Complex<R> a) {
  return {-a.re, -a.im};
}
template <class R>
__device__ inline Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
__device__ inline Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class R>
__device__ inline Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// Smith's method: without overflow of the squares.
template <class R>
__device__ inline Complex<R> operator/(Complex<R> a, Complex<R> b) {
  if (fabs(b.re) >= fabs(b.im)) {
    const R ratio = b.im / b.re, whole = b.re + b.im * ratio;
    return {(a.re + a.im * ratio) / whole, (a.im - a.re * ratio) / whole};
  }
  const R ratio = b.re / b.im, whole = b.re * ratio + b.im;
  return {(a.re * ratio + a.im) / whole, (a.im * ratio - a.re) / whole};
}
template <class R>
__device__ inline bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}
template <class R>
__device__ inline bool operator!=(Complex<R> a, Complex<R> b) {
  return !(a == b);
}

// Positions of a call's tensors. Twin of rbcuda::Layout.
struct Layout {
  Int64 n;
  int ndim, reserved;
  Int64 shape[8];
  Int64 strides[4][8];
};
struct Places {
  Int64 at[4];
};
// Where position `i` lies in each tensor.
__device__ inline Places places_of(const Layout& layout, Int64 i) {
  Places p = {{0, 0, 0, 0}};
  for (int d = layout.ndim - 1; d > 0; --d) {
    const Int64 above = i / layout.shape[d], at = i - above * layout.shape[d];
    for (int k = 0; k < 4; ++k) p.at[k] += at * layout.strides[k][d];
    i = above;
  }
  for (int k = 0; k < 4; ++k) p.at[k] += i * layout.strides[k][0];
  return p;
}
#define RB_THREAD ((Int64)blockIdx.x * blockDim.x + threadIdx.x)
#define RB_THREADS ((Int64)gridDim.x * blockDim.x)
// A number of a call. Twin of rbcuda::Number.
struct Number {
  double real, imag;
  Int64 whole;
};
template <class T>
struct FromNumber {
  static __device__ T of(Number x) { return IsFloat<T>::value ? (T)x.real : (T)x.whole; }
};
template <>
struct FromNumber<bool> {
  static __device__ bool of(Number x) { return x.real != 0 || x.imag != 0 || x.whole != 0; }
};
template <>
struct FromNumber<Half> {
  static __device__ Half of(Number x) { return Narrow<Half>::of((float)x.real); }
};
template <>
struct FromNumber<BFloat16> {
  static __device__ BFloat16 of(Number x) { return Narrow<BFloat16>::of((float)x.real); }
};
template <class R>
struct FromNumber<Complex<R>> {
  static __device__ Complex<R> of(Number x) { return {(R)x.real, (R)x.imag}; }
};
template <class T>
__device__ inline T as_number(Number x) {
  return FromNumber<T>::of(x);
}

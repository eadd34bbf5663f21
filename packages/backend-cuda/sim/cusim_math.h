// CUDA's mathematical functions by the compiler's built-in ones and libm. Of each there is one of
// doubles under C's name, which also takes integers, one of floats under the same name, and one of
// floats under the name with an f.
#pragma once

template <class T>
struct CusimWhole {};
#define CUSIM_WHOLE(T)        \
  template <>                 \
  struct CusimWhole<T> {      \
    typedef double as_double; \
    typedef bool as_bool;     \
  };
CUSIM_WHOLE(bool)
CUSIM_WHOLE(char)
CUSIM_WHOLE(signed char)
CUSIM_WHOLE(unsigned char)
CUSIM_WHOLE(short)
CUSIM_WHOLE(unsigned short)
CUSIM_WHOLE(int)
CUSIM_WHOLE(unsigned)
CUSIM_WHOLE(long)
CUSIM_WHOLE(unsigned long)
CUSIM_WHOLE(long long)
CUSIM_WHOLE(unsigned long long)
// The type that numbers of mixed types are computed in.
template <class A, class B>
struct CusimMixed {
  typedef double type;
};
template <class A>
struct CusimMixed<A, A> {};

#define CUSIM_INLINE inline __attribute__((always_inline))
#define CUSIM_UNARY(name)                                                \
  CUSIM_INLINE double name(double x) { return __builtin_##name(x); }     \
  CUSIM_INLINE float name(float x) { return __builtin_##name##f(x); }    \
  CUSIM_INLINE float name##f(float x) { return __builtin_##name##f(x); } \
  template <class T>                                                     \
  CUSIM_INLINE typename CusimWhole<T>::as_double name(T x) {             \
    return __builtin_##name((double)x);                                  \
  }
#define CUSIM_BINARY(name)                                                           \
  CUSIM_INLINE double name(double x, double y) { return __builtin_##name(x, y); }    \
  CUSIM_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }    \
  CUSIM_INLINE float name##f(float x, float y) { return __builtin_##name##f(x, y); } \
  template <class A, class B>                                                        \
  CUSIM_INLINE typename CusimMixed<A, B>::type name(A x, B y) {                      \
    return __builtin_##name((double)x, (double)y);                                   \
  }                                                                                  \
  template <class T>                                                                 \
  CUSIM_INLINE typename CusimWhole<T>::as_double name(T x, T y) {                    \
    return __builtin_##name((double)x, (double)y);                                   \
  }
CUSIM_UNARY(acos)
CUSIM_UNARY(acosh)
CUSIM_UNARY(asin)
CUSIM_UNARY(asinh)
CUSIM_UNARY(atan)
CUSIM_UNARY(atanh)
CUSIM_UNARY(cbrt)
CUSIM_UNARY(ceil)
CUSIM_UNARY(cos)
CUSIM_UNARY(cosh)
CUSIM_UNARY(erf)
CUSIM_UNARY(erfc)
CUSIM_UNARY(exp)
CUSIM_UNARY(exp2)
CUSIM_UNARY(exp10)
CUSIM_UNARY(expm1)
CUSIM_UNARY(fabs)
CUSIM_UNARY(floor)
CUSIM_UNARY(j0)
CUSIM_UNARY(j1)
CUSIM_UNARY(lgamma)
CUSIM_UNARY(log)
CUSIM_UNARY(log10)
CUSIM_UNARY(log1p)
CUSIM_UNARY(log2)
CUSIM_UNARY(logb)
CUSIM_UNARY(nearbyint)
CUSIM_UNARY(rint)
CUSIM_UNARY(round)
CUSIM_UNARY(sin)
CUSIM_UNARY(sinh)
CUSIM_UNARY(sqrt)
CUSIM_UNARY(tan)
CUSIM_UNARY(tanh)
CUSIM_UNARY(tgamma)
CUSIM_UNARY(trunc)
CUSIM_UNARY(y0)
CUSIM_UNARY(y1)
CUSIM_BINARY(atan2)
CUSIM_BINARY(copysign)
CUSIM_BINARY(fdim)
CUSIM_BINARY(fmax)
CUSIM_BINARY(fmin)
CUSIM_BINARY(fmod)
CUSIM_BINARY(hypot)
CUSIM_BINARY(nextafter)
CUSIM_BINARY(pow)
CUSIM_BINARY(remainder)

#define CUSIM_BOTH(name, parameters, arguments)                   \
  CUSIM_INLINE double name(double x CUSIM_##parameters(double)) { \
    return __builtin_##name(x CUSIM_##arguments);                 \
  }                                                               \
  CUSIM_INLINE float name(float x CUSIM_##parameters(float)) {    \
    return __builtin_##name##f(x CUSIM_##arguments);              \
  }                                                               \
  CUSIM_INLINE float name##f(float x CUSIM_##parameters(float)) { \
    return __builtin_##name##f(x CUSIM_##arguments);              \
  }
#define CUSIM_with_int(T) , int n
#define CUSIM_n , n
#define CUSIM_with_long(T) , long n
#define CUSIM_with_exponent(T) , int* n
#define CUSIM_with_part(T) , T* n
#define CUSIM_with_two(T) , T y, T z
#define CUSIM_yz , y, z
#define CUSIM_with_quotient(T) , T y, int *n
#define CUSIM_yn , y, n
CUSIM_BOTH(ldexp, with_int, n)
CUSIM_BOTH(scalbn, with_int, n)
CUSIM_BOTH(scalbln, with_long, n)
CUSIM_BOTH(frexp, with_exponent, n)
CUSIM_BOTH(modf, with_part, n)
CUSIM_BOTH(fma, with_two, yz)
CUSIM_BOTH(remquo, with_quotient, yn)
#define CUSIM_ROUNDED(T, name)                                    \
  CUSIM_INLINE T name(double x) { return __builtin_##name(x); }   \
  CUSIM_INLINE T name(float x) { return __builtin_##name##f(x); } \
  CUSIM_INLINE T name##f(float x) { return __builtin_##name##f(x); }
CUSIM_ROUNDED(int, ilogb)
CUSIM_ROUNDED(long, lrint)
CUSIM_ROUNDED(long, lround)
CUSIM_ROUNDED(long long, llrint)
CUSIM_ROUNDED(long long, llround)
#define CUSIM_TEST(name, text)                                 \
  CUSIM_INLINE bool name(double x) { return text; }            \
  CUSIM_INLINE bool name(float x) { return text; }             \
  template <class T>                                           \
  CUSIM_INLINE typename CusimWhole<T>::as_bool name(T whole) { \
    const double x = (double)whole;                            \
    return text;                                               \
  }
CUSIM_TEST(isnan, __builtin_isnan(x))
CUSIM_TEST(isinf, __builtin_isinf(x))
CUSIM_TEST(isfinite, __builtin_isfinite(x))
CUSIM_TEST(signbit, __builtin_signbit(x))
CUSIM_INLINE int abs(int x) { return x < 0 ? -x : x; }
CUSIM_INLINE long abs(long x) { return x < 0 ? -x : x; }
CUSIM_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
CUSIM_INLINE float abs(float x) { return __builtin_fabsf(x); }
CUSIM_INLINE double abs(double x) { return __builtin_fabs(x); }
CUSIM_INLINE long labs(long x) { return x < 0 ? -x : x; }
CUSIM_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }

#define CUSIM_LEAST(T, less, more)              \
  CUSIM_INLINE T min(T a, T b) { return less; } \
  CUSIM_INLINE T max(T a, T b) { return more; }
#define CUSIM_LEAST_WHOLE(T) CUSIM_LEAST(T, b < a ? b : a, a < b ? b : a)
CUSIM_LEAST_WHOLE(int)
CUSIM_LEAST_WHOLE(unsigned)
CUSIM_LEAST_WHOLE(long)
CUSIM_LEAST_WHOLE(unsigned long)
CUSIM_LEAST_WHOLE(long long)
CUSIM_LEAST_WHOLE(unsigned long long)
CUSIM_LEAST(float, __builtin_fminf(a, b), __builtin_fmaxf(a, b))
CUSIM_LEAST(double, __builtin_fmin(a, b), __builtin_fmax(a, b))
#define CUSIM_LEAST_MIXED(A, B, T)                         \
  CUSIM_INLINE T min(A a, B b) { return min((T)a, (T)b); } \
  CUSIM_INLINE T max(A a, B b) { return max((T)a, (T)b); }
CUSIM_LEAST_MIXED(int, unsigned, unsigned)
CUSIM_LEAST_MIXED(unsigned, int, unsigned)
CUSIM_LEAST_MIXED(long long, unsigned long long, unsigned long long)
CUSIM_LEAST_MIXED(unsigned long long, long long, unsigned long long)
CUSIM_LEAST_MIXED(float, double, double)
CUSIM_LEAST_MIXED(double, float, double)

// ---- functions that C does not have
#define CUSIM_REAL(name, ...)                                \
  CUSIM_INLINE double name(double x) { return __VA_ARGS__; } \
  CUSIM_INLINE float name##f(float given) {                  \
    const double x = given;                                  \
    return (float)(__VA_ARGS__);                             \
  }                                                          \
  CUSIM_INLINE float name(float x) { return name##f(x); }
CUSIM_REAL(rsqrt, 1 / __builtin_sqrt(x))
CUSIM_REAL(rcbrt, 1 / __builtin_cbrt(x))
// Exact at multiples of 1/2.
inline double cusim_sinpi(double x) {
  const double r = __builtin_remainder(x, 2), a = __builtin_fabs(r);
  const double y = a > 0.5 ? 1 - a : a;
  const double s = y > 0.25 ? __builtin_cos((0.5 - y) * 3.14159265358979323846)
                            : __builtin_sin(y * 3.14159265358979323846);
  return __builtin_copysign(s, x - x != 0 ? x : r) + (x - x);
}
inline double cusim_cospi(double x) {
  const double a = __builtin_fabs(__builtin_remainder(x, 2));
  return (a > 0.75   ? -__builtin_cos((1 - a) * 3.14159265358979323846)
          : a > 0.25 ? __builtin_sin((0.5 - a) * 3.14159265358979323846)
                     : __builtin_cos(a * 3.14159265358979323846)) +
         (x - x);
}
CUSIM_REAL(sinpi, cusim_sinpi(x))
CUSIM_REAL(cospi, cusim_cospi(x))
CUSIM_REAL(normcdf, 0.5 * __builtin_erfc(-x * 0.70710678118654752440))

// The inverse of erf: a first guess by its logarithm, then Halley's steps, in the tail on erfc.
inline double cusim_erfcinv(double q);
inline double cusim_erfinv(double y) {
  if (!(y > -1 && y < 1)) return y == 1 ? __builtin_inf() : y == -1 ? -__builtin_inf() : NAN;
  if (y > 0.5 || y < -0.5) return __builtin_copysign(cusim_erfcinv(1 - __builtin_fabs(y)), y);
  double x = y * 0.88622692545275801365;
  for (int i = 0; i < 6; ++i) {
    const double f = (__builtin_erf(x) - y) / (1.12837916709551257390 * __builtin_exp(-x * x));
    x -= f / (1 + x * f);
  }
  return x;
}
inline double cusim_erfcinv(double q) {
  if (!(q > 0 && q < 2)) return q == 0 ? __builtin_inf() : q == 2 ? -__builtin_inf() : NAN;
  if (q > 1) return -cusim_erfcinv(2 - q);
  if (q > 0.5) return cusim_erfinv(1 - q);
  const double l = -2 * __builtin_log(q * 0.5);
  const double t = __builtin_sqrt(l);
  double x =
      0.70710678118654752440 * (t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                                        (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
  for (int i = 0; i < 4; ++i) {
    const double f = (q - __builtin_erfc(x)) / (1.12837916709551257390 * __builtin_exp(-x * x));
    x -= f / (1 + x * f);
  }
  return x;
}
CUSIM_REAL(erfinv, cusim_erfinv(x))
CUSIM_REAL(erfcinv, cusim_erfcinv(x))
CUSIM_REAL(normcdfinv, -1.41421356237309504880 * cusim_erfcinv(2 * x))
// exp(x * x) * erfc(x): beyond 25 by the asymptotic series.
inline double cusim_erfcx(double x) {
  if (x < 25) return __builtin_exp(x * x) * __builtin_erfc(x);
  const double r = 1 / (x * x);
  return 0.56418958354775628695 / x * (1 - r * (0.5 - r * (0.75 - r * 1.875)));
}
CUSIM_REAL(erfcx, cusim_erfcx(x))
// Modified Bessel functions by the power series, or the asymptotic one.
inline double cusim_bessel_i(int order, double x) {
  const double a = __builtin_fabs(x), sign = order && x < 0 ? -1 : 1, mu = 4.0 * order * order;
  double sum = 0, term = order ? a / 2 : 1;
  if (a < 30) {
    for (int k = 1; term > sum * 1e-18 && k < 200; ++k) {
      sum += term;
      term *= a * a / 4 / (k * (double)(k + order));
    }
    return sign * sum;
  }
  term = 1;
  for (int k = 1; k < 30 && __builtin_fabs(term) > 1e-18; ++k) {
    sum += term;
    term *= -(mu - (2.0 * k - 1) * (2.0 * k - 1)) / (k * 8 * a);
  }
  return sign * __builtin_exp(a) * sum / __builtin_sqrt(6.28318530717958647693 * a);
}
CUSIM_REAL(cyl_bessel_i0, cusim_bessel_i(0, x))
CUSIM_REAL(cyl_bessel_i1, cusim_bessel_i(1, x))
#define CUSIM_SINES(T, name, sine, cosine)    \
  CUSIM_INLINE void name(T x, T* s, T* c) {   \
    const T at_s = sine(x), at_c = cosine(x); \
    *s = at_s;                                \
    *c = at_c;                                \
  }
CUSIM_SINES(double, sincos, sin, cos)
CUSIM_SINES(float, sincos, sinf, cosf)
CUSIM_SINES(float, sincosf, sinf, cosf)
CUSIM_SINES(float, __sincosf, sinf, cosf)
CUSIM_SINES(double, sincospi, sinpi, cospi)
CUSIM_SINES(float, sincospif, sinpif, cospif)
CUSIM_INLINE double rhypot(double x, double y) { return 1 / __builtin_hypot(x, y); }
CUSIM_INLINE float rhypotf(float x, float y) { return 1 / __builtin_hypotf(x, y); }
CUSIM_INLINE double norm3d(double x, double y, double z) {
  return __builtin_hypot(__builtin_hypot(x, y), z);
}
CUSIM_INLINE float norm3df(float x, float y, float z) { return (float)norm3d(x, y, z); }
CUSIM_INLINE double jn(int n, double x) { return __builtin_jn(n, x); }
CUSIM_INLINE float jnf(int n, float x) { return __builtin_jnf(n, x); }
CUSIM_INLINE double yn(int n, double x) { return __builtin_yn(n, x); }
CUSIM_INLINE float ynf(int n, float x) { return __builtin_ynf(n, x); }

// ---- intrinsics of single precision, here as exact as the others, and those with a rounding
CUSIM_INLINE float __sinf(float x) { return __builtin_sinf(x); }
CUSIM_INLINE float __cosf(float x) { return __builtin_cosf(x); }
CUSIM_INLINE float __tanf(float x) { return __builtin_tanf(x); }
CUSIM_INLINE float __expf(float x) { return __builtin_expf(x); }
CUSIM_INLINE float __exp10f(float x) { return __builtin_exp10f(x); }
CUSIM_INLINE float __logf(float x) { return __builtin_logf(x); }
CUSIM_INLINE float __log2f(float x) { return __builtin_log2f(x); }
CUSIM_INLINE float __log10f(float x) { return __builtin_log10f(x); }
CUSIM_INLINE float __powf(float x, float y) { return __builtin_powf(x, y); }
CUSIM_INLINE float __fdividef(float x, float y) { return x / y; }
CUSIM_INLINE float fdividef(float x, float y) { return x / y; }
CUSIM_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }
CUSIM_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
#define CUSIM_NEAREST(T, prefix)                            \
  CUSIM_INLINE T prefix##add_rn(T a, T b) { return a + b; } \
  CUSIM_INLINE T prefix##sub_rn(T a, T b) { return a - b; } \
  CUSIM_INLINE T prefix##mul_rn(T a, T b) { return a * b; } \
  CUSIM_INLINE T prefix##div_rn(T a, T b) { return a / b; } \
  CUSIM_INLINE T prefix##rcp_rn(T a) { return 1 / a; }      \
  CUSIM_INLINE T prefix##sqrt_rn(T a) { return sqrt(a); }
CUSIM_NEAREST(float, __f)
CUSIM_NEAREST(double, __d)
CUSIM_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CUSIM_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

// ---- bits, and conversions
#define CUSIM_BITS(name, From, To)           \
  CUSIM_INLINE To name(From x) {             \
    To result;                               \
    __builtin_memcpy(&result, &x, sizeof x); \
    return result;                           \
  }
CUSIM_BITS(__float_as_int, float, int)
CUSIM_BITS(__float_as_uint, float, unsigned)
CUSIM_BITS(__int_as_float, int, float)
CUSIM_BITS(__uint_as_float, unsigned, float)
CUSIM_BITS(__double_as_longlong, double, long long)
CUSIM_BITS(__longlong_as_double, long long, double)
CUSIM_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
CUSIM_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
CUSIM_INLINE double __hiloint2double(int high, int low) {
  return __longlong_as_double(
      (long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}
// To integers, out of range to the nearest, as the device does. NaN is 0 where both have 32 bits,
// else only the highest bit is set (the manual of PTX, cvt).
#define CUSIM_TO_WHOLE(name, From, To, low, high, text)                                         \
  CUSIM_INLINE To name(From x) {                                                                \
    if (x != x) return sizeof(From) + sizeof(To) == 8 ? 0 : (To)(1ull << (8 * sizeof(To) - 1)); \
    return x <= (From)low ? low : x >= (From)high ? high : (To)text;                            \
  }
#define CUSIM_TO_WHOLES(prefix, From, f)                                                          \
  CUSIM_TO_WHOLE(prefix##int_rn, From, int, (-2147483647 - 1), 2147483647, __builtin_rint##f(x))  \
  CUSIM_TO_WHOLE(prefix##int_rz, From, int, (-2147483647 - 1), 2147483647, x)                     \
  CUSIM_TO_WHOLE(prefix##int_rd, From, int, (-2147483647 - 1), 2147483647, __builtin_floor##f(x)) \
  CUSIM_TO_WHOLE(prefix##int_ru, From, int, (-2147483647 - 1), 2147483647, __builtin_ceil##f(x))  \
  CUSIM_TO_WHOLE(prefix##uint_rn, From, unsigned, 0, 4294967295u, __builtin_rint##f(x))           \
  CUSIM_TO_WHOLE(prefix##uint_rz, From, unsigned, 0, 4294967295u, x)                              \
  CUSIM_TO_WHOLE(prefix##ll_rn, From, long long, (-9223372036854775807 - 1), 9223372036854775807, \
                 __builtin_rint##f(x))                                                            \
  CUSIM_TO_WHOLE(prefix##ll_rz, From, long long, (-9223372036854775807 - 1), 9223372036854775807, x)
CUSIM_TO_WHOLES(__float2, float, f)
CUSIM_TO_WHOLES(__double2, double, )
CUSIM_INLINE float __int2float_rn(int x) { return (float)x; }
CUSIM_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
CUSIM_INLINE float __ll2float_rn(long long x) { return (float)x; }
CUSIM_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
CUSIM_INLINE double __int2double_rn(int x) { return x; }
CUSIM_INLINE double __ll2double_rn(long long x) { return (double)x; }
CUSIM_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
CUSIM_INLINE float __double2float_rn(double x) { return (float)x; }
// Without the built-in ones, which call libgcc.
CUSIM_INLINE int __popcll(unsigned long long x) {
  x -= x >> 1 & 0x5555555555555555ull;
  x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
  return (int)((x + (x >> 4) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
CUSIM_INLINE int __popc(unsigned x) { return __popcll(x); }
CUSIM_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
CUSIM_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
CUSIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
CUSIM_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}
inline unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
CUSIM_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
CUSIM_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
CUSIM_INLINE long long __mul64hi(long long a, long long b) {
  return (long long)((__int128)a * b >> 64);
}
CUSIM_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
  return c;
}
#define CUSIM_LOADS(name)     \
  template <class T>          \
  inline T name(const T* p) { \
    return *p;                \
  }
CUSIM_LOADS(__ldg)
CUSIM_LOADS(__ldcg)
CUSIM_LOADS(__ldca)
CUSIM_LOADS(__ldcs)
CUSIM_LOADS(__ldlu)
CUSIM_LOADS(__ldcv)
#define CUSIM_STORES(name)          \
  template <class T>                \
  inline void name(T* p, T value) { \
    *p = value;                     \
  }
CUSIM_STORES(__stwb)
CUSIM_STORES(__stcg)
CUSIM_STORES(__stcs)
CUSIM_STORES(__stwt)

// Helpers of the elementwise bodies in elementwise.cpp, and the loops around them. a, b, c are the
// operands, p a number.
#if IS_FLOAT
T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T mod = fmod(a, b);
  T quotient = (a - mod) / b;  // near an integer
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
  if (quotient == 0) return copysign((T)0, a / b);
  const T floored = floor(quotient);
  return quotient - floored > (T)0.5 ? floored + 1 : floored;
}
T trunc_quotient(T a, T b) { return trunc(a / b); }
T trunc_rest(T a, T b) { return fmod(a, b); }
T floor_rest(T a, T b) {
  const T mod = fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}
T power(T a, T b) { return pow(a, b); }
#define NORMAL_CDF(x) ((T)0.5 * (1 + erf((x) * (T)0.7071067811865476)))
#define GELU_INNER(x) ((T)0.7978845608028654 * ((x) + (T)0.044715 * (x) * (x) * (x)))
#else
// Quotients by 0 are 0: a device has no way to raise in time.
T trunc_quotient(T a, T b) { return b == 0 ? (T)0 : b == (T)-1 ? (T)(0 - a) : (T)(a / b); }
T trunc_rest(T a, T b) { return b == 0 || b == (T)-1 ? (T)0 : (T)(a % b); }
T floor_quotient(T a, T b) {
  const T q = trunc_quotient(a, b);
  return b != 0 && (a < 0) != (b < 0) && (T)(q * b) != a ? (T)(q - 1) : q;
}
T floor_rest(T a, T b) {
  const T mod = trunc_rest(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? (T)(mod + b) : mod;
}
T power(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (T)(b & 1 ? -1 : 1) : (T)0;
  T result = 1;
  for (; b > 0; b >>= 1, a = (T)(a * a)) {
    if (b & 1) result = (T)(result * a);
  }
  return result;
}
#define SHIFT_FITS(b) ((b) >= 0 && (b) < (T)(8 * sizeof(T)))
#endif

#define GET(k, from, place) (flags & (1 << k) ? v##k : from[place])
#define ELEMENTWISE1(NAME, O, BODY)                                                           \
  __kernel void NAME##_c(__global O* o, __global const T* pa, T v0, T p, int flags, long n) { \
    const long i = get_global_id(0);                                                          \
    if (i >= n) return;                                                                       \
    const T a = GET(0, pa, i);                                                                \
    o[i] = (O)(BODY);                                                                         \
  }                                                                                           \
  __kernel void NAME##_s(__global O* o, __global const T* pa, T v0, T p, int flags,           \
                         const Space s) {                                                     \
    const long i = get_global_id(0);                                                          \
    if (i >= s.n) return;                                                                     \
    PLACES2(s, i)                                                                             \
    const T a = GET(0, pa, p1);                                                               \
    o[p0] = (O)(BODY);                                                                        \
  }
#define ELEMENTWISE2(NAME, O, BODY)                                                             \
  __kernel void NAME##_c(__global O* o, __global const T* pa, T v0, __global const T* pb, T v1, \
                         T p, int flags, long n) {                                              \
    const long i = get_global_id(0);                                                            \
    if (i >= n) return;                                                                         \
    const T a = GET(0, pa, i), b = GET(1, pb, i);                                               \
    o[i] = (O)(BODY);                                                                           \
  }                                                                                             \
  __kernel void NAME##_s(__global O* o, __global const T* pa, T v0, __global const T* pb, T v1, \
                         T p, int flags, const Space s) {                                       \
    const long i = get_global_id(0);                                                            \
    if (i >= s.n) return;                                                                       \
    PLACES3(s, i)                                                                               \
    const T a = GET(0, pa, p1), b = GET(1, pb, p2);                                             \
    o[p0] = (O)(BODY);                                                                          \
  }
#define ELEMENTWISE3(NAME, A, O, BODY)                                                          \
  __kernel void NAME##_c(__global O* o, __global const A* pa, A v0, __global const T* pb, T v1, \
                         __global const T* pc, T v2, T p, int flags, long n) {                  \
    const long i = get_global_id(0);                                                            \
    if (i >= n) return;                                                                         \
    const A a = GET(0, pa, i);                                                                  \
    const T b = GET(1, pb, i), c = GET(2, pc, i);                                               \
    o[i] = (O)(BODY);                                                                           \
  }                                                                                             \
  __kernel void NAME##_s(__global O* o, __global const A* pa, A v0, __global const T* pb, T v1, \
                         __global const T* pc, T v2, T p, int flags, const Space s) {           \
    const long i = get_global_id(0);                                                            \
    if (i >= s.n) return;                                                                       \
    PLACES4(s, i)                                                                               \
    const A a = GET(0, pa, p1);                                                                 \
    const T b = GET(1, pb, p2), c = GET(2, pc, p3);                                             \
    o[p0] = (O)(BODY);                                                                          \
  }
// Loops around a fused body, a call in a, b, c and the numbers p0 to p3.
#define RB_BODY
#define FUSED(BODY)                                                                              \
  __kernel void fused_c(__global T* o, __global const T* pa, T v0, __global const T* pb, T v1,   \
                        __global const T* pc, T v2, T p0, T p1, T p2, T p3, int flags, long n) { \
    const long i = get_global_id(0);                                                             \
    if (i >= n) return;                                                                          \
    const T a = GET(0, pa, i), b = GET(1, pb, i), c = GET(2, pc, i);                             \
    o[i] = BODY;                                                                                 \
  }                                                                                              \
  __kernel void fused_s(__global T* o, __global const T* pa, T v0, __global const T* pb, T v1,   \
                        __global const T* pc, T v2, T p0, T p1, T p2, T p3, int flags,           \
                        const Space s) {                                                         \
    const long i = get_global_id(0);                                                             \
    if (i >= s.n) return;                                                                        \
    __global T* to;                                                                              \
    T a, b, c;                                                                                   \
    {                                                                                            \
      PLACES4(s, i)                                                                              \
      to = o + p0;                                                                               \
      a = GET(0, pa, p1), b = GET(1, pb, p2), c = GET(2, pc, p3);                                \
    }                                                                                            \
    *to = BODY;                                                                                 \
  }

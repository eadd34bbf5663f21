// The loop around elementwise bodies, and the scalar primitives of core's formulas. Before it stand
// A, B and C, in which the operands are stored, T, which is computed in, and O, the result's.
struct Call {  // twin of rbcuda's
  Number numbers[3], parameters[4];
  int is_number, reserved;
};
template <class T, class S>
__device__ inline T operand(const S* x, const Call& call, int k, Int64 place) {
  return call.is_number >> k & 1 ? as_number<T>(call.numbers[k]) : As<T>::of(x[place]);
}

#define RB_BODY __device__ inline
// The expression is in the operands a, b and c, in `chosen`, which is a as a truth value, and in
// the call's numbers p0 to p3.
#define RB_LOOP(...)                                                                             \
  extern "C" __global__ void rb_kernel(O* out, const A* x0, const B* x1, const C* x2,            \
                                       const Call call, const Layout layout) {                   \
    const T p0 = as_number<T>(call.parameters[0]), p1 = as_number<T>(call.parameters[1]),        \
            p2 = as_number<T>(call.parameters[2]), p3 = as_number<T>(call.parameters[3]);        \
    (void)p0, (void)p1, (void)p2, (void)p3;                                                      \
    for (Int64 i = RB_THREAD; i < layout.n; i += RB_THREADS) {                                   \
      const Places p = places_of(layout, i);                                                     \
      const T a = operand<T>(x0, call, 0, p.at[1]), b = operand<T>(x1, call, 1, p.at[2]),        \
              c = operand<T>(x2, call, 2, p.at[3]);                                              \
      const bool chosen = As<bool>::of(a);                                                       \
      (void)a, (void)b, (void)c, (void)chosen;                                                   \
      out[p.at[0]] = As<O>::of(__VA_ARGS__);                                                     \
    }                                                                                            \
  }

#define RB_UNARY(name, text) \
  template <class T>         \
  __device__ inline T rb_##name(T a) { return (T)(text); }
// Integers are whole already.
#define RB_WHOLE(name, text) \
  template <class T>         \
  __device__ inline T rb_##name(T a) { return IsFloat<T>::value ? (T)(text) : a; }
#define RB_BINARY(name, text) \
  template <class T>          \
  __device__ inline T rb_##name(T a, T b) { return (T)(text); }
#define RB_TEST1(name, text) \
  template <class T>         \
  __device__ inline bool rb_##name(T a) { return text; }
#define RB_TEST2(name, text) \
  template <class T>         \
  __device__ inline bool rb_##name(T a, T b) { return text; }

RB_UNARY(neg, -a)
RB_UNARY(abs, a < 0 ? -a : a == 0 ? (T)0 : a)
RB_UNARY(sgn, (a > 0) - (a < 0))
RB_UNARY(exp, exp(a))
RB_UNARY(expm1, expm1(a))
RB_UNARY(log, log(a))
RB_UNARY(log2, log2(a))
RB_UNARY(log10, log10(a))
RB_UNARY(log1p, log1p(a))
RB_UNARY(sqrt, sqrt(a))
RB_UNARY(tan, tan(a))
RB_UNARY(asin, asin(a))
RB_UNARY(acos, acos(a))
RB_UNARY(atan, atan(a))
RB_UNARY(sinh, sinh(a))
RB_UNARY(cosh, cosh(a))
RB_UNARY(tanh, tanh(a))
RB_UNARY(erf, erf(a))
RB_UNARY(erfc, erfc(a))
RB_WHOLE(floor, floor(a))
RB_WHOLE(ceil, ceil(a))
RB_WHOLE(trunc, trunc(a))
RB_WHOLE(round, rint(a))
RB_UNARY(relu, a < 0 ? (T)0 : a)
RB_TEST1(isnan, a != a)
RB_TEST1(isinf, a == a && a - a != 0)
RB_TEST1(isfinite, a - a == 0)
RB_TEST1(logical_not, a == 0)
RB_BINARY(add, a + b)
RB_BINARY(sub, a - b)
RB_BINARY(mul, a * b)
RB_BINARY(div, a / b)
RB_BINARY(atan2, atan2(a, b))
RB_BINARY(maximum, a > b || a != a ? a : b)
RB_BINARY(minimum, a < b || a != a ? a : b)
RB_BINARY(relu_vjp, b <= 0 ? (T)0 : a)
RB_TEST2(eq, a == b)
RB_TEST2(ne, a != b)
RB_TEST2(lt, a < b)
RB_TEST2(le, a <= b)
RB_TEST2(gt, a > b)
RB_TEST2(ge, a >= b)
template <class T>
__device__ inline T rb_clamp(T a, T b, T c) {
  return rb_minimum(rb_maximum(a, b), c);
}

// Quotients and remainders. Integers divided by 0 give -1, as the device does, and remainders a.
template <class T, int floating = IsFloat<T>::value>
struct Division {
  // By -1: the quotient of the least integer does not fit, it stays what it is.
  static __device__ bool negates(T b) { return (T)-1 < (T)0 && b == (T)-1; }
  static __device__ T cut(T a, T b) {
    return b == 0 ? (T)-1 : negates(b) ? (T)(0 - (UInt64)a) : (T)(a / b);
  }
  static __device__ T rest(T a, T b) { return b == 0 ? a : negates(b) ? (T)0 : (T)(a % b); }
  static __device__ T down(T a, T b) {
    const T quotient = cut(a, b), left = rest(a, b);
    return left != 0 && (b < 0) != (left < 0) ? (T)(quotient - 1) : quotient;
  }
};
template <class T>
struct Division<T, 1> {
  static __device__ T cut(T a, T b) { return trunc(a / b); }
  static __device__ T rest(T a, T b) { return fmod(a, b); }
  static __device__ T down(T a, T b) {
    if (b == 0) return a / b;
    const T left = fmod(a, b);
    T quotient = (a - left) / b;  // near an integer
    if (left != 0 && (b < 0) != (left < 0)) quotient -= 1;
    if (quotient == 0) return copysign((T)0, a / b);
    const T floored = floor(quotient);
    return quotient - floored > (T)0.5 ? floored + 1 : floored;
  }
};
RB_BINARY(div_trunc, Division<T>::cut(a, b))
RB_BINARY(fmod, Division<T>::rest(a, b))
RB_BINARY(div_floor, Division<T>::down(a, b))
template <class T>
__device__ inline T rb_remainder(T a, T b) {
  const T rest = Division<T>::rest(a, b);
  return rest != 0 && b != 0 && (b < 0) != (rest < 0) ? (T)(rest + b) : rest;
}

template <class T, int floating = IsFloat<T>::value>
struct Power {
  static __device__ T of(T a, T b) {
    if (b < 0) return a == 1 ? (T)1 : a == (T)-1 ? (b % 2 ? (T)-1 : (T)1) : (T)0;
    T result = 1;
    for (; b > 0; b = (T)(b / 2)) {
      if (b % 2) result = (T)(result * a);
      a = (T)(a * a);
    }
    return result;
  }
};
template <class T>
struct Power<T, 1> {
  static __device__ T of(T a, T b) { return pow(a, b); }
};
RB_BINARY(pow, Power<T>::of(a, b))

// Shifts by less than 0 or by the width and more leave nothing but the sign.
template <class T>
__device__ inline T shifted_left(T a, T b) {
  return b >= 0 && b < (T)(8 * sizeof(T)) ? (T)((UInt64)a << b) : (T)0;
}
template <class T>
__device__ inline T shifted_right(T a, T b) {
  return b >= 0 && b < (T)(8 * sizeof(T)) ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}

// Before every kernel: positions, the loop around elementwise bodies, and the scalar primitives of
// core's formulas. Behind it come T, the dtype computed in, and O, the result's.
struct Layout {  // twin of rbcuda::Layout
  long long n;
  int ndim, reserved;
  long long shape[8];
  long long strides[4][8];
};
struct Number {
  double real;
  long long whole;
};
struct Call {
  Number numbers[3], parameters[4];
  int is_number, reserved;
};

template <class T>
struct Takes {
  static __device__ T from(const Number& x) { return (T)x.whole; }
};
template <>
struct Takes<float> {
  static __device__ float from(const Number& x) { return (float)x.real; }
};
template <>
struct Takes<double> {
  static __device__ double from(const Number& x) { return x.real; }
};

template <class T>
__device__ inline T operand(const T* x, const Call& call, int k, long long place) {
  return call.is_number >> k & 1 ? Takes<T>::from(call.numbers[k]) : x[place];
}

#define RB_BODY __device__ inline
#define RB_LOOP(...)                                                                            \
  extern "C" __global__ void rb_loop(O* out, const T* x0, const T* x1, const T* x2,             \
                                     const Call call, const Layout layout) {                    \
    const T p0 = Takes<T>::from(call.parameters[0]), p1 = Takes<T>::from(call.parameters[1]),   \
            p2 = Takes<T>::from(call.parameters[2]), p3 = Takes<T>::from(call.parameters[3]);   \
    (void)p0, (void)p1, (void)p2, (void)p3;                                                     \
    const long long step = (long long)gridDim.x * blockDim.x;                                   \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < layout.n;          \
         i += step) {                                                                           \
      long long rest = i, place[4] = {0, 0, 0, 0};                                              \
      for (int d = layout.ndim - 1; d >= 0; --d) {                                              \
        const long long at = d ? rest % layout.shape[d] : rest;                                 \
        rest = d ? rest / layout.shape[d] : 0;                                                  \
        for (int k = 0; k < 4; ++k) place[k] += at * layout.strides[k][d];                      \
      }                                                                                         \
      const T a = operand(x0, call, 0, place[1]), b = operand(x1, call, 1, place[2]),           \
              c = operand(x2, call, 2, place[3]);                                               \
      (void)a, (void)b, (void)c;                                                                \
      out[place[0]] = (O)(__VA_ARGS__);                                                         \
    }                                                                                           \
  }

#define RB_UNARY(name, text) \
  template <class T>         \
  __device__ inline T rb_##name(T a) { return (T)(text); }
#define RB_BINARY(name, text) \
  template <class T>          \
  __device__ inline T rb_##name(T a, T b) { return (T)(text); }
#define RB_TERNARY(name, text) \
  template <class T>           \
  __device__ inline T rb_##name(T a, T b, T c) { return (T)(text); }

RB_UNARY(neg, -a)
RB_UNARY(abs, fabs(a))
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
RB_UNARY(floor, floor(a))
RB_UNARY(ceil, ceil(a))
RB_UNARY(trunc, trunc(a))
RB_UNARY(round, rint(a))
RB_UNARY(relu, a < 0 ? (T)0 : a)
RB_UNARY(isnan, a != a)
RB_UNARY(isinf, a == a && a - a != 0)
RB_UNARY(isfinite, a - a == 0)
RB_UNARY(logical_not, a == 0)
RB_BINARY(add, a + b)
RB_BINARY(sub, a - b)
RB_BINARY(mul, a * b)
RB_BINARY(div, a / b)
RB_BINARY(div_trunc, trunc(a / b))
RB_BINARY(fmod, fmod(a, b))
RB_BINARY(pow, pow(a, b))
RB_BINARY(atan2, atan2(a, b))
RB_BINARY(maximum, a > b || a != a ? a : b)
RB_BINARY(minimum, a < b || a != a ? a : b)
RB_BINARY(relu_vjp, b <= 0 ? (T)0 : a)
RB_BINARY(eq, a == b)
RB_BINARY(ne, a != b)
RB_BINARY(lt, a < b)
RB_BINARY(le, a <= b)
RB_BINARY(gt, a > b)
RB_BINARY(ge, a >= b)
RB_TERNARY(clamp, rb_minimum(rb_maximum(a, b), c))
template <class T>
__device__ inline T rb_remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}
template <class T>
__device__ inline T rb_div_floor(T a, T b) {
  if (b == 0) return a / b;
  const T rest = fmod(a, b);
  T quotient = (a - rest) / b;  // near an integer
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysign((T)0, a / b);
  const T floored = floor(quotient);
  return quotient - floored > (T)0.5 ? floored + 1 : floored;
}

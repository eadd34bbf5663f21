// Elementwise loops, and the scalar primitives of core's formulas. Before it stand A, B and C, in
// which the operands are stored, T, which is computed in, and O, the result's.
struct Call {  // twin of rbcuda's
  Number numbers[3], parameters[4];
  int is_number, is_single;  // a bit each: the number above; one element for a whole pack
};
#define RB_LARGER(a, b) ((a) > (b) ? (a) : (b))
enum {
  kPack = 16 / RB_LARGER(RB_LARGER(sizeof(A), sizeof(B)), RB_LARGER(sizeof(C), sizeof(O)))
};

template <int N, class S>
__device__ inline void load_operand(T (&to)[N], const S* x, const Call& call, int k, Int64 place) {
  if (call.is_number >> k & 1) {
    for (int e = 0; e < N; ++e) to[e] = as_number<T>(call.numbers[k]);
  } else if (N > 1 && call.is_single >> k & 1) {
    const T single = As<T>::of(x[place]);
    for (int e = 0; e < N; ++e) to[e] = single;
  } else {
    const Pack<S, N> pack = load_pack<N>(x + place);
    for (int e = 0; e < N; ++e) to[e] = As<T>::of(pack.at[e]);
  }
}
__device__ inline O result_of(T a, T b, T c, const Call& call, Int64 i);
// N positions that lie side by side: operands, then results from position i on.
template <int N>
struct Step {
  T a[N], b[N], c[N];
  __device__ void load(const A* x0, const B* x1, const C* x2, const Call& call, Int64 at0,
                       Int64 at1, Int64 at2) {
    load_operand(a, x0, call, 0, at0);
    load_operand(b, x1, call, 1, at1);
    load_operand(c, x2, call, 2, at2);
  }
  __device__ void store(O* out, const Call& call, Int64 i) const {
    Pack<O, N> pack;
    for (int e = 0; e < N; ++e) pack.at[e] = result_of(a[e], b[e], c[e], call, i + e);
    store_pack(out, pack);
  }
};

#define RB_BODY __device__ inline
// The expression is in the operands a, b and c, in `chosen`, which is a as a truth value, in the
// call's numbers p0 to p3, and in the position i.
#define RB_EXPRESSION(...)                                                                       \
  __device__ inline O result_of(T a, T b, T c, const Call& call, Int64 i) {                      \
    const T p0 = as_number<T>(call.parameters[0]), p1 = as_number<T>(call.parameters[1]),        \
            p2 = as_number<T>(call.parameters[2]), p3 = as_number<T>(call.parameters[3]);        \
    const bool chosen = As<bool>::of(a);                                                         \
    (void)a, (void)b, (void)c, (void)i, (void)chosen, (void)p0, (void)p1, (void)p2, (void)p3;    \
    return As<O>::of(__VA_ARGS__);                                                               \
  }
#define RB_KERNEL(...)                                                                    \
  extern "C" __global__ void rb_kernel(O* out, const A* x0, const B* x1, const C* x2,     \
                                       const Call call, __VA_ARGS__)
// All without gaps, in packs; the last thread takes the rest.
#define RB_FLAT(...)                                   \
  RB_EXPRESSION(__VA_ARGS__)                           \
  RB_KERNEL(const Int64 n) {                           \
    const Int64 packs = n / kPack;                     \
    RB_FOR(j, packs + 1) {                             \
      const Int64 i = j * kPack;                       \
      if (j < packs) {                                 \
        Step<kPack> step;                              \
        step.load(x0, x1, x2, call, i, i, i);          \
        step.store(out + i, call, i);                  \
      } else {                                         \
        _Pragma("unroll 1") for (Int64 e = i; e < n; ++e) { \
          Step<1> step;                                \
          step.load(x0, x1, x2, call, e, e, e);        \
          step.store(out + e, call, e);                \
        }                                              \
      }                                                \
    }                                                  \
  }
// Packs along the last dimension: positions of the layout are packs.
#define RB_ROWS(...)                                             \
  RB_EXPRESSION(__VA_ARGS__)                                     \
  RB_KERNEL(const Layout32 layout) {                             \
    RB_FOR32(j, layout.n) {                                      \
      const Places32 p = places_of(layout, j);                   \
      Step<kPack> step;                                          \
      step.load(x0, x1, x2, call, p.at[1], p.at[2], p.at[3]);    \
      step.store(out + p.at[0], call, 0);                        \
    }                                                            \
  }
// Any layout: four positions at a time, so that their loads overlap.
#define RB_PLACES(...)                                                                    \
  RB_EXPRESSION(__VA_ARGS__)                                                              \
  RB_KERNEL(const Layout32 layout) {                                                      \
    const UInt32 block = blockDim.x * 4;                                                  \
    for (UInt32 first = blockIdx.x * block + threadIdx.x; first < layout.n;               \
         first += gridDim.x * block) {                                                    \
      Step<1> steps[4];                                                                   \
      int to[4];                                                                          \
      _Pragma("unroll") for (int k = 0; k < 4; ++k) {                                     \
        const UInt32 i = first + k * blockDim.x;                                          \
        if (i >= layout.n) continue;                                                      \
        const Places32 p = places_of(layout, i);                                          \
        to[k] = p.at[0];                                                                  \
        steps[k].load(x0, x1, x2, call, p.at[1], p.at[2], p.at[3]);                       \
      }                                                                                   \
      _Pragma("unroll") for (int k = 0; k < 4; ++k) {                                     \
        const UInt32 i = first + k * blockDim.x;                                          \
        if (i < layout.n) steps[k].store(out + to[k], call, i);                           \
      }                                                                                   \
    }                                                                                     \
  }
// The same where 31 bits are too few.
#define RB_PLACES64(...)                                         \
  RB_EXPRESSION(__VA_ARGS__)                                     \
  RB_KERNEL(const Layout layout) {                               \
    RB_FOR(i, layout.n) {                                        \
      const Places p = places_of(layout, i);                     \
      Step<1> step;                                              \
      step.load(x0, x1, x2, call, p.at[1], p.at[2], p.at[3]);    \
      step.store(out + p.at[0], call, i);                        \
    }                                                            \
  }

#define RB_UNARY(name, text) \
  template <class T>         \
  __device__ inline T rb_##name(T a) { return (T)(text); }
// Integers are whole already; for them the text would be ambiguous.
#define RB_WHOLE(name, text)                              \
  template <class T>                                      \
  __device__ inline T rb_##name(T a) {                    \
    if constexpr (IsFloat<T>::value) return (T)(text);    \
    return a;                                             \
  }
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
RB_UNARY(sin, sin(a))
RB_UNARY(cos, cos(a))
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
RB_UNARY(real, a)
RB_UNARY(imag, 0)
RB_UNARY(conj, a)
RB_TEST1(isnan, a != a)
RB_TEST1(isinf, a == a && a - a != 0)
RB_TEST1(isfinite, a - a == 0)
RB_TEST1(logical_not, !As<bool>::of(a))
RB_BINARY(add, a + b)
RB_BINARY(sub, a - b)
RB_BINARY(mul, a * b)
RB_BINARY(div, a / b)
RB_BINARY(atan2, atan2(a, b))
RB_BINARY(copysign, copysign(a, b))
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

// To the nearest multiple of 1 / factor where it divides, else of factor.
template <class T>
__device__ inline T rounded(T a, double factor, bool divides) {
  if constexpr (IsFloat<T>::value) {
    if (!(a - a == 0)) return a;
    const T by = (T)factor;
    return divides ? (T)(rint(a * by) / by) : (T)(rint(a / by) * by);
  }
  return divides ? a : As<T>::of(rint((double)a / factor) * factor);
}

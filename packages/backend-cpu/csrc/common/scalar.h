// Scalar bodies of the elementwise functions, one text for every dtype. `types` says for which
// categories a function exists. Included by one translation unit per dtype group and level;
// everything has internal linkage.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/vecmath_angles.h"
#include "common/vecmath_quotients.h"

namespace {

enum : int { kB = 1, kI = 2, kF = 4, kC = 8, kReal = 7, kAny = 15, kFC = 12, kBI = 3 };

template <class T>
constexpr int category_v = std::is_same<T, bool>::value       ? kB
                           : std::is_integral<T>::value       ? kI
                           : std::is_floating_point<T>::value ? kF
                                                              : kC;
template <class T, int K>
constexpr int category_v<Pack<T, K>> = category_v<T>;
template <class T>
constexpr bool is_fp = category_v<T> == kF;
template <class T>
constexpr bool is_f32 = std::is_same<T, float>::value;

// libm by overload, so that bodies need no std:: templates (weak symbols would mix the levels).
#define RB_LIBM(name)                                                  \
  RB_INLINE float m_##name(float x) { return __builtin_##name##f(x); } \
  RB_INLINE double m_##name(double x) { return __builtin_##name(x); }
// clang-format off
RB_LIBM(exp) RB_LIBM(expm1) RB_LIBM(log) RB_LIBM(log2) RB_LIBM(log10) RB_LIBM(log1p)
RB_LIBM(sqrt) RB_LIBM(sin) RB_LIBM(cos) RB_LIBM(tan) RB_LIBM(asin) RB_LIBM(acos) RB_LIBM(atan)
RB_LIBM(sinh) RB_LIBM(cosh) RB_LIBM(tanh) RB_LIBM(erf) RB_LIBM(erfc) RB_LIBM(floor)
RB_LIBM(ceil) RB_LIBM(trunc) RB_LIBM(rint) RB_LIBM(fabs)

// The same for packs.
#define RB_OF_PACK(name, function)                \
  template <class T, int K>                       \
  RB_INLINE Pack<T, K> name(const Pack<T, K>& x) { \
    return function(x);                           \
  }
RB_OF_PACK(m_fabs, vm_abs)
RB_OF_PACK(m_sqrt, vm_sqrt)
RB_OF_PACK(m_floor, vm_floor)
RB_OF_PACK(m_rint, vm_rint)
#undef RB_OF_PACK

// What has a polynomial in vecmath.h or vecmath64.h goes there.
#define RB_VECTOR(name)                      \
  template <class V>                         \
  RB_INLINE V s_##name(const V& x) {         \
    return vm_##name(x);                     \
  }
#define RB_VECTOR32(name)                    \
  template <class V>                         \
  RB_INLINE V s_##name(const V& x) {         \
    if constexpr (std::is_same<V, double>::value) return m_##name(x); else return vm_##name(x); \
  }
RB_VECTOR(exp) RB_VECTOR(expm1) RB_VECTOR(log) RB_VECTOR(log1p) RB_VECTOR(tanh) RB_VECTOR(erf)
RB_VECTOR(asin) RB_VECTOR(acos) RB_VECTOR(atan) RB_VECTOR(sinh) RB_VECTOR(cosh)
RB_VECTOR32(log2) RB_VECTOR32(log10) RB_VECTOR32(erfc)
template <class V>
RB_INLINE V s_pow(const V& x, const V& y) { return vm_pow(x, y); }
// clang-format on

#ifdef RB_COMPLEX_BODIES
#define RB_COMPLEX_CASE(expression) \
  if constexpr (category_v<T> == kC) return expression;
#else
#define RB_COMPLEX_CASE(expression)
#endif

#define RB_OP1(name, categories, body)       \
  struct op_##name {                         \
    static constexpr int types = categories; \
    template <class T>                       \
    RB_INLINE T f(T x) body                  \
  };
#define RB_OP2(name, categories, body)       \
  struct op_##name {                         \
    static constexpr int types = categories; \
    template <class T>                       \
    RB_INLINE T f(T x, T y) body             \
  };
// A truth value, of packs a mask.
#define RB_TEST1(name, categories, body)     \
  struct op_##name {                         \
    static constexpr int types = categories; \
    template <class T>                       \
    RB_INLINE auto f(T x) body               \
  };
#define RB_TEST2(name, categories, body)     \
  struct op_##name {                         \
    static constexpr int types = categories; \
    template <class T>                       \
    RB_INLINE auto f(T x, T y) body          \
  };
#define RB_OP3(name, categories, body)       \
  struct op_##name {                         \
    static constexpr int types = categories; \
    template <class T>                       \
    RB_INLINE T f(T x, T y, T z) body        \
  };

template <class T>
RB_INLINE auto not_a_number(T x) {
  return x != x;
}
struct op_where {
  template <class T, class M>
  RB_INLINE T f(M mask, T x, T y) {
    return vm_select(mask, x, y);
  }
  // Packs compute a side where a lane takes it.
  template <class T, class M, class X, class Y>
  RB_INLINE T lazy(M mask, const X& x, const Y& y) {
    if constexpr (is_pack<T>) {
      T a(0), b(0);
      if (vm_any(mask)) a = x();
      if (vm_any(mask == M(0))) b = y();
      return vm_select(mask, a, b);
    } else {
      return vm_select(mask, x(), y());
    }
  }
};

// ---- one argument

RB_OP1(neg, kI | kFC, { return T(-x); })
RB_OP1(abs, kReal, {
  if constexpr (is_fp<T>)
    return m_fabs(x);
  else if constexpr (std::is_signed<T>::value)
    return T(x < T(0) ? T(-x) : x);
  else
    return x;
})
RB_OP1(sgn, kAny, {
  RB_COMPLEX_CASE(x == T(0) ? T(0) : x / c_abs(x))
  if constexpr (category_v<T> == kB)
    return x;
  else if constexpr (is_pack<T>)
    return vm_select(x > T(0), T(1), vm_select(x < T(0), T(-1), T(0)));
  else if constexpr (category_v<T> != kC)
    return T((x > T(0)) - (x < T(0)));
})
RB_OP1(exp, kFC, { RB_COMPLEX_CASE(c_exp(x)) if constexpr (is_fp<T>) return s_exp(x); })
RB_OP1(expm1, kFC, { RB_COMPLEX_CASE(c_expm1(x)) if constexpr (is_fp<T>) return s_expm1(x); })
RB_OP1(log, kFC, { RB_COMPLEX_CASE(c_log(x)) if constexpr (is_fp<T>) return s_log(x); })
RB_OP1(log2, kFC, {
  RB_COMPLEX_CASE(c_scale(c_log(x), 1.4426950408889634)) if constexpr (is_fp<T>) return s_log2(x);
})
RB_OP1(log10, kFC, {
  RB_COMPLEX_CASE(c_scale(c_log(x), 0.43429448190325183)) if constexpr (is_fp<T>) return s_log10(x);
})
RB_OP1(log1p, kFC, { RB_COMPLEX_CASE(c_log1p(x)) if constexpr (is_fp<T>) return s_log1p(x); })
RB_OP1(sqrt, kFC, { RB_COMPLEX_CASE(c_sqrt(x)) if constexpr (is_fp<T>) return m_sqrt(x); })
RB_OP1(rsqrt, kF, { return T(1) / m_sqrt(x); })
RB_OP1(cube, kF, { return x * x * x; })
RB_OP1(sin, kFC, { RB_COMPLEX_CASE(c_sin(x)) if constexpr (is_fp<T>) return m_sin(x); })
RB_OP1(cos, kFC, { RB_COMPLEX_CASE(c_cos(x)) if constexpr (is_fp<T>) return m_cos(x); })
RB_OP1(tan, kFC, { RB_COMPLEX_CASE(c_tan(x)) if constexpr (is_fp<T>) return m_tan(x); })
RB_OP1(asin, kFC, { RB_COMPLEX_CASE(c_asin(x)) if constexpr (is_fp<T>) return s_asin(x); })
RB_OP1(acos, kFC, { RB_COMPLEX_CASE(c_acos(x)) if constexpr (is_fp<T>) return s_acos(x); })
RB_OP1(atan, kFC, { RB_COMPLEX_CASE(c_atan(x)) if constexpr (is_fp<T>) return s_atan(x); })
RB_OP1(sinh, kFC, { RB_COMPLEX_CASE(c_sinh(x)) if constexpr (is_fp<T>) return s_sinh(x); })
RB_OP1(cosh, kFC, { RB_COMPLEX_CASE(c_cosh(x)) if constexpr (is_fp<T>) return s_cosh(x); })
RB_OP1(tanh, kFC, { RB_COMPLEX_CASE(c_tanh(x)) if constexpr (is_fp<T>) return s_tanh(x); })
RB_OP1(erf, kF, { return s_erf(x); })
RB_OP1(erfc, kF, { return s_erfc(x); })
RB_OP1(floor, kReal, {
  if constexpr (is_fp<T>)
    return m_floor(x);
  else
    return x;
})
RB_OP1(ceil, kReal, {
  if constexpr (is_fp<T>)
    return m_ceil(x);
  else
    return x;
})
RB_OP1(trunc, kReal, {
  if constexpr (is_fp<T>)
    return m_trunc(x);
  else
    return x;
})
RB_OP1(round, kReal, {
  if constexpr (is_fp<T>)
    return m_rint(x);
  else
    return x;
})
RB_OP1(relu, kI | kF, { return vm_select(x < T(0), T(0), x); })  // NaN stays
RB_OP1(gelu, kF, { return T(0.5) * x * (T(1) + s_erf(x * T(0.7071067811865476))); })
RB_OP1(gelu_tanh, kF, {
  return T(0.5) * x * (T(1) + s_tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
})
RB_OP1(bitwise_not, kBI, {
  if constexpr (category_v<T> == kB)
    return !x;
  else
    return T(~x);
})
RB_OP1(conj, kAny, { RB_COMPLEX_CASE(T(x.real(), -x.imag())) return x; })

RB_TEST1(isnan, kAny, {
  RB_COMPLEX_CASE(not_a_number(x.real()) || not_a_number(x.imag()))
  return not_a_number(x);
})
RB_TEST1(isinf, kAny, {
  RB_COMPLEX_CASE(m_fabs(x.real()) == __builtin_inf() || m_fabs(x.imag()) == __builtin_inf())
  if constexpr (is_fp<T>)
    return m_fabs(x) == T(__builtin_inf());
  else
    return false;
})
RB_TEST1(isfinite, kAny, {
  RB_COMPLEX_CASE(m_fabs(x.real()) < __builtin_inf() && m_fabs(x.imag()) < __builtin_inf())
  if constexpr (is_fp<T>)
    return m_fabs(x) < T(__builtin_inf());
  else
    return true;
})
RB_TEST1(logical_not, kAny, { return x == T(0); })

// ---- two arguments

RB_OP2(add, kAny, { return T(x + y); })  // of bools: or
RB_OP2(sub, kI | kFC, { return T(x - y); })
RB_OP2(mul, kAny, { return T(x * y); })
RB_OP2(div, kFC, { return x / y; })

// Quotients of integers: the loops have checked y != 0; -y instead of x / -1, which would trap at
// the minimum.
template <class T>
RB_INLINE T int_div(T x, T y) {
  if constexpr (std::is_signed<T>::value)
    return y == T(-1) ? T(-x) : T(x / y);
  else
    return T(x / y);
}
template <class T>
RB_INLINE T int_mod(T x, T y) {
  if constexpr (std::is_signed<T>::value)
    return y == T(-1) ? T(0) : T(x % y);
  else
    return T(x % y);
}
template <class T>
RB_INLINE T int_abs(T x) {
  return x < T(0) ? T(-x) : x;
}
RB_OP2(div_floor, kBI | kF, {
  if constexpr (is_fp<T>) {
    return vm_div_floor(x, y);
  } else {
    T q = int_div(x, y);
    return T(q - T((x < T(0)) != (y < T(0)) && T(q * y) != x));
  }
})
RB_OP2(div_trunc, kBI | kF, {
  if constexpr (is_fp<T>)
    return m_trunc(x / y);
  else
    return int_div(x, y);
})
RB_OP2(remainder, kBI | kF, {
  if constexpr (is_fp<T>) {
    return vm_remainder(x, y);
  } else {
    T mod = int_mod(x, y);
    return mod != T(0) && (y < T(0)) != (mod < T(0)) ? T(mod + y) : mod;
  }
})
RB_OP2(fmod, kBI | kF, {
  if constexpr (is_fp<T>)
    return vm_fmod(x, y);
  else
    return int_mod(x, y);
})
RB_OP2(pow, kAny, {
  RB_COMPLEX_CASE(c_pow(x, y))
  if constexpr (is_fp<T>)
    return s_pow(x, y);
  else if constexpr (category_v<T> != kC) {
    if (y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? (y & T(1) ? T(-1) : T(1)) : T(0);
    T result = 1;
    for (; y > T(0); y = T(y >> 1)) {
      if (y & T(1)) result = T(result * x);
      x = T(x * x);
    }
    return result;
  }
})
RB_OP2(atan2, kF, { return vm_atan2(x, y); })
RB_OP2(copysign, kF, { return vm_copysign(x, y); })
RB_OP2(maximum, kReal, { return vm_select((x > y) | not_a_number(x), x, y); })
RB_OP2(minimum, kReal, { return vm_select((x < y) | not_a_number(x), x, y); })
// Numbers of one sign are ordered like their bits read as integers.
RB_OP2(nextafter, kF, {
  const auto bits = vm_bits(x);
  const auto one = decltype(vm_bits(x))(1u);
  const T moved = vm_cast<lane_t<T>>((y > x) == (x > T(0)) ? bits + one : bits - one);
  const T least = vm_copysign(vm_cast<lane_t<T>>(one), y);
  return not_a_number(x) | not_a_number(y) ? x + y : x == y ? y : x == T(0) ? least : moved;
})
RB_OP2(gcd, kI, {
  T a = int_abs(x);
  T b = int_abs(y);
  while (b != T(0)) {
    const T rest = int_mod(a, b);
    a = b;
    b = rest;
  }
  return int_abs(a);
})
RB_OP2(relu_vjp, kI | kF, { return vm_select(y <= T(0), T(0), x); })
RB_OP2(bitwise_and, kBI, { return T(x & y); })
RB_OP2(bitwise_or, kBI, { return T(x | y); })
RB_OP2(bitwise_xor, kBI, { return T(x ^ y); })
// Shifts by a negative number or past the width act as shifts by the width.
template <class T>
constexpr T kBits = T(8 * sizeof(T));
template <class T>
RB_INLINE bool shift_in_range(T y) {
  return (y >= T(0)) & (y < kBits<T>);
}
// Masking the count keeps the shift defined without a branch, so that loops vectorise.
RB_OP2(bitwise_left_shift, kI, {
  using U = typename std::make_unsigned<T>::type;
  const T shifted = T(U(x) << (U(y) & U(kBits<T> - 1)));
  return shift_in_range(y) ? shifted : T(0);
})
RB_OP2(bitwise_right_shift, kI, {
  using U = typename std::make_unsigned<T>::type;
  const T all = kBits<T> - T(1);
  const T count = shift_in_range(y) ? y : all;
  const T shifted = T(x >> (U(count) & U(all)));
  return shift_in_range(y) | (std::is_signed<T>::value) ? shifted : T(0);
})

RB_TEST2(eq, kAny, { return x == y; })
RB_TEST2(ne, kAny, { return x != y; })
RB_TEST2(lt, kReal, { return x < y; })
RB_TEST2(le, kReal, { return x <= y; })
RB_TEST2(gt, kReal, { return x > y; })
RB_TEST2(ge, kReal, { return x >= y; })
RB_TEST2(logical_and, kAny, { return (x != T(0)) & (y != T(0)); })
RB_TEST2(logical_or, kAny, { return (x != T(0)) | (y != T(0)); })
RB_TEST2(logical_xor, kAny, { return (x != T(0)) != (y != T(0)); })

// ---- three arguments

RB_OP3(add_alpha, kAny, { return T(x + T(z * y)); })
RB_OP3(sub_alpha, kI | kFC, { return T(x - T(z * y)); })
// NaN wins, in whichever argument; without branches, so that loops vectorise.
RB_OP3(clamp, kReal, {
  T low = vm_select((x < y) | (y != y), y, x);
  return vm_select((z < low) | (z != z), z, low);
})
RB_OP3(affine, kF, { return x * y + z; })
RB_OP3(standardize, kF, { return (x - y) * z; })

template <class Op, class T>
constexpr bool supports = (Op::types & category_v<T>) != 0;

}  // namespace

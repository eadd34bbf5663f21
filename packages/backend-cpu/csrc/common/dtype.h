// C++ types of dtypes, the two 16-bit floats, and dispatch from a dtype id to a type.
#pragma once
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/half.h"
#include "rabbet/plugin.hpp"

namespace rbcpu {

using c64 = std::complex<float>;
using c128 = std::complex<double>;

template <class T>
struct TypeTag {
  using type = T;
};

template <class T>
constexpr bool is_complex_v = std::is_same_v<T, c64> || std::is_same_v<T, c128>;
template <class T>
constexpr bool is_half_v = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T>
constexpr bool is_float_v = std::is_floating_point_v<T> || is_half_v<T>;
template <class T>
constexpr bool is_int_v = std::is_integral_v<T>;  // bool included

/// The type in which T is computed: float for the 16-bit floats.
template <class T>
using compute_t = std::conditional_t<is_half_v<T>, float, T>;

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<std::complex<R>> {
  using type = R;
};
/// The type of the parts of a complex number; T itself of other types.
template <class T>
using real_t = typename RealOf<T>::type;

constexpr int kItemSize[RB_DTYPE_COUNT] = {1, 1, 1, 2, 4, 8, 2, 4, 8, 2, 2, 4, 8, 8, 16};
constexpr const char* kDTypeNames[RB_DTYPE_COUNT] = {
    "bool",   "uint8",   "int8",     "int16",   "int32",   "int64",     "uint16",    "uint32",
    "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};

constexpr uint64_t bit(int dtype) { return uint64_t{1} << dtype; }
constexpr uint64_t kMaskBool = bit(RB_BOOL8);
constexpr uint64_t kMaskInt = bit(RB_U8) | bit(RB_I8) | bit(RB_I16) | bit(RB_I32) | bit(RB_I64) |
                              bit(RB_U16) | bit(RB_U32) | bit(RB_U64);
constexpr uint64_t kMaskHalf = bit(RB_F16) | bit(RB_BF16);
constexpr uint64_t kMaskFloat = kMaskHalf | bit(RB_F32) | bit(RB_F64);
constexpr uint64_t kMaskComplex = bit(RB_C64) | bit(RB_C128);
constexpr uint64_t kMaskReal = kMaskBool | kMaskInt | kMaskFloat;
constexpr uint64_t kMaskAll = kMaskReal | kMaskComplex;

inline int item_size(const RbTensor& t) { return kItemSize[t.dtype_id]; }

/// Call f(TypeTag<T>{}) with the type of `dtype`, restricted to the dtypes in Mask; returns false
/// if it is not one.
template <uint64_t Mask = kMaskAll, class F>
bool visit_dtype(int dtype, F&& f) {
#define RB_CASE(id, T)                     \
  case id:                                 \
    if constexpr ((Mask & bit(id)) != 0) { \
      f(TypeTag<T>{});                     \
      return true;                         \
    }                                      \
    return false;
  switch (dtype) {
    RB_CASE(RB_BOOL8, bool)
    RB_CASE(RB_U8, uint8_t)
    RB_CASE(RB_I8, int8_t)
    RB_CASE(RB_I16, int16_t)
    RB_CASE(RB_I32, int32_t)
    RB_CASE(RB_I64, int64_t)
    RB_CASE(RB_U16, uint16_t)
    RB_CASE(RB_U32, uint32_t)
    RB_CASE(RB_U64, uint64_t)
    RB_CASE(RB_F16, F16)
    RB_CASE(RB_BF16, BF16)
    RB_CASE(RB_F32, float)
    RB_CASE(RB_F64, double)
    RB_CASE(RB_C64, c64)
    RB_CASE(RB_C128, c128)
    default:
      return false;
  }
#undef RB_CASE
}
/// The same, throwing an error that names the op where the dtype is not in Mask.
template <uint64_t Mask = kMaskAll, class F>
void dispatch_dtype(const char* op, int dtype, F&& f) {
  if (!visit_dtype<Mask>(dtype, f)) {
    rb::fail(RB_E_TYPE, "%s: the cpu backend has no kernel for %s", op,
             dtype >= 0 && dtype < RB_DTYPE_COUNT ? kDTypeNames[dtype] : "this dtype");
  }
}

/// Conversion between any two element types, as a C cast: floats to integers truncate, complex to
/// real takes the real part, everything to bool asks whether it is nonzero.
template <class To, class From>
RB_ALWAYS To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_half_v<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (is_complex_v<From> && is_complex_v<To>) {
    return To(static_cast<typename To::value_type>(x.real()),
              static_cast<typename To::value_type>(x.imag()));
  } else if constexpr (is_complex_v<From>) {
    return convert<To>(x.real());
  } else if constexpr (is_complex_v<To>) {
    return To(static_cast<typename To::value_type>(x));
  } else if constexpr (is_half_v<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Via int64, so that out-of-range values wrap alike everywhere; uint64 keeps its upper half.
    if constexpr (std::is_same_v<To, uint64_t>) {
      return x >= From(9223372036854775808.0) ? static_cast<uint64_t>(x)
                                              : static_cast<uint64_t>(static_cast<int64_t>(x));
    } else if constexpr (sizeof(To) <= 2) {
      return static_cast<To>(static_cast<int32_t>(x));
    } else if constexpr (std::is_same_v<To, int32_t>) {
      return static_cast<int32_t>(x);
    } else {
      return static_cast<To>(static_cast<int64_t>(x));
    }
  } else {
    return static_cast<To>(x);
  }
}

/// A Python number as T.
template <class T>
inline T from_value(const RbValue& v) {
  if (v.tag == RB_COMPLEX) return convert<T>(c128(v.v.fs[0], v.v.fs[1]));
  if (v.tag == RB_FLOAT) return convert<T>(v.v.f);
  if (v.tag == RB_UINT) return convert<T>(v.v.u);  // wraps in signed dtypes
  return convert<T>(v.v.i);
}
/// Store a Python number as one element of `dtype` at `to` (16 bytes suffice).
inline void store_value(const RbValue& v, int dtype, void* to) {
  switch (dtype) {  // the common ones first and without a template switch
    case RB_F32: {
      float f = static_cast<float>(rb::to_double(v));
      std::memcpy(to, &f, 4);
      return;
    }
    case RB_I64: {
      int64_t i = rb::to_int(v);
      std::memcpy(to, &i, 8);
      return;
    }
    default:
      visit_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        T x = from_value<T>(v);
        std::memcpy(to, &x, sizeof x);
      });
  }
}

}  // namespace rbcpu

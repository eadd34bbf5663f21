// The elementwise functions by name: each list becomes an enum and, per dtype and instruction-set
// level, one table of loops.
#pragma once
#include "common/loops.h"
#include "rabbet/abi.h"

// clang-format off
// T -> T
#define RB_UNARY(X)                                                                                                  \
  X(neg)                                                                                                             \
  X(abs) X(sgn) X(exp) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sqrt) X(rsqrt) X(cube) X(sin) X(cos) X(tan) \
      X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(erf) X(erfc) X(floor) X(ceil) X(trunc) X(round)   \
          X(relu) X(gelu) X(gelu_tanh) X(bitwise_not) X(conj)
// T -> bool
#define RB_TEST(X) X(isnan) X(isinf) X(isfinite) X(logical_not)
// T, T -> T
#define RB_BINARY(X)                                                                                             \
  X(add)                                                                                                         \
  X(sub) X(mul) X(div) X(div_floor) X(div_trunc) X(remainder) X(fmod) X(pow) X(atan2) X(copysign) X(nextafter) X(gcd) X(maximum) X(minimum)      \
      X(relu_vjp) X(bitwise_and) X(bitwise_or) X(bitwise_xor) X(bitwise_left_shift) \
          X(bitwise_right_shift)
// T, T -> bool
#define RB_COMPARE(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(logical_and) X(logical_or) X(logical_xor)
// T, T, T -> T
#define RB_TERNARY(X) X(add_alpha) X(sub_alpha) X(clamp) X(affine) X(standardize)
// clang-format on

namespace rbcpu {

enum class Fn : int {
#define RB_ENUM(name) k_##name,
  RB_UNARY(RB_ENUM) RB_TEST(RB_ENUM) RB_BINARY(RB_ENUM) RB_COMPARE(RB_ENUM) RB_TERNARY(RB_ENUM)
#undef RB_ENUM
      kCount
};
constexpr int kFnCount = static_cast<int>(Fn::kCount);

/// Null where a function is not defined for the dtype.
struct FnTable {
  Loop loops[kFnCount];
};

// Per level (elementwise_simd.cpp, elementwise_int_simd.cpp); of the complex numbers only products
// and quotients (products_simd.cpp), the rest once (elementwise_complex.cpp).
struct FloatTables {
  const FnTable* f32;
  const FnTable* f64;
};
extern const FloatTables float_tables_v2, float_tables_v3, float_tables_v4;
struct IntTables {
  const FnTable* by_dtype[RB_U64 + 1];
};
extern const IntTables int_tables_v2, int_tables_v3, int_tables_v4;
struct ProductTable {
  Loop mul64, mul128, div64;
};
extern const ProductTable product_table_v2, product_table_v3, product_table_v4;
const FnTable& complex_table(int dtype);

/// Complex to real: one loop per part; and real, real to complex.
enum class ComplexPart { kReal, kImag, kAbs };
Loop complex_part_loop(ComplexPart which, int dtype);
Loop complex_join_loop(int real_dtype);

/// The table of `dtype` at the best level that the CPU has; for the 16-bit floats that of float32.
const FnTable& fn_table(int dtype);

}  // namespace rbcpu

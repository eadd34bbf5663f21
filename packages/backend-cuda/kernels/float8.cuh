// Floats of 8 bits, where a kernel has such: a sign, exponents with a bias, F bits of fraction. Codes above
// TOP are NaN; TOP is infinity, or the largest value where the format has none. A float32 from the bits
// BEYOND on becomes TOP.
template <int F, int BIAS, UInt32 BEYOND, int TOP, bool INFINITE>
struct Float8 {
  UInt8 bits;
  // Exact.
  __device__ operator float() const {
    const UInt32 sign = (bits & 0x80u) << 24, size = bits & 0x7fu;
    const float step = __uint_as_float((UInt32)(128 - BIAS - F) << 23);
    UInt32 wide = size >> F ? (size << (23 - F)) + ((UInt32)(127 - BIAS) << 23)
                            : __float_as_uint((float)size * step);
    if (INFINITE && size == TOP) wide = 0x7f800000u;
    if (size > TOP) wide = 0x7fc00000u;
    return __uint_as_float(sign | wide);
  }
  // To the nearest, ties to even.
  static __device__ Float8 of(float x) {
    const UInt32 all = __float_as_uint(x), sign = all >> 24 & 0x80u, size = all & 0x7fffffffu;
    UInt32 code;
    if (size > 0x7f800000u) {
      code = 0x7fu;
    } else if (size >= BEYOND) {
      code = TOP;
    } else if (size < (UInt32)(128 - BIAS) << 23) {
      // Subnormal: one step of `magic` is one of the result.
      const UInt32 magic = (UInt32)(151 - BIAS - F) << 23;
      code = __float_as_uint(__uint_as_float(size) + __uint_as_float(magic)) - magic;
    } else {
      const UInt32 odd = size >> (23 - F) & 1u;
      code = (size - ((UInt32)(127 - BIAS) << 23) + (1u << (22 - F)) - 1u + odd) >> (23 - F);
    }
    Float8 result = {(UInt8)(sign | code)};
    return result;
  }
};
typedef Float8<3, 7, 0x43e00000u, 0x7e, false> Float8E4M3FN;  // 448
typedef Float8<2, 15, 0x47700000u, 0x7c, true> Float8E5M2;    // 61440, which is halfway
template <int F, int BIAS, UInt32 BEYOND, int TOP, bool INFINITE>
struct As<Float8<F, BIAS, BEYOND, TOP, INFINITE>> {
  template <class S>
  static __device__ Float8<F, BIAS, BEYOND, TOP, INFINITE> of(S x) {
    return Float8<F, BIAS, BEYOND, TOP, INFINITE>::of(As<float>::of(x));
  }
};
template <class T, int F, int BIAS, UInt32 BEYOND, int TOP, bool INFINITE>
struct Convert<T, Float8<F, BIAS, BEYOND, TOP, INFINITE>, false> {
  static __device__ T of(Float8<F, BIAS, BEYOND, TOP, INFINITE> x) {
    return Convert<T, float>::of((float)x);
  }
};

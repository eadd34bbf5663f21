// Elementwise loops of the complex dtypes.
#include <cmath>
#include <complex>

namespace {

template <class C>
auto c_abs(C x) {
  return std::abs(x);
}
#define RB_STD(name)     \
  template <class C>     \
  C c_##name(C x) {      \
    return std::name(x); \
  }
// clang-format off
RB_STD(exp)
RB_STD(log) RB_STD(sqrt) RB_STD(sin) RB_STD(cos) RB_STD(tan) RB_STD(asin) RB_STD(acos) RB_STD(atan) RB_STD(sinh)
    RB_STD(cosh) RB_STD(tanh)
// clang-format on
#undef RB_STD

        template <class C>
        C c_scale(C x, double factor) {
  using R = typename C::value_type;
  return C(x.real() * R(factor), x.imag() * R(factor));
}
// exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2
template <class C>
C c_expm1(C z) {
  using R = typename C::value_type;
  R s = std::sin(z.imag() / R(2));
  return C(std::expm1(z.real()) * std::cos(z.imag()) - R(2) * s * s,
           std::exp(z.real()) * std::sin(z.imag()));
}
// |1 + z|^2 = 1 + x (2 + x) + y^2
template <class C>
C c_log1p(C z) {
  using R = typename C::value_type;
  R x = z.real(), y = z.imag();
  if (std::abs(x) > R(0.5) || std::abs(y) > R(0.5)) return std::log(C(R(1) + x, y));
  return C(R(0.5) * std::log1p(x * (R(2) + x) + y * y), std::atan2(y, R(1) + x));
}
template <class C>
C c_pow(C x, C y) {
  using R = typename C::value_type;
  if (y == C(0)) return C(1);
  if (x == C(0)) {
    if (y.real() > R(0)) return C(0);
    return y.imag() == R(0) ? C(R(INFINITY), R(0)) : C(R(NAN), R(NAN));
  }
  return std::exp(y * std::log(x));
}

}  // namespace

#define RB_COMPLEX_BODIES
#include "common/level.h"
#include "elementwise/elementwise_loops.h"
#include "rabbet/abi.h"

namespace {

template <class C>
typename C::value_type part_real(C z) {
  return z.real();
}
template <class C>
typename C::value_type part_imag(C z) {
  return z.imag();
}
template <class C>
typename C::value_type part_abs(C z) {
  return std::abs(z);
}
template <class C, typename C::value_type (*F)(C)>
int part(const LoopArgs* a) {
  const char* x = a->in[0];
  char* r = a->out;
  for (int64_t i = 0; i < a->n; ++i, x += a->in_stride[0], r += a->out_stride) {
    at<typename C::value_type>(r) = F(load<C>(x));
  }
  return 0;
}
template <class R>
int join(const LoopArgs* a) {
  const char *x = a->in[0], *y = a->in[1];
  char* r = a->out;
  for (int64_t i = 0; i < a->n;
       ++i, x += a->in_stride[0], y += a->in_stride[1], r += a->out_stride) {
    at<std::complex<R>>(r) = std::complex<R>(load<R>(x), load<R>(y));
  }
  return 0;
}
using C64 = std::complex<float>;
using C128 = std::complex<double>;
constexpr rbcpu::Loop kParts[3][2] = {{&part<C64, part_real<C64>>, &part<C128, part_real<C128>>},
                                      {&part<C64, part_imag<C64>>, &part<C128, part_imag<C128>>},
                                      {&part<C64, part_abs<C64>>, &part<C128, part_abs<C128>>}};

}  // namespace

namespace rbcpu {

Loop complex_part_loop(ComplexPart which, int dtype) {
  return kParts[static_cast<int>(which)][dtype == RB_C128];
}
Loop complex_join_loop(int real_dtype) {
  return real_dtype == RB_F64 ? &join<double> : &join<float>;
}

const FnTable& complex_table(int dtype) {
  static const ProductTable& products = RB_PICK_LEVEL(product_table);
  static const auto with_products = [](FnTable t, Loop mul, Loop div) {
    t.loops[static_cast<int>(Fn::k_mul)] = mul;
    if (div) t.loops[static_cast<int>(Fn::k_div)] = div;
    return t;
  };
  static const FnTable c64 = with_products(table<C64>, products.mul64, products.div64);
  static const FnTable c128 = with_products(table<C128>, products.mul128, nullptr);
  return dtype == RB_C64 ? c64 : c128;
}

}  // namespace rbcpu

// The primitives of complex numbers, behind elementwise.cuh. All are computed in float64.
typedef Complex<double> Wide;
// The zero of sin(0) stays zero where the other factor is infinite.
__device__ inline double scaled(double part, double by) { return part == 0 ? part : part * by; }
__device__ inline Wide wide_exp(Wide z) {
  const double size = exp(z.re);
  if (size == 0) return {0, 0};
  return {size * cos(z.im), scaled(sin(z.im), size)};
}
__device__ inline Wide wide_log(Wide z) {
  const double a = fabs(z.re), b = fabs(z.im), x = fmax(a, b), y = fmin(a, b);
  const bool near = x > 0.5 && x < 2;  // |z| near 1: without cancellation
  return {near ? 0.5 * log1p((x - 1) * (x + 1) + y * y) : log(hypot(a, b)), atan2(z.im, z.re)};
}
__device__ inline Wide wide_sqrt(Wide z) {
  if (z.re == 0 && z.im == 0) return {0, z.im};
  if (fabs(z.im) == INFINITY) return {INFINITY, z.im};
  const double root = sqrt(0.5 * fabs(z.re) + 0.5 * hypot(z.re, z.im));
  if (root == INFINITY) {
    const double other = z.im != z.im ? z.im : 0;
    return z.re > 0 ? Wide{root, copysign(other, z.im)} : Wide{other, copysign(root, z.im)};
  }
  const double other = z.im / (2 * root);
  return z.re >= 0 ? Wide{root, other} : Wide{fabs(other), copysign(root, z.im)};
}
__device__ inline Wide wide_sinh(Wide z) {
  return {sinh(z.re) * cos(z.im), scaled(sin(z.im), cosh(z.re))};
}
__device__ inline Wide wide_cosh(Wide z) {
  return {cosh(z.re) * cos(z.im), scaled(sin(z.im), sinh(z.re))};
}
// Kahan's formula; far out 1 and what is left of it.
__device__ inline Wide wide_tanh(Wide z) {
  if (fabs(z.re) > 20)
    return {copysign(1.0, z.re), 4 * sin(z.im) * cos(z.im) * exp(-2 * fabs(z.re))};
  const double t = tan(z.im), s = sinh(z.re), beta = 1 + t * t, below = 1 + beta * s * s;
  if (fabs(t) == INFINITY) return {sqrt(1 + s * s) / s, 1 / t};
  return {beta * sqrt(1 + s * s) * s / below, t / below};
}
__device__ inline Wide wide_sin(Wide z) {
  return {scaled(sin(z.re), cosh(z.im)), cos(z.re) * sinh(z.im)};
}
__device__ inline Wide wide_cos(Wide z) {
  return {cos(z.re) * cosh(z.im), -scaled(sin(z.re), sinh(z.im))};
}
__device__ inline Wide wide_tan(Wide z) {
  const Wide turned = wide_tanh({-z.im, z.re});
  return {turned.im, -turned.re};
}
// Kahan's formulas, by the square roots of 1 - z and 1 + z.
__device__ inline Wide wide_asin(Wide z) {
  const Wide less = wide_sqrt({1 - z.re, -z.im}), more = wide_sqrt({1 + z.re, z.im});
  return {atan2(z.re, less.re * more.re - less.im * more.im),
          asinh(less.re * more.im - less.im * more.re)};
}
__device__ inline Wide wide_acos(Wide z) {
  const Wide less = wide_sqrt({1 - z.re, -z.im}), more = wide_sqrt({1 + z.re, z.im});
  return {2 * atan2(less.re, more.re), asinh(more.re * less.im - more.im * less.re)};
}
__device__ inline Wide wide_atan(Wide z) {
  const double x = z.re, y = fabs(z.im), below = x * x + (y - 1) * (y - 1);
  return {0.5 * atan2(2 * x, (1 - y) * (1 + y) - x * x),
          copysign(0.25 * log1p(4 * y / below), z.im)};
}
__device__ inline Wide wide_expm1(Wide z) {
  const double half = sin(0.5 * z.im);
  return {expm1(z.re) * cos(z.im) - 2 * half * half, scaled(sin(z.im), exp(z.re))};
}
__device__ inline Wide wide_log1p(Wide z) {
  const double x = z.re, y = z.im;
  if (fabs(x) > 0.5 || fabs(y) > 0.5) return wide_log({1 + x, y});
  return {0.5 * log1p(x * (2 + x) + y * y), atan2(y, 1 + x)};
}
__device__ inline Wide wide_log2(Wide z) {
  const Wide natural = wide_log(z);
  return {natural.re * 1.4426950408889634, natural.im * 1.4426950408889634};
}
__device__ inline Wide wide_log10(Wide z) {
  const Wide natural = wide_log(z);
  return {natural.re * 0.43429448190325183, natural.im * 0.43429448190325183};
}
__device__ inline Wide wide_pow(Wide z, Wide power) {
  if (power.re == 0 && power.im == 0) return {1, 0};
  if (z.re != 0 || z.im != 0) return wide_exp(power * wide_log(z));
  if (power.re > 0) return {0, 0};
  return power.im == 0 ? Wide{INFINITY, 0} : Wide{NAN, NAN};
}
#define RB_WIDE(name)                                            \
  template <class R>                                             \
  __device__ inline Complex<R> rb_##name(Complex<R> a) {         \
    const Wide result = wide_##name({(double)a.re, (double)a.im}); \
    return {(R)result.re, (R)result.im};                         \
  }
RB_WIDE(exp)
RB_WIDE(expm1)
RB_WIDE(log)
RB_WIDE(log2)
RB_WIDE(log10)
RB_WIDE(log1p)
RB_WIDE(sqrt)
RB_WIDE(sin)
RB_WIDE(cos)
RB_WIDE(tan)
RB_WIDE(asin)
RB_WIDE(acos)
RB_WIDE(atan)
RB_WIDE(sinh)
RB_WIDE(cosh)
RB_WIDE(tanh)
template <class R>
__device__ inline Complex<R> rb_pow(Complex<R> a, Complex<R> b) {
  const Wide result = wide_pow({(double)a.re, (double)a.im}, {(double)b.re, (double)b.im});
  return {(R)result.re, (R)result.im};
}
template <class R>
__device__ inline R rb_abs(Complex<R> a) {
  return (R)hypot((double)a.re, (double)a.im);
}
template <class R>
__device__ inline Complex<R> rb_sgn(Complex<R> a) {
  const double size = hypot((double)a.re, (double)a.im);
  if (size == 0) return {0, 0};
  return {(R)(a.re / size), (R)(a.im / size)};
}
template <class R>
__device__ inline R rb_real(Complex<R> a) {
  return a.re;
}
template <class R>
__device__ inline R rb_imag(Complex<R> a) {
  return a.im;
}
template <class R>
__device__ inline Complex<R> rb_conj(Complex<R> a) {
  return {a.re, -a.im};
}
template <class R>
__device__ inline bool rb_isinf(Complex<R> a) {
  return fabs(a.re) == INFINITY || fabs(a.im) == INFINITY;
}
template <class R>
__device__ inline bool rb_isfinite(Complex<R> a) {
  return a.re - a.re == 0 && a.im - a.im == 0;
}

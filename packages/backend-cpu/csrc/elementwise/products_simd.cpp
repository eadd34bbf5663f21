// Products and quotients of complex numbers, once per instruction-set level: by the plain formulas,
// and where those give NaN by the compiler's functions, which tell infinite results from undefined
// ones.
#include "common/level.h"
#include "elementwise/elementwise_loops.h"

typedef _Complex float C64;
typedef _Complex double C128;
extern "C" {
C64 __mulsc3(float, float, float, float);
C128 __muldc3(double, double, double, double);
C64 __divsc3(float, float, float, float);
}

namespace {

template <class R>
using Parts = Pack<R, 4>;  // real and imaginary parts in turns

// Each pair of lanes as its lanes First and Second.
template <int First, int Second, class T, int K>
RB_INLINE Pack<T, K> shuffled(const Pack<T, K>& x) {
  if constexpr (K > 1) {
    return {shuffled<First, Second>(x.lo), shuffled<First, Second>(x.hi)};
  } else {
    constexpr int n = kLanesOf<Pack<T, 1>>, a = First, b = Second;
    if constexpr (n == 2)
      return Pack<T, 1>(__builtin_shufflevector(x.v, x.v, a, b));
    else if constexpr (n == 4)
      return Pack<T, 1>(__builtin_shufflevector(x.v, x.v, a, b, a + 2, b + 2));
    else if constexpr (n == 8)
      return Pack<T, 1>(
          __builtin_shufflevector(x.v, x.v, a, b, a + 2, b + 2, a + 4, b + 4, a + 6, b + 6));
    else
      return Pack<T, 1>(__builtin_shufflevector(x.v, x.v, a, b, a + 2, b + 2, a + 4, b + 4, a + 6,
                                                b + 6, a + 8, b + 8, a + 10, b + 10, a + 12, b + 12,
                                                a + 14, b + 14));
  }
}

// Not a loop over the parts: GCC 12 contracts the sums and differences in turns that it finds
// there, even with -ffp-contract=off.
struct Product {
  template <class R>
  RB_INLINE Parts<R> f(const R* x, const R* y) {
    using V = Parts<R>;
    alignas(64) R one_sign[kLanesOf<V>];
    for (int i = 0; i < kLanesOf<V>; ++i) one_sign[i] = i % 2 ? R(0) : R(-0.0);
    const V z = pack_load<V>(x), w = pack_load<V>(y);
    const V across = shuffled<1, 1>(z) * shuffled<1, 0>(w);
    const auto signs = vm_cast<SignedOf<R>>(pack_load<V>(one_sign));
    return shuffled<0, 0>(z) * w + vm_cast<R>(vm_cast<SignedOf<R>>(across) ^ signs);
  }
  RB_INLINE C64 any(float a, float b, float c, float d) { return __mulsc3(a, b, c, d); }
  RB_INLINE C128 any(double a, double b, double c, double d) { return __muldc3(a, b, c, d); }
};

// In float64, where no product of float32 numbers overflows.
struct Quotient {
  RB_INLINE Parts<float> f(const float* x, const float* y) {
    constexpr int n = kLanesOf<Parts<float>>;
    alignas(64) float p[n], q[n], real[n / 2], imag[n / 2], r[n];
    pack_store(p, pack_load<Parts<float>>(x));  // whatever type the memory has
    pack_store(q, pack_load<Parts<float>>(y));
    for (int i = 0; i < n / 2; ++i) {
      const double a = p[2 * i], b = p[2 * i + 1], c = q[2 * i], d = q[2 * i + 1];
      const double square = c * c + d * d;
      real[i] = static_cast<float>((a * c + b * d) / square);
      imag[i] = static_cast<float>((b * c - a * d) / square);
    }
    for (int i = 0; i < n / 2; ++i) {
      r[2 * i] = real[i];
      r[2 * i + 1] = imag[i];
    }
    return pack_load<Parts<float>>(r);
  }
  RB_INLINE C64 any(float a, float b, float c, float d) { return __divsc3(a, b, c, d); }
};

template <class R, class Op>
__attribute__((noinline, cold)) void repair(const R* x, const R* y, R* r) {
  for (int i = 0; i < kLanesOf<Parts<R>>; i += 2) {
    if (r[i] == r[i] && r[i + 1] == r[i + 1]) continue;
    const auto z = Op::any(x[i], x[i + 1], y[i], y[i + 1]);
    r[i] = __real__ z;
    r[i + 1] = __imag__ z;
  }
}
// n parts, a multiple of the lanes. `to` may be `x` or `y`.
template <class R, class Op>
RB_INLINE void run(const R* x, const R* y, R* to, int64_t n) {
  using V = Parts<R>;
  for (int64_t i = 0; i < n; i += kLanesOf<V>) {
    V r = Op::f(x + i, y + i);
    if (__builtin_expect(vm_any(r != r), 0)) {
      alignas(64) R parts[kLanesOf<V>];
      pack_store(parts, r);
      repair<R, Op>(x + i, y + i, parts);
      r = pack_load<V>(parts);
    }
    pack_store(to + i, r);
  }
}

// C: of the size of a number, to copy it as a whole.
template <class C, class R, class Op>
int complex_loop(const LoopArgs* a) {
  constexpr int64_t kItem = 2 * sizeof(R), kNumbers = kLanesOf<Parts<R>> / 2;
  static_assert(sizeof(C) == kItem && kStep % kNumbers == 0);
  alignas(64) C buffer[2][kStep], result[kStep];
  bool dense = a->out_stride == kItem;
  for (int k = 0; k < 2; ++k) {
    dense = dense && (a->in_stride[k] == kItem || a->in_stride[k] == 0);
    if (a->in_stride[k] == 0) gather(buffer[k], a->in[k], 0, a->n < kStep ? a->n : kStep);
  }
  for (int64_t done = 0; done < a->n; done += kStep) {
    const int64_t n = a->n - done < kStep ? a->n - done : kStep;
    const bool whole = dense && n == kStep;
    const R* in[2];
    for (int k = 0; k < 2; ++k) {
      const int64_t stride = a->in_stride[k];
      const char* from = a->in[k] + done * stride;
      in[k] = reinterpret_cast<const R*>(
          stride != 0 && whole ? from : reinterpret_cast<const char*>(buffer[k]));
      if (stride != 0 && !whole) gather(buffer[k], from, stride, n);
    }
    char* to = a->out + done * a->out_stride;
    R* r = reinterpret_cast<R*>(whole ? to : reinterpret_cast<char*>(result));
    run<R, Op>(in[0], in[1], r, 2 * ((n + kNumbers - 1) / kNumbers * kNumbers));
    if (!whole) scatter(to, a->out_stride, result, n);
  }
  return 0;
}

}  // namespace

namespace rbcpu {
extern const ProductTable RB_LEVEL_NAME(product_table) = {
    &complex_loop<double, float, Product>,
    &complex_loop<C128, double, Product>,
    &complex_loop<double, float, Quotient>,
};
}

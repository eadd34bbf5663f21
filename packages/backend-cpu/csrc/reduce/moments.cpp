// var: means and sums of squared deviations, merged pairwise (Chan, Golub, LeVeque 1979).
#include <cmath>

#include "common/kernels.h"
#include "norm/norm.h"
#include "reduce/reduce.h"

namespace rbcpu {
namespace {

template <class T>
struct Moments {
  using C = compute_t<T>;
  using M = std::conditional_t<is_complex_v<T>, c128, double>;
  struct Acc {
    double n;
    M mean;
    double squares;  // sum of |x - mean|^2
  };
  static double product(M a, M b) {
    if constexpr (is_complex_v<T>) {
      return a.real() * b.real() + a.imag() * b.imag();
    } else {
      return a * b;
    }
  }
  static Acc identity() { return {0.0, M(0), 0.0}; }
  static void step(Acc& acc, C x, int64_t) {
    acc.n += 1.0;
    const M before = M(x) - acc.mean;
    acc.mean += before / acc.n;
    acc.squares += product(before, M(x) - acc.mean);
  }
  static void merge(Acc& acc, const Acc& later) {
    if (later.n == 0.0) return;
    if (acc.n == 0.0) {
      acc = later;
      return;
    }
    const double n = acc.n + later.n;
    const M apart = later.mean - acc.mean;
    acc.squares += later.squares + product(apart, apart) * (acc.n * later.n / n);
    acc.mean += apart * (later.n / n);
    acc.n = n;
  }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols,
                      int64_t index) {
    if constexpr (std::is_floating_point_v<C>) {
      const double count = static_cast<double>(rows);
      double sums[kColumns], squares[kColumns];
      C near[kColumns];
      column_moments(x, stride, rows, cols, near, sums, squares);
      for (int64_t j = 0; j < cols; ++j) merge(acc[j], {count, sums[j] / count, squares[j]});
    } else {
      step_columns<Moments<T>>(acc, x, stride, rows, cols, index);
    }
  }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    const double count = static_cast<double>(n);
    if constexpr (std::is_floating_point_v<C>) {
      const double mean = rows<C>().sum(x, n) / count;
      merge(acc, {count, mean, rows<C>().squares(x, n, mean)});
    } else {
      for (int64_t i = 0; i < n; ++i) step(acc, x[i], 0);
    }
  }
};

void var_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  const double correction = a.has(2) ? a.real(2) : 1.0;
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  const RbTensor* outs[] = {&out};
  const Reduction r(view_of(x), reduced, outs, 1);
  dispatch_dtype<kMaskFloat | kMaskComplex>("var", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = real_t<T>;
    R* data = static_cast<R*>(out.data);
    reduce<T, Moments<T>>(r, [&](int64_t k, const auto& acc) {
      const double freedom = std::max(0.0, static_cast<double>(r.count) - correction);
      data[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = convert<R>(acc.squares / freedom);
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"var", rb::wrap<var_kernel>, 0, kMaskFloat | kMaskComplex},
};

}  // namespace

int32_t add_moments(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

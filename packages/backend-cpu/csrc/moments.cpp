// var and normalize_moments: means and sums of squared deviations, merged pairwise (Chan, Golub,
// LeVeque 1979).
#include <cmath>

#include "kernels.h"
#include "ops.h"
#include "reduce.h"
#include "rows.h"

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
  static void block(Acc& acc, const C* x, int64_t n, int64_t) {
    const double count = static_cast<double>(n);
    if constexpr (std::is_same_v<C, float>) {
      const double mean = row_table().sum_f32(x, n) / count;
      merge(acc, {count, mean, row_table().squares_f32(x, n, mean)});
    } else if constexpr (std::is_same_v<C, double>) {
      const double mean = row_table().sum_f64(x, n) / count;
      merge(acc, {count, mean, row_table().squares_f64(x, n, mean)});
    } else {
      for (int64_t i = 0; i < n; ++i) step(acc, x[i], 0);
    }
  }
};

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<std::complex<R>> {
  using type = R;
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
    using R = typename RealOf<T>::type;
    R* data = static_cast<R*>(out.data);
    reduce<T, Moments<T>>(r, [&](int64_t k, const auto& acc) {
      const double freedom = std::max(0.0, static_cast<double>(r.count) - correction);
      data[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = convert<R>(acc.squares / freedom);
    });
  });
}

// Trailing dimensions of a dense input: each row is read, summed and written while it is in cache.
template <class T>
void normalize_rows(const T* x, T* y, T* means, T* vars, int64_t rows, int64_t n, double eps) {
  const RowTable& t = row_table();
  rb::parallel_for(rows, std::max<int64_t>(1, kGrain / 2 / std::max<int64_t>(n, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const T* from = x + i * n;
                       double mean, var;
                       if constexpr (std::is_same_v<T, float>) {
                         mean = t.sum_f32(from, n) / static_cast<double>(n);
                         var = t.squares_f32(from, n, mean) / static_cast<double>(n);
                         t.standardize_f32(from, y + i * n, n, static_cast<float>(mean),
                                           static_cast<float>(1.0 / std::sqrt(var + eps)));
                       } else {
                         mean = t.sum_f64(from, n) / static_cast<double>(n);
                         var = t.squares_f64(from, n, mean) / static_cast<double>(n);
                         t.standardize_f64(from, y + i * n, n, mean, 1.0 / std::sqrt(var + eps));
                       }
                       means[i] = static_cast<T>(mean);
                       vars[i] = static_cast<T>(var);
                     }
                   });
}

// Any dimensions: moments first, then (x - mean) * rstd with both broadcast over the reduced
// dimensions.
template <class T>
void normalize_any(const View& x, const bool* reduced, RbTensor& y, RbTensor& mean, RbTensor& var,
                   double eps) {
  using C = compute_t<T>;
  const int dtype = std::is_same_v<C, double> ? RB_F64 : RB_F32;
  const RbTensor* outs[] = {&mean, &var};
  const Reduction r(x, reduced, outs, 2);
  rb::Scratch<C> shift(r.outputs), scale(r.outputs);
  T* means = static_cast<T*>(mean.data);
  T* vars = static_cast<T*>(var.data);
  reduce<T, Moments<T>>(r, [&](int64_t k, const auto& acc) {
    const double v = acc.squares / static_cast<double>(r.count);
    means[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = convert<T>(acc.mean);
    vars[offset_at(k, r.nk, r.kept_shape, r.kept_out[1])] = convert<T>(v);
    shift[k] = static_cast<C>(acc.mean);
    scale[k] = static_cast<C>(1.0 / std::sqrt(v + eps));
  });
  // The 16-bit floats pass through float32.
  const int64_t n = x.numel();
  rb::Scratch<C> wide(is_half_v<T> ? n : 0), wide_out(is_half_v<T> ? n : 0);
  View from = x, to = view_of(y);
  if constexpr (is_half_v<T>) {
    from = dense_view(wide.data(), dtype, x);
    to = dense_view(wide_out.data(), dtype, x);
    copy_view(from, x);
  }
  LoopSpace s;
  s.ndim = x.ndim;
  s.nin = 3;
  s.ctx = nullptr;
  s.out = to.data;
  s.in[0] = from.data;
  s.in[1] = reinterpret_cast<const char*>(shift.data());
  s.in[2] = reinterpret_cast<const char*>(scale.data());
  int64_t stride = sizeof(C);
  for (int d = x.ndim - 1; d >= 0; --d) {
    s.shape[d] = x.shape[d];
    s.out_strides[d] = to.strides[d] * static_cast<int64_t>(sizeof(C));
    s.in_strides[0][d] = from.strides[d] * static_cast<int64_t>(sizeof(C));
    s.in_strides[1][d] = s.in_strides[2][d] = reduced[d] ? 0 : stride;
    if (!reduced[d]) stride *= x.shape[d];
  }
  run_space(s, fn_table(dtype).loops[static_cast<int>(Fn::k_standardize)], kGrain);
  if constexpr (is_half_v<T>) copy_view(view_of(y), to);
}

void normalize_moments_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor &y = a.ret(0), &mean = a.ret(1), &var = a.ret(2);
  const double eps = a.real(2);
  bool reduced[kMaxDims];
  mark_dims(a, 1, x.ndim, reduced);
  int64_t rows = 1, n = 1;
  bool trailing = (x.flags & y.flags & mean.flags & var.flags & RB_T_CONTIGUOUS) != 0;
  for (int d = 0; d < x.ndim; ++d) {
    if (!reduced[d] && x.shape[d] != 1 && n != 1) trailing = false;
    (reduced[d] ? n : rows) *= x.shape[d];
  }
  if (x.numel == 0) trailing = false;
  dispatch_dtype<kMaskFloat>("normalize_moments", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_half_v<T>) {
      if (trailing) {
        return normalize_rows(static_cast<const T*>(x.data), static_cast<T*>(y.data),
                              static_cast<T*>(mean.data), static_cast<T*>(var.data), rows, n, eps);
      }
    }
    normalize_any<T>(view_of(x), reduced, y, mean, var, eps);
  });
}

const rb::KernelSpec kKernels[] = {
    {"var", rb::wrap<var_kernel>, 0, kMaskFloat | kMaskComplex},
    {"normalize_moments", rb::wrap<normalize_moments_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_moments(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

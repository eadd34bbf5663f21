// vector_norm of order 2: sums of squares in double, and where those leave the range of what
// computes, sums of the squares of elements divided by the largest one.
#include <cmath>

#include "common/kernels.h"
#include "norm/norm.h"
#include "reduce/reduce.h"

namespace rbcpu {
namespace {

template <class T>
struct SquareSum {
  using C = compute_t<T>;
  using Acc = double;
  static Acc identity() { return 0; }
  static void step(Acc& acc, C x, int64_t) {
    acc += static_cast<double>(x) * static_cast<double>(x);
  }
  static void merge(Acc& acc, const Acc& later) { acc += later; }
  static void block(Acc& acc, const C* x, int64_t n, int64_t) { acc += rows<C>().squares(x, n, 0); }
  static void columns(Acc* acc, const C* x, int64_t stride, int64_t rows, int64_t cols, int64_t) {
    static constexpr C kZeros[kColumns] = {};
    double unused[kColumns] = {};
    norm_rows<C>().column_deviations(x, stride, rows, cols, kZeros, unused, acc);
  }
};

// Whether squares of C that sum up to `total` are exact: none is infinite, and none that matters
// is subnormal.
template <class C>
bool is_exact(double total, int64_t count) {
  constexpr double least = sizeof(C) == 8 ? 1e-290 : 1e-28;
  return total - total == 0 && total >= least * static_cast<double>(count);
}

// The norm of the elements at `x` that a result is made of.
template <class T>
double scaled_norm(const Reduction& r, const T* x) {
  using C = compute_t<T>;
  const int64_t stride = r.nr ? r.red_in[r.nr - 1] : 0;
  double top = 0;
  walk_reduced(r, 0, r.count, [&](int64_t offset, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) {
      const double size = std::abs(static_cast<double>(C(x[offset + i * stride])));
      if (size > top || size != size) top = size;
      if (top != top) return;
    }
  });
  if (top == 0 || top - top != 0) return top;
  double total = 0;
  walk_reduced(r, 0, r.count, [&](int64_t offset, int64_t n, int64_t) {
    for (int64_t i = 0; i < n; ++i) {
      const double part = static_cast<double>(C(x[offset + i * stride])) / top;
      total += part * part;
    }
  });
  return top * std::sqrt(total);
}

void vector_norm_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  bool reduced[kMaxDims];
  mark_dims(a, 2, x.ndim, reduced);
  const RbTensor* outs[] = {&out};
  const Reduction r(view_of(x), reduced, outs, 1);
  dispatch_dtype<kMaskFloat>("vector_norm", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = reinterpret_cast<const T*>(r.data);
    T* to = static_cast<T*>(out.data);
    reduce<T, SquareSum<T>>(r, [&](int64_t k, double total) {
      const double norm = is_exact<compute_t<T>>(total, r.count)
                              ? std::sqrt(total)
                              : scaled_norm(r, from + offset_at(k, r.nk, r.kept_shape, r.kept_in));
      to[offset_at(k, r.nk, r.kept_shape, r.kept_out[0])] = convert<T>(norm);
    });
  });
}

// Norms of other orders are left to the decomposition.
int32_t vector_norm_of_order_2(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                               RbValue* rets, int32_t nrets) {
  if (rb::to_double(args[1]) != 2) return RB_E_NOTIMPL;
  return rb::wrap<vector_norm_kernel>(self, call, args, nargs, rets, nrets);
}

const rb::KernelSpec kKernels[] = {
    {"vector_norm", vector_norm_of_order_2, 0, kMaskFloat},
};

}  // namespace

int32_t add_vector_norm(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

// cumsum, cumprod, affine_scan, softmax, log_softmax and the derivatives of the last two.
#include "kernels.h"
#include "lines.h"
#include "rows.h"

namespace rbcpu {
namespace {

template <class T>
using scan_t =
    std::conditional_t<is_float_v<T>, double, std::conditional_t<std::is_same_v<T, c64>, c128, T>>;

template <bool Product>
void scan_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  const Lines<2> lines({view_of(x), view_of(out)}, static_cast<int>(a.integer(1)));
  dispatch_dtype<kMaskInt | kMaskFloat | kMaskComplex>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = scan_t<T>;
    for_lines(lines, 2, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(x.data) + lines.offset(0, line);
        T* to = static_cast<T*>(out.data) + lines.offset(1, line);
        Acc acc = Product ? Acc(1) : Acc(0);
        for (int64_t i = 0; i < lines.n; ++i) {
          const Acc value = convert<Acc>(from[i * lines.step[0]]);
          acc = Product ? Acc(acc * value) : Acc(acc + value);
          to[i * lines.step[1]] = convert<T>(acc);
        }
      }
    });
  });
}

void affine_scan_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1);
  RbTensor& out = a.ret();
  bool same = x.ndim == y.ndim && x.dtype_id == y.dtype_id;
  for (int d = 0; same && d < x.ndim; ++d) same = x.shape[d] == y.shape[d];
  if (!same) rb::fail(RB_E_ARG, "affine_scan: expected `a` and `b` of one shape and dtype");
  const Lines<3> lines({view_of(x), view_of(y), view_of(out)}, static_cast<int>(a.integer(2)));
  dispatch_dtype<kMaskInt | kMaskFloat | kMaskComplex>("affine_scan", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Acc = scan_t<T>;
    for_lines(lines, 2, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const T* f = static_cast<const T*>(x.data) + lines.offset(0, line);
        const T* s = static_cast<const T*>(y.data) + lines.offset(1, line);
        T* to = static_cast<T*>(out.data) + lines.offset(2, line);
        Acc acc = Acc(0);
        for (int64_t i = 0; i < lines.n; ++i) {
          acc = Acc(Acc(convert<Acc>(f[i * lines.step[0]]) * acc) +
                    convert<Acc>(s[i * lines.step[1]]));
          to[i * lines.step[2]] = convert<T>(acc);
        }
      }
    });
  });
}

template <class T>
using Row1 = void (*)(const T*, T*, int64_t);
template <class T>
using Row2 = void (*)(const T*, const T*, T*, int64_t);

template <bool Log, class C>
Row1<C> forward_row() {
  const RowTable& t = row_table();
  if constexpr (std::is_same_v<C, float>)
    return Log ? t.log_softmax_f32 : t.softmax_f32;
  else
    return Log ? t.log_softmax_f64 : t.softmax_f64;
}
template <bool Log, class C>
Row2<C> backward_row() {
  const RowTable& t = row_table();
  if constexpr (std::is_same_v<C, float>)
    return Log ? t.log_softmax_vjp_f32 : t.softmax_vjp_f32;
  else
    return Log ? t.log_softmax_vjp_f64 : t.softmax_vjp_f64;
}

template <class T, class C>
void load_line(const T* from, int64_t step, int64_t n, C* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = C(from[i * step]);
}
template <class T, class C>
void store_line(const C* from, int64_t n, T* to, int64_t step) {
  for (int64_t i = 0; i < n; ++i) to[i * step] = T(from[i]);
}

template <bool Log>
void softmax_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  const Lines<2> lines({view_of(x), view_of(out)}, static_cast<int>(a.integer(1)));
  dispatch_dtype<kMaskFloat>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Row1<C> row = forward_row<Log, C>();
    const bool direct = std::is_same_v<T, C> && lines.step[0] == 1 && lines.step[1] == 1;
    for_lines(lines, 4, [&](int64_t begin, int64_t end) {
      rb::Scratch<C> buffer(direct ? 0 : lines.n);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(x.data) + lines.offset(0, line);
        T* to = static_cast<T*>(out.data) + lines.offset(1, line);
        if (direct) {
          row(reinterpret_cast<const C*>(from), reinterpret_cast<C*>(to), lines.n);
          continue;
        }
        load_line(from, lines.step[0], lines.n, buffer.data());
        row(buffer.data(), buffer.data(), lines.n);
        store_line(buffer.data(), lines.n, to, lines.step[1]);
      }
    });
  });
}

// The records know these as formulas over any shapes; a fused kernel serves equal ones and makes
// its own result.
template <bool Log>
void softmax_vjp_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &y = a.tensor(1);
  bool same = g.ndim == y.ndim && g.dtype_id == y.dtype_id;
  for (int d = 0; same && d < g.ndim; ++d) same = g.shape[d] == y.shape[d];
  if (!same || !(kMaskFloat >> g.dtype_id & 1)) {
    return rb::check(rb::host->decompose(a.call, a.args, a.nargs, a.rets, a.nrets));
  }
  int64_t dim = a.integer(2);
  if (dim < 0) dim += std::max(g.ndim, 1);
  RbTensor* out = nullptr;
  rb::check(
      rb::host->tensor_new(g.backend, g.device.id, g.dtype_id, g.ndim, g.shape, nullptr, &out));
  a.set_ret(0, out);
  const Lines<3> lines({view_of(g), view_of(y), view_of(*out)}, static_cast<int>(dim));
  dispatch_dtype<kMaskFloat>(a.op_name(), g.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const Row2<C> row = backward_row<Log, C>();
    const bool direct =
        std::is_same_v<T, C> && lines.step[0] == 1 && lines.step[1] == 1 && lines.step[2] == 1;
    for_lines(lines, 3, [&](int64_t begin, int64_t end) {
      rb::Scratch<C> buffer(direct ? 0 : 2 * lines.n);
      for (int64_t line = begin; line < end; ++line) {
        const T* from = static_cast<const T*>(g.data) + lines.offset(0, line);
        const T* value = static_cast<const T*>(y.data) + lines.offset(1, line);
        T* to = static_cast<T*>(out->data) + lines.offset(2, line);
        if (direct) {
          row(reinterpret_cast<const C*>(from), reinterpret_cast<const C*>(value),
              reinterpret_cast<C*>(to), lines.n);
          continue;
        }
        load_line(from, lines.step[0], lines.n, buffer.data());
        load_line(value, lines.step[1], lines.n, buffer.data() + lines.n);
        row(buffer.data(), buffer.data() + lines.n, buffer.data(), lines.n);
        store_line(buffer.data(), lines.n, to, lines.step[2]);
      }
    });
  });
}

constexpr uint64_t kMaskScan = kMaskInt | kMaskFloat | kMaskComplex;
const rb::KernelSpec kKernels[] = {
    {"cumsum", rb::wrap<scan_kernel<false>>, 0, kMaskScan},
    {"cumprod", rb::wrap<scan_kernel<true>>, 0, kMaskScan},
    {"affine_scan", rb::wrap<affine_scan_kernel>, 0, kMaskScan},
    {"softmax", rb::wrap<softmax_kernel<false>>, 0, kMaskFloat},
    {"log_softmax", rb::wrap<softmax_kernel<true>>, 0, kMaskFloat},
    {"softmax_vjp", rb::wrap<softmax_vjp_kernel<false>>, RB_K_ALLOCATES, kMaskFloat},
    {"log_softmax_vjp", rb::wrap<softmax_vjp_kernel<true>>, RB_K_ALLOCATES, kMaskFloat},
};

}  // namespace

int32_t add_along(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

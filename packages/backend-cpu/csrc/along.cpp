// cumsum, cumprod, affine_scan.
#include "kernels.h"
#include "lines.h"

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

constexpr uint64_t kMaskScan = kMaskInt | kMaskFloat | kMaskComplex;
const rb::KernelSpec kKernels[] = {
    {"cumsum", rb::wrap<scan_kernel<false>>, 0, kMaskScan},
    {"cumprod", rb::wrap<scan_kernel<true>>, 0, kMaskScan},
    {"affine_scan", rb::wrap<affine_scan_kernel>, 0, kMaskScan},
};

}  // namespace

int32_t add_along(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

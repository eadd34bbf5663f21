// convolution and its two derivatives.
#include <algorithm>
#include <type_traits>

#include "common/kernels.h"
#include "common/operands.h"
#include "conv/conv_direct.h"
#include "conv/conv_im2col.h"

namespace rbcpu {
namespace {

constexpr uint64_t kMaskConv = kMaskFloat | kMaskComplex;

template <class T>
constexpr bool kDirect = std::is_same_v<T, float> || std::is_same_v<T, double>;

void check_ranks(const rb::Args& a, const RbTensor& p, const RbTensor& q) {
  if (p.ndim != q.ndim)
    rb::fail(RB_E_ARG, "%s: expected two tensors of the same number of dimensions, got %d and %d",
             a.op_name(), p.ndim, q.ndim);
}

void check_shape_argument(const rb::Args& a, int ndim) {
  const auto shape = a.ints(2);
  if (shape.len != static_cast<uint32_t>(ndim) || a.ret().ndim != ndim)
    rb::fail(RB_E_ARG, "%s: `shape` must have %d entries, got %u", a.op_name(), ndim, shape.len);
}

// f(tag) for the type that is computed.
template <class F>
void compute(const rb::Args& a, const Result& out, const F& f) {
  if (out.target.numel() == 0) return;
  dispatch_dtype<kMaskConv & ~kMaskHalf>(a.op_name(), out.view.dtype, f);
  out.finish();
}

template <class T>
T* elements(const View& v) {
  return reinterpret_cast<T*>(v.data);
}

void convolution_kernel(const rb::Args& a) {
  const RbTensor &xt = a.tensor(0), &wt = a.tensor(1);
  const RbTensor* bt = a.optional_tensor(2);
  check_ranks(a, xt, wt);
  check_ranks(a, xt, a.ret());
  const ConvGeometry g = conv_geometry(a, xt.ndim, xt.shape, wt.shape, a.ret().shape, 3);
  if (bt && (bt->ndim != 1 || bt->shape[0] != g.o))
    rb::fail(RB_E_ARG, "%s: `bias` must have %lld elements", a.op_name(),
             static_cast<long long>(g.o));
  const Operand x(view_of(xt)), w(view_of(wt));
  const Result out(a.ret());
  compute(a, out, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const rb::Scratch<T> bias(bt ? g.o : 0);
    if (bt) copy_view(dense_view(bias.data(), out.view.dtype, view_of(*bt)), view_of(*bt));
    const T* row = bt ? bias.data() : nullptr;
    if constexpr (kDirect<T>) {
      if (g.is_near())
        return conv_forward(g, elements<T>(x.view), elements<T>(w.view), row,
                            elements<T>(out.view));
    }
    im2col_forward(g, elements<T>(x.view), elements<T>(w.view), row, elements<T>(out.view));
  });
}

void convolution_dx_kernel(const rb::Args& a) {
  const RbTensor &gt = a.tensor(0), &wt = a.tensor(1);
  check_ranks(a, gt, wt);
  check_shape_argument(a, gt.ndim);
  const ConvGeometry g = conv_geometry(a, gt.ndim, a.ret().shape, wt.shape, gt.shape, 3);
  const Operand grad(view_of(gt)), w(view_of(wt));
  const Result out(a.ret());
  compute(a, out, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (kDirect<T>) {
      if (g.is_near())
        return conv_input_gradient(g, elements<T>(grad.view), elements<T>(w.view),
                                   elements<T>(out.view));
    }
    im2col_input_gradient(g, elements<T>(grad.view), elements<T>(w.view), elements<T>(out.view));
  });
}

void convolution_dw_kernel(const rb::Args& a) {
  const RbTensor &xt = a.tensor(0), &gt = a.tensor(1);
  check_ranks(a, xt, gt);
  check_shape_argument(a, xt.ndim);
  const ConvGeometry g = conv_geometry(a, xt.ndim, xt.shape, a.ret().shape, gt.shape, 3);
  const Operand x(view_of(xt)), grad(view_of(gt));
  const Result out(a.ret());
  compute(a, out, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (kDirect<T>) {
      if (g.is_near())
        return conv_weight_gradient(g, elements<T>(x.view), elements<T>(grad.view),
                                    elements<T>(out.view));
    }
    im2col_weight_gradient(g, elements<T>(x.view), elements<T>(grad.view), elements<T>(out.view));
  });
}

const rb::KernelSpec kKernels[] = {
    {"convolution", rb::wrap<convolution_kernel>, RB_K_CONTIGUOUS, kMaskConv},
    {"convolution_dx", rb::wrap<convolution_dx_kernel>, RB_K_CONTIGUOUS, kMaskConv},
    {"convolution_dw", rb::wrap<convolution_dw_kernel>, RB_K_CONTIGUOUS, kMaskConv},
};

}  // namespace

int32_t add_conv(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

// convolution and its two derivatives.
#include <algorithm>
#include <type_traits>

#include "common/kernels.h"
#include "common/operands.h"
#include "conv/conv_direct.h"
#include "conv/conv_im2col.h"
#include "conv/conv_last.h"

namespace rbcpu {
namespace {

constexpr uint64_t kMaskGradient = kMaskFloat | kMaskComplex;
constexpr uint64_t kMaskConv = kMaskInt | kMaskGradient;

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

// `bias` as a row; null where there is none.
template <class T>
class BiasRow {
 public:
  BiasRow(const RbTensor* bias, int dtype) : row_(bias ? bias->shape[0] : 0), is_there_(bias) {
    if (bias) copy_view(dense_view(row_.data(), dtype, view_of(*bias)), view_of(*bias));
  }
  const T* data() const { return is_there_ ? row_.data() : nullptr; }

 private:
  rb::Scratch<T> row_;
  bool is_there_;
};

// Whether the kernels for channels-last tensors take the two large tensors of a convolution.
bool are_last(const ConvGeometry& g, const RbTensor& p, const RbTensor& q) {
  return g.groups == 1 && g.is_near() && g.c > 0 && g.o > 0 && is_channels_last(p) &&
         is_channels_last(q) && !(is_dense(view_of(p)) && is_dense(view_of(q))) &&
         kMaskFloat >> p.dtype_id & 1 && !is_half(p.dtype_id);
}
// f(tag) for float32 and float64.
template <class F>
void compute_last(const rb::Args& a, const RbTensor& out, const F& f) {
  int64_t numel = 1;
  for (int d = 0; d < out.ndim; ++d) numel *= out.shape[d];
  if (numel) dispatch_dtype<kMaskFloat & ~kMaskHalf>(a.op_name(), out.dtype_id, f);
}

template <class T>
ConvWeightView<T> weight_view(const RbTensor& w) {
  ConvWeightView<T> view{static_cast<const T*>(w.data), w.strides[0], w.strides[1], {0, 0, 0}};
  for (int d = 2; d < w.ndim; ++d) view.tap[d + 3 - w.ndim] = w.strides[d];
  return view;
}
template <class T>
T* data_of(const RbTensor& t) {
  return static_cast<T*>(t.data);
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
  if (are_last(g, xt, a.ret())) {
    return compute_last(a, a.ret(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      conv_last_forward(g, data_of<T>(xt), weight_view<T>(wt), BiasRow<T>(bt, xt.dtype_id).data(),
                        data_of<T>(a.ret()));
    });
  }
  const DenseOperand x(xt), w(wt);
  const Result out(a.ret());
  compute<kMaskConv>(a, out, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const BiasRow<T> bias(bt, out.view.dtype);
    if constexpr (kDirect<T>) {
      if (g.is_near())
        return conv_forward(g, elements<T>(x.view), elements<T>(w.view), bias.data(),
                            elements<T>(out.view));
    }
    im2col_forward(g, elements<T>(x.view), elements<T>(w.view), bias.data(), elements<T>(out.view));
  });
}

void convolution_dx_kernel(const rb::Args& a) {
  const RbTensor &gt = a.tensor(0), &wt = a.tensor(1);
  check_ranks(a, gt, wt);
  check_shape_argument(a, gt.ndim);
  const ConvGeometry g = conv_geometry(a, gt.ndim, a.ret().shape, wt.shape, gt.shape, 3);
  if (are_last(g, gt, a.ret())) {
    return compute_last(a, a.ret(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      conv_last_input_gradient(g, data_of<T>(gt), weight_view<T>(wt), data_of<T>(a.ret()));
    });
  }
  const DenseOperand grad(gt), w(wt);
  const Result out(a.ret());
  compute<kMaskConv>(a, out, [&](auto tag) {
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
  if (are_last(g, xt, gt) && is_dense(view_of(a.ret()))) {
    return compute_last(a, a.ret(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      conv_last_weight_gradient(g, data_of<T>(xt), data_of<T>(gt), data_of<T>(a.ret()));
    });
  }
  const DenseOperand x(xt), grad(gt);
  const Result out(a.ret());
  compute<kMaskGradient>(a, out, [&](auto tag) {
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
    {"convolution", rb::wrap<convolution_kernel>, 0, kMaskConv},
    {"convolution_dx", rb::wrap<convolution_dx_kernel>, 0, kMaskConv},
    {"convolution_dw", rb::wrap<convolution_dw_kernel>, 0, kMaskGradient},
};

}  // namespace

int32_t add_conv(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

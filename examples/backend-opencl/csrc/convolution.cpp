// Convolution in 1 to 3 directions and its two derivatives, as matrix products over columns of the
// input's windows (kernels/convolution.cl). With O output channels, R = channels of a group times
// places of the kernel and L = items times places of the output, for each group:
//   forward   (O, L) = weight (O, R) columns (R, L)
//   dx        columns (R, L) = weight^T g (O, L), then summed into the input
//   dw        (O, R) = g (O, L) columns^T
// Items are taken in parts, so that the columns stay below 64 MB.
#include <algorithm>

#include "matmul.h"

namespace rbcl {
namespace {

struct Geometry {  // twin of Geometry in convolution.cl
  int64_t items, channels;
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];

  int64_t ins() const { return in[0] * in[1] * in[2]; }
  int64_t outs() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// `x`: (N, C, ...), `w`: (O, C / groups, k, ...), `y`: (N, O, ...); the arguments from `first` on.
struct Convolution {
  Geometry g = {};
  int64_t outputs, groups, part;  // items at a time

  Convolution(const rb::Args& a, const int64_t* x, const int64_t* w, const int64_t* y, int ndim,
              int first, int item_bytes) {
    const int rank = ndim - 2;
    if (rank < 1 || rank > 3)
      rb::fail(RB_E_ARG, "%s: expected 3 to 5 dimensions, got %d", a.op_name(), ndim);
    groups = a.integer(first + 3);
    g.items = x[0];
    g.channels = x[1];
    outputs = w[0];
    for (int d = 0; d < 3; ++d) {
      const int at = d - (3 - rank);
      const auto entry = [&](int k, int64_t missing) {
        const auto v = a.ints(first + k);
        return at < 0 ? missing : v[v.len == 1 ? 0 : at];
      };
      g.in[d] = at < 0 ? 1 : x[2 + at];
      g.kernel[d] = at < 0 ? 1 : w[2 + at];
      g.out[d] = at < 0 ? 1 : y[2 + at];
      g.stride[d] = entry(0, 1);
      g.padding[d] = entry(1, 0);
      g.dilation[d] = entry(2, 1);
      if (g.stride[d] < 1 || g.dilation[d] < 1 || g.padding[d] < 0)
        rb::fail(RB_E_ARG, "%s: `stride` and `dilation` must be positive, `padding` not negative",
                 a.op_name());
    }
    if (groups < 1 || g.channels % groups || outputs % groups || w[1] != g.channels / groups ||
        y[0] != g.items || y[1] != outputs) {
      rb::fail(RB_E_ARG,
               "%s: %lld channels and %lld outputs in %lld groups do not fit a weight of "
               "%lld channels",
               a.op_name(), static_cast<long long>(g.channels), static_cast<long long>(outputs),
               static_cast<long long>(groups), static_cast<long long>(w[1]));
    }
    constexpr int64_t kMost = int64_t{64} << 20;
    const int64_t each = std::max<int64_t>(rows() * groups * g.outs() * item_bytes, 1);
    part = std::clamp<int64_t>(kMost / each, 1, std::max<int64_t>(g.items, 1));
  }
  int64_t rows() const { return g.channels / groups * g.taps(); }

  /// f(first item, geometry of the items from there) for each part.
  template <class F>
  void for_parts(const F& f) const {
    for (int64_t at = 0; at < g.items; at += part) {
      Geometry some = g;
      some.items = std::min(part, g.items - at);
      f(at, some);
    }
  }

  /// (m, k) x (k, n), by group, each group's matrices one after another.
  Product product(int64_t m, int64_t n, int64_t k) const {
    Product p = {};
    p.m = m;
    p.n = n;
    p.k = k;
    p.a_row = k;
    p.b_row = p.c_row = n;
    p.a_column = p.b_column = p.c_column = 1;
    p.batch_dims = 1;
    p.batch_shape[0] = groups;
    p.batch_strides[0][0] = m * k;
    p.batch_strides[1][0] = k * n;
    p.batch_strides[2][0] = m * n;
    return p;
  }
};

void move_columns(Device& device, int dtype, const char* kernel, void* to, const void* from,
                  const Geometry& g, int64_t n) {
  Launch(device, dtype, kernel).pointer(to).pointer(from).value(g).value(n).run(n);
}

// (N, O, L) for items [at, at + n) of a row-major tensor, as (O, N, L).
View by_channel(char* data, int dtype, int64_t at, int64_t n, int64_t channels, int64_t size) {
  View v = {};
  v.dtype = dtype;
  v.data = data + at * channels * size * item_size(dtype);
  v.ndim = 3;
  v.shape[0] = channels;
  v.shape[1] = n;
  v.shape[2] = size;
  v.strides[0] = size;
  v.strides[1] = channels * size;
  v.strides[2] = 1;
  return v;
}

void convolution_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &w = a.tensor(1), &out = a.ret();
  if (out.numel == 0) return;
  const int dtype = out.dtype_id;
  Device& device = device_of(out);
  const Convolution c(a, x.shape, w.shape, out.shape, out.ndim, 3, item_size(dtype));
  const int64_t size = c.g.outs();
  const DenseResult result(device, out);
  c.for_parts([&](int64_t at, const Geometry& g) {
    const int64_t wide = g.items * size, rows = c.rows() * c.groups;
    const Temp columns(device, dtype, rows * wide), product(device, dtype, c.outputs * wide);
    const char* from = static_cast<char*>(x.data) + at * g.channels * g.ins() * item_size(dtype);
    move_columns(device, dtype, "to_columns", columns.data(), from, g, rows * wide);
    multiply(device, dtype, product.data(), w.data, columns.data(),
             c.product(c.outputs / c.groups, wide, c.rows()));
    const View to = by_channel(result.data(), dtype, at, g.items, c.outputs, size);
    copy_view(device, to, dense_view(product.data(), dtype, to));
  });
  if (const RbTensor* bias = a.optional_tensor(2)) {
    if (bias->numel != c.outputs)
      rb::fail(RB_E_ARG, "convolution: `bias` must have %lld elements",
               static_cast<long long>(c.outputs));
    View to = by_channel(result.data(), dtype, 0, c.g.items, c.outputs, size), added = to;
    added.data = static_cast<char*>(bias->data);
    added.strides[0] = 1;
    added.strides[1] = added.strides[2] = 0;
    const Space space = space_of("convolution", {&to, &to, &added});
    Launch(device, dtype, "add_s")
        .pointer(to.data)
        .pointer(to.data)
        .number(dtype, 0, 0)
        .pointer(added.data)
        .number(dtype, 0, 0)
        .number(dtype, 1, 1)
        .value(0)
        .value(space)
        .run(space.n);
  }
  result.finish();
}

void input_gradient_kernel(const rb::Args& a) {
  const RbTensor &y = a.tensor(0), &w = a.tensor(1), &out = a.ret();
  if (out.numel == 0) return;
  const int dtype = out.dtype_id;
  Device& device = device_of(out);
  const Convolution c(a, out.shape, w.shape, y.shape, out.ndim, 3, item_size(dtype));
  const DenseResult result(device, out);
  c.for_parts([&](int64_t at, const Geometry& g) {
    const int64_t wide = g.items * g.outs(), rows = c.rows() * c.groups;
    const Temp columns(device, dtype, rows * wide), grad(device, dtype, c.outputs * wide);
    const View from =
        by_channel(static_cast<char*>(y.data), dtype, at, g.items, c.outputs, g.outs());
    copy_view(device, dense_view(grad.data(), dtype, from), from);
    Product p = c.product(c.rows(), wide, c.outputs / c.groups);
    p.a_row = 1;
    p.a_column = c.rows();
    multiply(device, dtype, columns.data(), w.data, grad.data(), p);
    const int64_t n = g.items * g.channels * g.ins();
    char* to = result.data() + at * g.channels * g.ins() * item_size(dtype);
    move_columns(device, dtype, "from_columns", to, columns.data(), g, n);
  });
  result.finish();
}

void weight_gradient_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  if (out.numel == 0) return;
  const int dtype = out.dtype_id;
  Device& device = device_of(out);
  const Convolution c(a, x.shape, out.shape, y.shape, out.ndim, 3, item_size(dtype));
  const DenseResult result(device, out);
  const View flat = dense_view(result.data(), dtype, view_of(out));
  if (c.g.items == 0) fill_view(device, flat, rb::int_value(0));
  c.for_parts([&](int64_t at, const Geometry& g) {
    const int64_t wide = g.items * g.outs(), rows = c.rows() * c.groups;
    const Temp columns(device, dtype, rows * wide), grad(device, dtype, c.outputs * wide);
    const char* inputs = static_cast<char*>(x.data) + at * g.channels * g.ins() * item_size(dtype);
    move_columns(device, dtype, "to_columns", columns.data(), inputs, g, rows * wide);
    const View from =
        by_channel(static_cast<char*>(y.data), dtype, at, g.items, c.outputs, g.outs());
    copy_view(device, dense_view(grad.data(), dtype, from), from);
    Product p = c.product(c.outputs / c.groups, c.rows(), wide);
    p.b_row = 1;
    p.b_column = wide;
    p.accumulate = at > 0;
    multiply(device, dtype, result.data(), grad.data(), columns.data(), p);
  });
  result.finish();
}

const rb::KernelSpec kKernels[] = {
    {"convolution", rb::wrap<convolution_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"convolution_dx", rb::wrap<input_gradient_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"convolution_dw", rb::wrap<weight_gradient_kernel>, RB_K_CONTIGUOUS, kFloat},
};

}  // namespace

int32_t add_convolution(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

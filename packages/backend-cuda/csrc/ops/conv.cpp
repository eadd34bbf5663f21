// Convolutions and their derivatives in one to three directions, on tensors of any strides.
#include "ops/conv.h"

#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/conv_cudnn.h"
#include "ops/conv_mma.h"
#include "ops/families.h"
#include "ops/reduce.h"

namespace rbcuda {
namespace {

constexpr int64_t kTile = 64;           // of the kernels
constexpr int64_t kMostBlocks = 65535;  // in y and z

void strides_of(const RbTensor& t, int64_t& batch, int64_t& channel, int64_t* steps) {
  batch = t.strides[0];
  channel = t.strides[1];
  for (int d = 0; d < 3; ++d) steps[d] = d < 5 - t.ndim ? 0 : t.strides[t.ndim - 3 + d];
}
void sizes_of(const RbTensor& t, int64_t* sizes) {
  for (int d = 0; d < 3; ++d) sizes[d] = d < 5 - t.ndim ? 1 : t.shape[t.ndim - 3 + d];
}

// stride, padding, dilation and groups are arguments `first`, ...; core has checked them.
Conv conv_of(const rb::Args& a, const RbTensor& x, const RbTensor& w, const RbTensor& y,
             int first) {
  Conv c = {};
  c.n = x.shape[0];
  c.groups = a.integer(first + 3);
  c.channels = w.shape[1];
  c.outputs = w.shape[0] / c.groups;
  strides_of(x, c.x_batch, c.x_channel, c.x_step);
  strides_of(w, c.w_output, c.w_channel, c.w_step);
  strides_of(y, c.y_batch, c.y_channel, c.y_step);
  sizes_of(x, c.in);
  sizes_of(w, c.kernel);
  sizes_of(y, c.out);
  const int missing = 5 - x.ndim;
  int64_t* const values[] = {c.stride, c.padding, c.dilation};
  for (int v = 0; v < 3; ++v) {
    const auto given = a.ints(first + v);
    for (int d = 0; d < 3; ++d)
      values[v][d] = d < missing ? (v == 1 ? 0 : 1) : given[given.len == 1 ? 0 : d - missing];
  }
  for (int d = 0; d < 3; ++d) {  // a single window has any stride, a single tap any dilation
    c.stride[d] = std::min(c.stride[d], std::max<int64_t>(1, c.in[d] + 2 * c.padding[d]));
    if (c.kernel[d] == 1) c.dilation[d] = 1;
  }
  return c;
}

Types types_of(int a, int b, int compute, int out, int bias) {
  return {{"A", a}, {"B", b}, {"T", compute}, {"O", out}, {"V", bias}};
}
int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }
unsigned blocks(const char* op, int64_t n, int64_t most) {
  if (n > most) rb::fail(RB_E_NOTIMPL, "%s on 'cuda': too many channels or groups", op);
  return static_cast<unsigned>(n);
}

// Outputs, or the input's gradient.
void run(const rb::Args& a, Conv c, bool gradient, const RbTensor& to, const RbTensor& from,
         const RbTensor& weight, const RbTensor* bias) {
  if (to.numel == 0) return;
  if (convolve_by_mma(a.op_name(), c, gradient, to, from, weight, bias)) return;
  c.bias_step = bias ? bias->strides[0] : 0;
  const char* op = a.op_name();
  const Types types = types_of(from.dtype_id, weight.dtype_id, computed(to.dtype_id), to.dtype_id,
                               bias ? bias->dtype_id : to.dtype_id);
  void *result = to.data, *source = from.data, *weights = weight.data,
       *biases = bias ? bias->data : nullptr;
  int last = to.strides[1] == 1 && to.shape[1] > 1;
  void* arguments[] = {&result, &source, &weights, &biases, &c, &last};
  if (c.is_direct()) {
    launch(device_of(to),
           Kernel{op, types, kText_conv,
                  gradient ? "RB_CONV_DIRECT(true)\n" : "RB_CONV_DIRECT(false)\n"},
           to.numel, arguments);
    return;
  }
  const int64_t rows = gradient ? c.inputs() : c.positions();
  const Grid grid{static_cast<unsigned>(std::min<int64_t>(tiles(rows), 1 << 20)),
                  blocks(op, tiles(gradient ? c.channels : c.outputs), kMostBlocks),
                  blocks(op, c.groups, kMostBlocks), 256};
  launch(device_of(to),
         Kernel{op, types, kText_conv, gradient ? "RB_CONV(true)\n" : "RB_CONV(false)\n"}, grid,
         arguments);
}

// stride, padding and dilation are arguments 3 to 5 of all three operators.
bool by_library(const rb::Args& a, Convolution::Result result, const RbTensor& x, const RbTensor& w,
                const RbTensor& y, const RbTensor* bias = nullptr) {
  return convolve_by_library(
      {a.op_name(), result, &x, &w, &y, a.ints(3), a.ints(4), a.ints(5), bias});
}

void convolution_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &w = a.tensor(1), &y = a.ret();
  if (by_library(a, Convolution::kOutputs, x, w, y, a.optional_tensor(2))) return;
  run(a, conv_of(a, x, w, y, 3), false, y, x, w, a.optional_tensor(2));
}
void convolution_dx_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &w = a.tensor(1), &dx = a.ret();
  if (by_library(a, Convolution::kInputs, dx, w, g)) return;
  run(a, conv_of(a, dx, w, g, 3), true, dx, g, w, nullptr);
}

void convolution_dw_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &g = a.tensor(1), &dw = a.ret();
  if (dw.numel == 0 || by_library(a, Convolution::kWeights, x, dw, g)) return;
  if (x.numel == 0 || g.numel == 0)
    return fill(a.op_name(), dw, rb::int_value(0), rb::int_value(0));
  Conv c = conv_of(a, x, dw, g, 3);
  const char* op = a.op_name();
  if (weights_by_mma(op, c, dw, x, g)) return;
  const int compute = computed(dw.dtype_id);
  void *to = dw.data, *from = x.data, *gradient = g.data;
  int64_t segments = 1;
  void* arguments[] = {&to, &from, &gradient, &c, &segments};
  if (c.is_direct()) {
    const Types types = types_of(x.dtype_id, g.dtype_id, compute, dw.dtype_id, dw.dtype_id);
    const unsigned threads = c.positions() > 128 ? 256 : 32;
    launch(device_of(dw), Kernel{op, types, kText_conv, "RB_CONV_DIRECT_DW\n"},
           Grid{static_cast<unsigned>(std::min<int64_t>(dw.numel, 1 << 20)), 1, 1, threads},
           arguments);
    return;
  }
  const int64_t columns = tiles(c.channels * c.window()), rows = tiles(c.outputs) * c.groups;
  segments = segments_of(c, columns * rows);
  c.segment = (c.positions() + segments - 1) / segments;
  segments = (c.positions() + c.segment - 1) / c.segment;
  Temporary parts;
  if (segments > 1) {
    int64_t shape[RB_MAX_DIMS + 1] = {segments};
    std::copy(dw.shape, dw.shape + dw.ndim, shape + 1);
    parts = Temporary(dw, compute, dw.ndim + 1, shape);
    to = parts.data();
  }
  const Types types =
      types_of(x.dtype_id, g.dtype_id, compute, segments > 1 ? compute : dw.dtype_id, compute);
  launch(device_of(dw), Kernel{op, types, kText_conv, "RB_CONV_DW\n"},
         Grid{blocks(op, columns, INT32_MAX), blocks(op, rows, kMostBlocks),
              static_cast<unsigned>(segments), 256},
         arguments);
  if (segments == 1) return;
  const bool reduced[RB_MAX_DIMS] = {true};
  reduce(op, sum_fold(compute), &dw, nullptr, parts.tensor(), reduced);
}

const rb::KernelSpec kKernels[] = {
    {"convolution", rb::wrap<convolution_kernel>, 0, kFloat | bit(RB_C64) | bit(RB_C128)},
    {"convolution_dx", rb::wrap<convolution_dx_kernel>, 0, kFloat | bit(RB_C64) | bit(RB_C128)},
    {"convolution_dw", rb::wrap<convolution_dw_kernel>, 0, kFloat | bit(RB_C64) | bit(RB_C128)},
};

}  // namespace

int64_t segments_of(const Conv& c, int64_t blocks) {
  constexpr int64_t kEnough = 264, kSegment = 1024;  // blocks, positions that are worth one
  const int64_t most = std::clamp<int64_t>(kEnough / blocks, 1, kMostBlocks);
  return std::clamp<int64_t>(c.positions() / kSegment, 1, most);
}

int32_t add_conv(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

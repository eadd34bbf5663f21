// softmax, log_softmax and their derivatives.
#include <string>

#include "launch/lines.h"
#include "launch/texts.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

// Dimension `dim` is within the lines.
struct Along {
  bool inner[RB_MAX_DIMS] = {};
  Along(int64_t dim, int ndim) {
    if (ndim) inner[dim] = true;
  }
};

template <int Logarithm>
void softmax_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  if (out.numel == 0) return;
  const Along along(a.integer(1), x.ndim);
  SplitLayout layout = split_layout(a.op_name(), {&out, &x}, along.inner, 1);
  LinePlan plan = plan_lines(layout, {out, x}, {.lead = 1, .holds = 4});
  static const PackedTexts texts("RB_SOFTMAX(" + std::to_string(Logarithm) + ", ");
  const Kernel kernel{a.op_name(),
                      {{"A", x.dtype_id}, {"T", computed(out.dtype_id)}, {"O", out.dtype_id}},
                      kText_softmax,
                      texts[plan]};
  void *to = out.data, *from = x.data;
  void* arguments[] = {&to, &from, &layout.lines, plan.places.argument(), &plan.lines};
  launch(device_of(out), kernel, plan.grid, arguments);
}

template <int Logarithm>
void softmax_vjp_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  if (out.numel == 0) return;
  const Along along(a.integer(2), out.ndim);
  SplitLayout layout = split_layout(a.op_name(), {&out, &g, &y}, along.inner, 2);
  LinePlan plan = plan_lines(layout, {out, g, y}, {.lead = 2, .holds = 2});
  static const PackedTexts texts("RB_SOFTMAX_VJP(" + std::to_string(Logarithm) + ", ");
  const Kernel kernel{a.op_name(),
                      {{"A", g.dtype_id}, {"T", computed(out.dtype_id)}, {"O", out.dtype_id}},
                      kText_softmax,
                      texts[plan]};
  void *to = out.data, *gradient = g.data, *result = y.data;
  void* arguments[] = {&to, &gradient, &result, &layout.lines, plan.places.argument(), &plan.lines};
  launch(device_of(out), kernel, plan.grid, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"softmax", rb::wrap<softmax_kernel<0>>, 0, kFloat},
    {"log_softmax", rb::wrap<softmax_kernel<1>>, 0, kFloat},
    {"softmax_vjp", rb::wrap<softmax_vjp_kernel<0>>, 0, kFloat},
    {"log_softmax_vjp", rb::wrap<softmax_vjp_kernel<1>>, 0, kFloat},
};

}  // namespace

int32_t add_softmax(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

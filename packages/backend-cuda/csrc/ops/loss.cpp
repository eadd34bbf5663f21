// Cross-entropy and negative log likelihood of class indices, with their derivatives.
#include <algorithm>

#include "device/report.h"
#include "launch/lines.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

struct Task {  // twin of the kernels'
  int64_t ignored, weight_step;
  double smoothing;
  Finder finder;
};

void* data_of(const RbTensor* t) { return t ? t->data : nullptr; }

// (N, C, *) or (C,): lines along the classes, one for each position.
struct Scores {
  bool inner[RB_MAX_DIMS] = {};
  int dim;
  explicit Scores(int ndim) : dim(ndim == 1 ? 0 : 1) { inner[dim] = true; }

  /// `t`, which has a value for each position, with the dimension of classes as one of size 1.
  View by_position(const RbTensor& t, int ndim) const {
    View view = scalar_view(t);
    for (int d = 0, at = 0; d < ndim; ++d) {
      const bool own = d != dim && t.ndim > 0;
      view.add(own ? t.shape[at] : 1, own ? t.strides[at] : 0);
      at += own;
    }
    return view;
  }
};

// `x` has the dimension of classes.
Task task_of(const rb::Args& a, const RbTensor& x, const RbTensor* weight, int64_t ignored,
             double smoothing) {
  const int dim = x.ndim == 1 ? 0 : 1;
  return {ignored, weight ? weight->strides[0] : 0, smoothing,
          finder(device_of(x), a.op_name(), kBadIndex, x.shape[dim], dim)};
}

// Losses and weights of positions, and what becomes of them.
class Losses {
 public:
  Losses(const RbTensor& x, const RbTensor& target)
      : dtype_(computed(x.dtype_id)),
        losses_(x, dtype_, target.ndim, target.shape),
        weights_(x, dtype_, target.ndim, target.shape) {}
  const Temporary& losses() const { return losses_; }
  const Temporary& weights() const { return weights_; }

  void finish(const rb::Args& a, const RbTensor& loss, const RbTensor& total) const {
    const char how = a.str(3)[0];  // none, mean or sum
    if (how == 'n' && loss.numel) copy(a.op_name(), loss, losses_.tensor());
    const Kernel kernel{a.op_name(),
                        {{"T", dtype_},
                         {"A", loss.dtype_id},
                         {"B", total.dtype_id},
                         {"W", dtype_},
                         {"O", dtype_},
                         {"G", dtype_}},
                        kText_loss,
                        "RB_LOSS_SUM(A, B)\n"};
    void *to = how == 'n' ? nullptr : loss.data, *sum = total.data, *given = losses_.data(),
         *weights = weights_.data();
    int64_t n = losses_.tensor().numel;
    int mean = how == 'm';
    void* arguments[] = {&to, &sum, &given, &weights, &n, &mean};
    launch(device_of(total), kernel, Grid{1, 1, 1, n > 256 ? 1024u : 256u}, arguments);
  }

 private:
  int dtype_;
  Temporary losses_, weights_;
};

void cross_entropy_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &target = a.tensor(1), &lse = a.ret(1);
  const RbTensor* weight = a.optional_tensor(2);
  const Losses losses(x, target);
  const Scores scores(x.ndim);
  const View t = scores.by_position(target, x.ndim), l = scores.by_position(lse, x.ndim),
             to = scores.by_position(losses.losses().tensor(), x.ndim);
  SplitLayout layout =
      split_layout(a.op_name(), {&x, &t.tensor(), &l.tensor(), &to.tensor()}, scores.inner, 0);
  if (layout.lines.n) {
    LinePlan plan = plan_lines(layout, {x}, {});
    Task task = task_of(a, x, weight, a.integer(4), a.real(5));
    const Kernel kernel{a.op_name(),
                        {{"A", x.dtype_id},
                         {"T", computed(x.dtype_id)},
                         {"W", weight ? weight->dtype_id : x.dtype_id},
                         {"O", lse.dtype_id},
                         {"G", x.dtype_id},
                         {"B", x.dtype_id}},
                        kText_loss,
                        "RB_CROSS_ENTROPY\n"};
    void *each = losses.losses().data(), *counts = losses.weights().data(), *sums = lse.data,
         *from = x.data, *classes = target.data, *weights = data_of(weight);
    void* arguments[] = {&each,    &counts,       &sums,         &from,       &classes,
                         &weights, &layout.lines, &layout.inner, &plan.lines, &task};
    launch(device_of(x), kernel, plan.grid, arguments);
  }
  losses.finish(a, a.ret(0), a.ret(2));
}

void nll_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &target = a.tensor(1);
  const RbTensor* weight = a.optional_tensor(2);
  const Losses losses(x, target);
  const Scores scores(x.ndim);
  const View t = scores.by_position(target, x.ndim),
             to = scores.by_position(losses.losses().tensor(), x.ndim);
  SplitLayout layout =
      split_layout(a.op_name(), {&x, &t.tensor(), &t.tensor(), &to.tensor()}, scores.inner, 0);
  if (layout.lines.n) {
    Task task = task_of(a, x, weight, a.integer(4), 0);
    const Kernel kernel{a.op_name(),
                        {{"A", x.dtype_id},
                         {"T", computed(x.dtype_id)},
                         {"W", weight ? weight->dtype_id : x.dtype_id},
                         {"O", x.dtype_id},
                         {"G", x.dtype_id},
                         {"B", x.dtype_id}},
                        kText_loss,
                        "RB_NLL\n"};
    void *each = losses.losses().data(), *counts = losses.weights().data(), *from = x.data,
         *classes = target.data, *weights = data_of(weight);
    void* arguments[] = {&each,    &counts,       &from,         &classes,
                         &weights, &layout.lines, &layout.inner, &task};
    launch(device_of(x), kernel, layout.lines.n, arguments);
  }
  losses.finish(a, a.ret(0), a.ret(1));
}

void cross_entropy_backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &x = a.tensor(1), &target = a.tensor(2), &lse = a.tensor(4),
                 &total = a.tensor(5), &dx = a.ret();
  if (dx.numel == 0) return;
  const RbTensor* weight = a.optional_tensor(3);
  const Scores scores(x.ndim);
  const View t = scores.by_position(target, x.ndim), l = scores.by_position(lse, x.ndim),
             gradient = scores.by_position(g, x.ndim);
  SplitLayout layout = split_layout(a.op_name(), {&x, &t.tensor(), &l.tensor(), &gradient.tensor()},
                                    scores.inner, 0);
  SplitLayout to = split_layout(a.op_name(), {&x, &dx}, scores.inner, 0);
  LinePlan plan = plan_lines(layout, {x}, {});
  Task task = task_of(a, x, weight, a.integer(7), a.real(8));
  const Kernel kernel{a.op_name(),
                      {{"A", x.dtype_id},
                       {"T", computed(x.dtype_id)},
                       {"W", weight ? weight->dtype_id : x.dtype_id},
                       {"D", lse.dtype_id},
                       {"G", g.dtype_id},
                       {"B", total.dtype_id}},
                      kText_loss,
                      "typedef A O;\nRB_CROSS_ENTROPY_DX\n"};
  void *result = dx.data, *from = x.data, *classes = target.data, *weights = data_of(weight),
       *sums = lse.data, *gradients = g.data, *count = a.str(6)[0] == 'm' ? total.data : nullptr;
  void* arguments[] = {&result,    &from,       &classes,      &weights,      &sums,
                       &gradients, &count,      &layout.lines, &layout.inner, &to.lines,
                       &to.inner,  &plan.lines, &task};
  launch(device_of(dx), kernel, plan.grid, arguments);
}

void nll_backward_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &target = a.tensor(1), &total = a.tensor(3), &dx = a.ret();
  if (dx.numel == 0) return;
  const RbTensor* weight = a.optional_tensor(2);
  const Scores scores(dx.ndim);
  const View t = scores.by_position(target, dx.ndim), gradient = scores.by_position(g, dx.ndim);
  SplitLayout layout =
      split_layout(a.op_name(), {&dx, &t.tensor(), &gradient.tensor()}, scores.inner, 0);
  LinePlan plan = plan_lines(layout, {dx}, {});
  Task task = task_of(a, dx, weight, a.integer(6), 0);
  const Kernel kernel{a.op_name(),
                      {{"A", dx.dtype_id},
                       {"T", computed(dx.dtype_id)},
                       {"W", weight ? weight->dtype_id : dx.dtype_id},
                       {"O", dx.dtype_id},
                       {"G", g.dtype_id},
                       {"B", total.dtype_id}},
                      kText_loss,
                      "RB_NLL_DX\n"};
  void *result = dx.data, *classes = target.data, *weights = data_of(weight), *gradients = g.data,
       *count = a.str(5)[0] == 'm' ? total.data : nullptr;
  void* arguments[] = {&result,       &classes,      &weights,    &gradients, &count,
                       &layout.lines, &layout.inner, &plan.lines, &task};
  launch(device_of(dx), kernel, plan.grid, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"cross_entropy_loss", rb::wrap<cross_entropy_kernel>, 0, kFloat},
    {"cross_entropy_backward", rb::wrap<cross_entropy_backward_kernel>, 0, kFloat},
    {"nll_loss", rb::wrap<nll_kernel>, 0, kFloat},
    {"nll_loss_backward", rb::wrap<nll_backward_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_loss(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

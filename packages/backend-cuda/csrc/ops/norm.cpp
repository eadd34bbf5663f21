// layer_norm, rms_norm, group_norm, batch_norm_train and batch_norm_eval with their derivatives.
#include <algorithm>

#include "launch/lines.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"
#include "ops/reduce.h"

namespace rbcuda {
namespace {

void* data_of(const RbTensor* t) { return t ? t->data : nullptr; }
int dtype_of(const RbTensor* t, const RbTensor& otherwise) {
  return t ? t->dtype_id : otherwise.dtype_id;
}
int64_t bytes(int dtype) { return computed(dtype) == RB_F64 ? 8 : 4; }
int64_t stats_bytes(int dtype) { return 4 * bytes(dtype); }  // Stats of norm.cuh
int64_t pair_bytes(int dtype) { return 2 * bytes(dtype); }

// A normalisation over lines: x as the lines' dimensions and those within, the weight's strides in
// them.
struct Normed {
  const char* op;
  View x;
  bool inner[RB_MAX_DIMS] = {};
  int weights_from = 0, weights_to = 0;  // dimensions that weight and bias have
};

// (N, C, *) as (N, groups, C / groups, *).
View grouped(const RbTensor& t, const Normed&, const rb::Args& a) {
  View view = scalar_view(t);
  const int64_t groups = a.integer(a.nrets == 1 ? 1 : 2), size = t.shape[1] / groups;
  view.add(t.shape[0], t.strides[0]);
  view.add(groups, t.strides[1] * size);
  view.add(size, t.strides[1]);
  for (int d = 2; d < t.ndim; ++d) view.add(t.shape[d], t.strides[d]);
  return view;
}

Normed last_dims(const rb::Args& a, const RbTensor& x, int shape) {
  Normed n{a.op_name(), View(x)};
  n.weights_from = x.ndim - static_cast<int>(a.ints(shape).len);
  n.weights_to = x.ndim;
  std::fill(n.inner + n.weights_from, n.inner + x.ndim, true);
  return n;
}
Normed groups_of(const rb::Args& a, const RbTensor& x) {
  Normed n{a.op_name(), grouped(x, {a.op_name(), View(x)}, a)};
  n.weights_from = 1;
  n.weights_to = 3;
  std::fill(n.inner + 2, n.inner + n.x.ndim(), true);
  return n;
}

// A weight or its gradient with all dimensions of x. Null: no strides.
View weight_view(const RbTensor* t, const Normed& n) {
  View view = scalar_view(t ? *t : n.x.tensor());
  if (!t) return view;
  const bool split = t->ndim != n.weights_to - n.weights_from;  // channels as groups of them
  for (int d = 0; d < n.x.ndim(); ++d) {
    const bool own = d >= n.weights_from && d < n.weights_to;
    const int64_t stride = !own    ? 0
                           : split ? t->strides[0] * (d == 1 ? n.x.size(2) : 1)
                                   : t->strides[d - n.weights_from];
    view.add(own ? n.x.size(d) : 1, stride);
  }
  return view;
}
// Statistics of lines in rows without gaps.
View stats_view(const RbTensor& like, const Normed& n) {
  View view = scalar_view(like);
  int64_t step = 1, strides[RB_MAX_DIMS];
  for (int d = n.x.ndim() - 1; d >= 0; --d) {
    strides[d] = n.inner[d] ? 0 : step;
    step *= n.inner[d] ? 1 : n.x.size(d);
  }
  for (int d = 0; d < n.x.ndim(); ++d) view.add(n.inner[d] ? 1 : n.x.size(d), strides[d]);
  return view;
}

Types types_of(const RbTensor& x, const RbTensor& out, const RbTensor* weight, const RbTensor* bias,
               const RbTensor* gradient) {
  return {{"A", x.dtype_id},          {"T", computed(x.dtype_id)}, {"O", out.dtype_id},
          {"W", dtype_of(weight, x)}, {"B", dtype_of(bias, x)},    {"D", dtype_of(gradient, x)}};
}

// Beside a line a thread reads weights and biases, or gradients.
const LineOptions kHolding = {.holds = 2};

void forward(const Normed& n, const RbTensor& out, const View& y, const RbTensor* weight,
             const RbTensor* bias, double eps, bool rms) {
  if (out.numel == 0) return;
  const RbTensor& x = n.x.tensor();
  const View w = weight_view(weight, n), b = weight_view(bias, n);
  SplitLayout layout = split_layout(n.op, {&x, &y.tensor(), &w.tensor(), &b.tensor()}, n.inner, 0);
  LinePlan plan = plan_lines(layout, {x, y.tensor(), weight, bias}, kHolding);
  void *to = out.data, *from = x.data, *weights = data_of(weight), *biases = data_of(bias);
  void* arguments[] = {&to,         &from, &weights, &biases, &layout.lines, plan.places.argument(),
                       &plan.lines, &eps};
  static const PackedTexts texts[] = {PackedTexts("RB_NORM(0, "), PackedTexts("RB_NORM(1, ")};
  launch(device_of(out),
         Kernel{n.op, types_of(x, out, weight, bias, nullptr), kText_norm, texts[rms][plan]},
         plan.grid, arguments);
}

// Where the sums of g y and g go.
struct Gradients {  // twin of the kernel's
  void *dw, *db, *sums;
};
// Join `count` parts of each position of `layout`, whose fourth tensor is the results.
void join_parts(const char* op, const RbTensor& like, const Gradients& to, const Temporary& parts,
                int64_t count, Layout layout, const Types& types) {
  Gradients target = to;
  LinePlan joining = plan_states(layout.n, count);
  void* states = parts.data();
  void* arguments[] = {&target, &states, &layout, &joining.lines, &count};
  launch(device_of(like), Kernel{op, types, kText_norm, "RB_PAIR_PARTS\n"}, joining.grid,
         arguments);
}

// Lines are what is not `summed`; `stats` and `dw` have x's dimensions.
void pair_sums(const char* op, const RbTensor& x, const RbTensor& g, const View& stats,
               const View& dw, const bool* summed, Gradients to, const Types& types) {
  SplitLayout layout = split_layout(op, {&x, &g, &stats.tensor(), &dw.tensor()}, summed, 0);
  if (layout.lines.n == 0) return;
  LinePlan plan = plan_lines(layout, {x, g, stats.tensor()}, {.splits = true, .single = 1 << 2});
  Temporary states;
  if (plan.segments > 1)
    states = Temporary(x, pair_bytes(x.dtype_id) * layout.lines.n * plan.segments);
  void *from = x.data, *gradient = g.data, *held = stats.tensor().data, *parts = states.data();
  void* arguments[] = {&to,
                       &gradient,
                       &from,
                       &held,
                       &parts,
                       &layout.lines,
                       plan.places.argument(),
                       &plan.lines,
                       &plan.segment,
                       &plan.segments};
  static const PackedTexts texts("RB_PAIR_SUMS(");
  launch(device_of(x), Kernel{op, types, kText_norm, texts[plan]}, plan.grid, arguments);
  if (plan.segments > 1) join_parts(op, x, to, states, plan.segments, layout.lines, types);
}

// Results without elements of their own: sums of nothing.
void clear(const rb::Args& a, int first) {
  for (int k = first; k < a.nrets; ++k)
    if (a.ret(k).numel) fill(a.op_name(), a.ret(k), rb::int_value(0), rb::int_value(0));
}

void same_strides(const rb::Args& a) {
  const RbTensor &dw = a.ret(1), &db = a.ret(2);
  if (!std::equal(dw.strides, dw.strides + dw.ndim, db.strides))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': gradients of unequal strides", a.op_name());
}

// Whether the kernel that computes dx also sums the gradients of the weight, which has the
// dimensions of a line. Each thread then holds the sums of its elements, and x and g are read once.
bool sums_within(const Normed& n, const LinePlan& plan) {
  for (int d = 0; d < n.x.ndim(); ++d)
    if (n.inner[d] != (d >= n.weights_from && d < n.weights_to)) return false;
  return plan.held == 2 && !plan.lines.columns;
}
// Enough blocks to fill a device, but at least 32 lines for each beyond that: what they leave is
// small beside the lines.
unsigned blocks_that_sum(int64_t lines, const LinePlan& plan) {
  constexpr int64_t kFull = 264, kLines = 32, kMost = 1024;
  const int64_t all = (lines + plan.lines.across - 1) / plan.lines.across;
  return static_cast<unsigned>(std::min({all, std::max(lines / kLines, kFull), kMost}));
}

void backward(const rb::Args& a, const Normed& n, const View& g, const View& dx,
              const RbTensor* weight, double eps, bool rms) {
  const RbTensor& x = n.x.tensor();
  if (!rms) same_strides(a);
  if (x.numel == 0) return clear(a, 1);
  const View w = weight_view(weight, n), dw = weight_view(&a.ret(1), n);
  SplitLayout layout = split_layout(n.op, {&x, &dx.tensor(), &g.tensor(), &w.tensor()}, n.inner, 0);
  LinePlan plan = plan_lines(layout, {x, dx.tensor(), g.tensor(), weight}, kHolding);
  const bool sums = sums_within(n, plan);
  Temporary held, parts;
  if (sums) {
    plan.grid.x = blocks_that_sum(layout.lines.n, plan);
    parts = Temporary(x, pair_bytes(x.dtype_id) * layout.inner.n * plan.grid.x);
  } else {
    held = Temporary(x, stats_bytes(x.dtype_id) * layout.lines.n);
  }
  const View stats = stats_view(sums ? x : held.tensor(), n);
  Layout where = split_layout(n.op, {&x, &stats.tensor()}, n.inner, 0).lines;
  const Types types = types_of(x, a.ret(), weight, nullptr, &a.ret(1));
  const Gradients gradients = {a.ret(1).data, rms ? nullptr : a.ret(2).data, nullptr};
  void *to = dx.tensor().data, *gradient = g.tensor().data, *from = x.data,
       *weights = data_of(weight), *statistics = held.data(), *sums_of_blocks = parts.data();
  void* arguments[] = {&to,         &gradient,       &from,         &weights,
                       &statistics, &sums_of_blocks, &layout.lines, plan.places.argument(),
                       &where,      &plan.lines,     &eps};
  static const PackedTexts texts[2][2] = {
      {PackedTexts("RB_NORM_DX(0, 0, "), PackedTexts("RB_NORM_DX(0, 1, ")},
      {PackedTexts("RB_NORM_DX(1, 0, "), PackedTexts("RB_NORM_DX(1, 1, ")}};
  launch(device_of(x), Kernel{n.op, types, kText_norm, texts[rms][sums][plan]}, plan.grid,
         arguments);
  if (sums)
    return join_parts(n.op, x, gradients, parts, plan.grid.x,
                      split_layout(n.op, {&x, &x, &x, &dw.tensor()}, n.inner, 0).inner, types);
  bool summed[RB_MAX_DIMS];
  for (int d = 0; d < n.x.ndim(); ++d) summed[d] = d < n.weights_from || d >= n.weights_to;
  pair_sums(n.op, x, g.tensor(), stats, dw, summed, gradients, types);
}

template <bool Rms>
void last_dims_kernel(const rb::Args& a) {
  const Normed n = last_dims(a, a.tensor(0), 1);
  forward(n, a.ret(), View(a.ret()), a.optional_tensor(2), Rms ? nullptr : a.optional_tensor(3),
          a.real(Rms ? 3 : 4), Rms);
}
template <bool Rms>
void last_dims_backward_kernel(const rb::Args& a) {
  const Normed n = last_dims(a, a.tensor(1), 2);
  backward(a, n, View(a.tensor(0)), View(a.ret()), a.optional_tensor(3), a.real(4), Rms);
}
void group_norm_kernel(const rb::Args& a) {
  const Normed n = groups_of(a, a.tensor(0));
  forward(n, a.ret(), grouped(a.ret(), n, a), a.optional_tensor(2), a.optional_tensor(3), a.real(4),
          false);
}
void group_norm_backward_kernel(const rb::Args& a) {
  const Normed n = groups_of(a, a.tensor(1));
  backward(a, n, grouped(a.tensor(0), n, a), grouped(a.ret(), n, a), a.optional_tensor(3),
           a.real(4), false);
}

// ---- batch normalisation: statistics of channels, then elementwise

// One value per channel in dimension 1 of `ndim`.
View channel_view(const RbTensor& t, int ndim, int64_t channels, int64_t stride) {
  View view = scalar_view(t);
  for (int d = 0; d < ndim; ++d) view.add(d == 1 ? channels : 1, d == 1 ? stride : 0);
  return view;
}

class Channels {
 public:
  Channels(const char* op, const RbTensor& x, const RbTensor& mean, const RbTensor& var,
           const RbTensor* weight, const RbTensor* bias, double eps)
      : held_(x, stats_bytes(x.dtype_id) * x.shape[1]),
        view_(channel_view(held_.tensor(), x.ndim, x.shape[1], 1)) {
    const View none = scalar_view(x);
    Layout layout = layout_of(
        op, {&mean, &var, weight ? weight : &none.tensor(), bias ? bias : &none.tensor()});
    void *stats = held_.data(), *means = mean.data, *vars = var.data, *weights = data_of(weight),
         *biases = data_of(bias);
    void* arguments[] = {&stats, &means, &vars, &weights, &biases, &layout, &eps};
    const Types types = {{"A", mean.dtype_id},     {"T", computed(x.dtype_id)},
                         {"O", var.dtype_id},      {"W", dtype_of(weight, x)},
                         {"B", dtype_of(bias, x)}, {"D", x.dtype_id}};
    launch(device_of(x), Kernel{op, types, kText_norm, "RB_CHANNELS\n"}, layout.n, arguments);
  }
  const View& view() const { return view_; }
  void* data() const { return held_.data(); }
  Operand operand() const { return view_.tensor(); }

  void normalise(const char* op, const RbTensor& y, const RbTensor& x) const {
    Layout layout = layout_of(op, {&y, &x, &view_.tensor()}, Order::kMemory);
    void *to = y.data, *from = x.data, *stats = data();
    Packed way = packed(layout, {y, x, operand()}, 1);
    void* arguments[] = {&to, &from, &stats, way.places.argument()};
    static const PackedTexts texts("RB_CHANNEL_NORM(");
    launch(device_of(x),
           Kernel{op, types_of(x, y, nullptr, nullptr, nullptr), kText_norm, texts[way]}, way.count,
           arguments);
  }

 private:
  Temporary held_;
  View view_;
};

void train_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  bool reduced[RB_MAX_DIMS];
  std::fill(reduced, reduced + RB_MAX_DIMS, true);
  reduced[1] = false;
  if (a.ret(1).numel)
    reduce(a.op_name(), moments_fold(x.dtype_id), &a.ret(2), &a.ret(1), x, reduced);
  if (x.numel == 0) return;
  Channels(a.op_name(), x, a.ret(1), a.ret(2), a.optional_tensor(1), a.optional_tensor(2),
           a.real(3))
      .normalise(a.op_name(), a.ret(), x);
}

void eval_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (x.numel == 0) return;
  Channels(a.op_name(), x, a.tensor(1), a.tensor(2), a.optional_tensor(3), a.optional_tensor(4),
           a.real(5))
      .normalise(a.op_name(), a.ret(), x);
}

void batch_norm_backward_kernel(const rb::Args& a) {
  const char* op = a.op_name();
  const RbTensor &g = a.tensor(0), &x = a.tensor(1), &dx = a.ret();
  const RbTensor* weight = a.optional_tensor(4);
  same_strides(a);
  if (x.numel == 0) return clear(a, 1);
  const int64_t channels = x.shape[1];
  const Channels stats(op, x, a.tensor(2), a.tensor(3), weight, nullptr, a.real(5));
  const Temporary sums(x, pair_bytes(x.dtype_id) * channels);
  const View dw = channel_view(a.ret(1), x.ndim, channels, a.ret(1).strides[0]);
  bool summed[RB_MAX_DIMS];
  std::fill(summed, summed + RB_MAX_DIMS, true);
  summed[1] = false;
  const Types types = types_of(x, dx, weight, nullptr, &a.ret(1));
  pair_sums(op, x, g, stats.view(), dw, summed, {a.ret(1).data, a.ret(2).data, sums.data()}, types);
  Layout layout = layout_of(op, {&dx, &x, &g, &stats.view().tensor()}, Order::kMemory);
  double part = a.boolean(6) ? static_cast<double>(channels) / static_cast<double>(x.numel) : 0.0;
  void *to = dx.data, *gradient = g.data, *from = x.data, *held = stats.data(),
       *pairs = sums.data();
  Packed way = packed(layout, {dx, x, g, stats.operand()}, 1);
  void* arguments[] = {&to, &gradient, &from, &held, &pairs, way.places.argument(), &part};
  static const PackedTexts texts("RB_CHANNEL_DX(");
  launch(device_of(x), Kernel{op, types, kText_norm, texts[way]}, way.count, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"layer_norm", rb::wrap<last_dims_kernel<false>>, 0, kFloat},
    {"layer_norm_backward", rb::wrap<last_dims_backward_kernel<false>>, 0, kFloat},
    {"rms_norm", rb::wrap<last_dims_kernel<true>>, 0, kFloat},
    {"rms_norm_backward", rb::wrap<last_dims_backward_kernel<true>>, 0, kFloat},
    {"group_norm", rb::wrap<group_norm_kernel>, 0, kFloat},
    {"group_norm_backward", rb::wrap<group_norm_backward_kernel>, 0, kFloat},
    {"batch_norm_train", rb::wrap<train_kernel>, 0, kFloat},
    {"batch_norm_eval", rb::wrap<eval_kernel>, 0, kFloat},
    {"batch_norm_backward", rb::wrap<batch_norm_backward_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_norm(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

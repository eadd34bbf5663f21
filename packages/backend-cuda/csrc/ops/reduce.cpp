// Reductions by the folds of kernels/reduce.cuh.
#include "ops/reduce.h"

#include <algorithm>

#include "launch/lines.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

struct Finish {  // twin of the kernel's
  double count, number;
};

void* data_of(const RbTensor* t) { return t ? t->data : nullptr; }

// `t`, which may lack the dimensions `reduced` of x, in x's shape.
View broadcast_to(const RbTensor& x, const RbTensor& t, const bool* reduced) {
  View view = scalar_view(t);
  const bool kept = t.ndim == x.ndim;
  for (int d = 0, at = 0; d < x.ndim; ++d) {
    view.add(x.shape[d], reduced[d] ? 0 : t.strides[at]);
    at += kept || !reduced[d];
  }
  return view;
}

}  // namespace

void reduce(const char* op, const Fold& fold, const RbTensor* out, const RbTensor* second,
            const RbTensor& x, const bool* reduced) {
  const View first = broadcast_to(x, out ? *out : *second, reduced),
             other = second ? broadcast_to(x, *second, reduced) : scalar_view(x);
  SplitLayout layout = split_layout(op, {&first.tensor(), &x, second ? &other.tensor() : nullptr},
                                    reduced, 1, !fold.ordered);
  Layout &kept = layout.lines, &inner = layout.inner;
  if (kept.n == 0) return;
  LinePlan plan = plan_lines(layout, {{}, x, {}}, {.lead = 1, .splits = true});
  const auto kernel = [&](const char* macro) {
    const Types types = {{"A", x.dtype_id},
                         {"T", fold.compute},
                         {"O", out ? out->dtype_id : x.dtype_id},
                         {"D", second ? +second->dtype_id : +RB_I64}};
    return Kernel{op, types, kText_reduce, macro, fold.text};
  };
  Finish finish = {static_cast<double>(inner.n), fold.number};
  void *to = data_of(out), *also = data_of(second), *from = x.data, *parts = nullptr;
  Temporary states;
  if (plan.segments > 1) {
    states = Temporary(x, fold.state * kept.n * plan.segments);
    parts = states.data();
  }
  void* arguments[] = {
      &to,         &also,         &from,          &parts, &kept, plan.places.argument(),
      &plan.lines, &plan.segment, &plan.segments, &finish};
  static const PackedTexts texts("RB_REDUCE(");
  launch(device_of(x), kernel(texts[plan]), plan.grid, arguments);
  if (plan.segments == 1) return;
  LinePlan joining = plan_states(kept.n, plan.segments);
  void* joins[] = {&to, &also, &parts, &kept, &joining.lines, &plan.segments, &finish};
  launch(device_of(x), kernel("RB_REDUCE_PARTS\n"), joining.grid, joins);
}

namespace {

// Dimensions that argument `arg` names; all where it is None or empty.
void mark_dims(const rb::Args& a, int arg, int ndim, bool* reduced) {
  const bool all = !a.has(arg) || (a.args[arg].tag == RB_INTS && a.args[arg].len == 0);
  std::fill(reduced, reduced + RB_MAX_DIMS, all);
  if (all || ndim == 0) return;
  for (const int64_t d : a.ints(arg)) reduced[d] = true;
}

void fold_tensor(const rb::Args& a, Fold fold) {
  const RbTensor& x = a.tensor(0);
  bool reduced[RB_MAX_DIMS];
  mark_dims(a, 1, x.ndim, reduced);
  if (a.ret().numel) reduce(a.op_name(), fold, &a.ret(), nullptr, x, reduced);
}

void sum_kernel(const rb::Args& a) { fold_tensor(a, sum_fold(a.ret().dtype_id)); }
void mean_kernel(const rb::Args& a) {
  const int t = computed(a.ret().dtype_id);
  fold_tensor(a, {"typedef MeanFold<T> Fold;\n", t, stored_size(t)});
}
void product_kernel(const rb::Args& a) {
  const int t = computed(a.ret().dtype_id);
  fold_tensor(a, {"typedef ProductFold<T> Fold;\n", t, stored_size(t)});
}
void any_kernel(const rb::Args& a) { fold_tensor(a, {"typedef AnyFold Fold;\n", RB_BOOL8, 1}); }
void all_kernel(const rb::Args& a) { fold_tensor(a, {"typedef EveryFold Fold;\n", RB_BOOL8, 1}); }
void count_kernel(const rb::Args& a) { fold_tensor(a, {"typedef CountFold Fold;\n", RB_BOOL8, 8}); }
void logsumexp_kernel(const rb::Args& a) {
  const int t = computed(a.ret().dtype_id);
  fold_tensor(a, {"typedef LogSumExpFold<T> Fold;\n", t, 2 * stored_size(t)});
}
void var_kernel(const rb::Args& a) {
  Fold fold = moments_fold(a.tensor(0).dtype_id);
  fold.number = a.has(2) ? a.real(2) : 1.0;
  fold_tensor(a, fold);
}

// Folds that begin at the least value of a dtype, or the largest one.
#define RB_EXTREME(start, largest)                          \
  "struct Start { static __device__ T of() { return " start \
  "; } };\n"                                                \
  "typedef ExtremeFold<T, Start, " largest "> Fold;\n"
template <bool Largest>
const char* extreme_fold(int dtype) {
  constexpr uint64_t kSigned = bit(RB_I8) | bit(RB_I16) | bit(RB_I32) | bit(RB_I64);
  if (kFloat >> dtype & 1)
    return Largest ? RB_EXTREME("-INFINITY", "1") : RB_EXTREME("INFINITY", "0");
  if (dtype == RB_BOOL8) return Largest ? RB_EXTREME("false", "1") : RB_EXTREME("true", "0");
  if (kSigned >> dtype & 1)
    return Largest ? RB_EXTREME("(T)((UInt64)1 << (8 * sizeof(T) - 1))", "1")
                   : RB_EXTREME("(T)~((UInt64)1 << (8 * sizeof(T) - 1))", "0");
  return Largest ? RB_EXTREME("(T)0", "1") : RB_EXTREME("(T)-1", "0");
}
#undef RB_EXTREME
template <bool Largest>
void extreme_kernel(const rb::Args& a) {
  const int t = computed(a.tensor(0).dtype_id);
  fold_tensor(a, {extreme_fold<Largest>(t), t, stored_size(t)});
}

template <bool Largest>
void place_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &places = a.ret(a.nrets - 1);
  bool reduced[RB_MAX_DIMS];
  mark_dims(a, 1, x.ndim, reduced);
  const Fold fold = {
      Largest ? "typedef PlaceFold<T, 1> Fold;\n" : "typedef PlaceFold<T, 0> Fold;\n",
      computed(x.dtype_id), 16, 0, true};
  if (places.numel)
    reduce(a.op_name(), fold, a.nrets == 2 ? &a.ret(0) : nullptr, &places, x, reduced);
}

constexpr uint64_t kComplexToo = kFloat | bit(RB_C64) | bit(RB_C128);
const rb::KernelSpec kKernels[] = {
    {"sum", rb::wrap<sum_kernel>, 0, kAll},
    {"mean", rb::wrap<mean_kernel>, 0, kComplexToo},
    {"prod.dim", rb::wrap<product_kernel>, 0, kAll},
    {"any", rb::wrap<any_kernel>, 0, kAll},
    {"all", rb::wrap<all_kernel>, 0, kAll},
    {"count_nonzero", rb::wrap<count_kernel>, 0, kAll},
    {"var", rb::wrap<var_kernel>, 0, kFloat},
    {"logsumexp", rb::wrap<logsumexp_kernel>, 0, kFloat},
    {"amax", rb::wrap<extreme_kernel<true>>, 0, kReal},
    {"amin", rb::wrap<extreme_kernel<false>>, 0, kReal},
    {"argmax", rb::wrap<place_kernel<true>>, 0, kReal},
    {"argmin", rb::wrap<place_kernel<false>>, 0, kReal},
    {"max.dim", rb::wrap<place_kernel<true>>, 0, kReal},
    {"min.dim", rb::wrap<place_kernel<false>>, 0, kReal},
};

}  // namespace

Fold sum_fold(int dtype) {
  const int t = computed(dtype);
  return {"typedef SumFold<T> Fold;\n", t, stored_size(t)};
}
Fold moments_fold(int dtype) {
  const int t = computed(dtype);
  return {"typedef MomentsFold<T> Fold;\n", t, 3 * stored_size(t)};
}

int32_t add_reduce(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

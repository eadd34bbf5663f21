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

constexpr unsigned kPack = 16;  // bytes of a Pack of lines.cuh

struct Finish {  // twin of the kernel's
  double count, number;
};

void* data_of(const RbTensor* t) { return t ? t->data : nullptr; }

// Whether the elements of all lines and segments are whole packs but for the ends.
bool in_packs(const SplitLayout& layout, const RbTensor& x) {
  const int64_t each = kPack / std::max<int64_t>(1, x.dtype.bits / 8);
  bool fits = layout.inner.ndim == 1 && layout.inner.strides[1][0] == 1 && each > 1 &&
              reinterpret_cast<uintptr_t>(x.data) % kPack == 0;
  for (int d = 0; d < layout.lines.ndim; ++d)
    fits = fits && (layout.lines.shape[d] == 1 || layout.lines.strides[1][d] % each == 0);
  return fits && layout.inner.n >= 2 * each;
}

}  // namespace

View aligned(const RbTensor& t, const RbTensor& x, const bool* reduced) {
  View view = scalar_view(t);
  const bool kept = t.ndim == x.ndim;
  for (int d = 0, at = 0; d < x.ndim; ++d) {
    const bool there = kept || !reduced[d];
    view.add(reduced[d] ? 1 : x.shape[d], there && !reduced[d] ? t.strides[at] : 0);
    at += there;
  }
  return view;
}

void reduce(const char* op, const Fold& fold, const RbTensor* out, const RbTensor* second,
            const RbTensor& x, const bool* reduced) {
  const RbTensor& first = out ? *out : *second;
  // Results may lack dimensions; their strides stand where x has them.
  View a = aligned(first, x, reduced), b = second ? aligned(*second, x, reduced) : View(a);
  const SplitLayout layout =
      split_layout(op, {&x, &x, &b.tensor(), &a.tensor()}, reduced, 1, !fold.ordered);
  Layout kept = layout.lines, inner = layout.inner;
  std::copy(kept.strides[3], kept.strides[3] + kLayoutDims, kept.strides[0]);
  if (kept.n == 0) return;
  const LinePlan plan = plan_lines(layout, 1, true);
  const Types types = {{"A", x.dtype_id},
                       {"T", fold.compute},
                       {"O", out ? out->dtype_id : x.dtype_id},
                       {"D", second ? +second->dtype_id : +RB_I64}};
  const std::string text = fold.text + ";\n";
  Finish finish = {static_cast<double>(inner.n), fold.number};
  void *to = data_of(out), *also = data_of(second), *from = x.data, *parts = nullptr;
  Lines lines = plan.lines;
  int64_t segment = plan.segment, segments = plan.segments;
  int vector = !lines.columns && in_packs(layout, x);
  Temporary states;
  if (segments > 1) {
    states = Temporary(x, fold.state * kept.n * segments);
    parts = states.data();
  }
  void* arguments[] = {&to,    &also,    &from,     &parts,  &kept,  &inner,
                       &lines, &segment, &segments, &vector, &finish};
  launch(device_of(x), Kernel{op, types, kText_reduce, text + "RB_REDUCE\n"}, plan.grid, arguments);
  if (segments == 1) return;
  const LinePlan joining = plan_lines(kept.n, segments, kept.n > 1, false);
  lines = joining.lines;
  void* joins[] = {&to, &also, &parts, &kept, &lines, &segments, &finish};
  launch(device_of(x), Kernel{op, types, kText_reduce, text + "RB_REDUCE_PARTS\n"}, joining.grid,
         joins);
}

namespace {

// Dimensions that argument `arg` names; all where it is None or empty.
void mark_dims(const rb::Args& a, int arg, int ndim, bool* reduced) {
  const bool all = !a.has(arg) || (a.args[arg].tag == RB_INTS && a.args[arg].len == 0);
  std::fill(reduced, reduced + RB_MAX_DIMS, all);
  if (all || ndim == 0) return;
  for (const int64_t d : a.ints(arg)) reduced[d] = true;
}

int64_t size_of(int dtype) {
  RbDTypeInfo info = {};
  info.struct_size = sizeof info;
  rb::check(rb::host->dtype_info(dtype, &info));
  return info.itemsize;
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
  fold_tensor(a, {"typedef MeanFold<T> Fold", t, size_of(t)});
}
void product_kernel(const rb::Args& a) {
  const int t = computed(a.ret().dtype_id);
  fold_tensor(a, {"typedef ProductFold<T> Fold", t, size_of(t)});
}
void any_kernel(const rb::Args& a) { fold_tensor(a, {"typedef AnyFold Fold", RB_BOOL8, 1}); }
void all_kernel(const rb::Args& a) { fold_tensor(a, {"typedef EveryFold Fold", RB_BOOL8, 1}); }
void count_kernel(const rb::Args& a) { fold_tensor(a, {"typedef CountFold Fold", RB_BOOL8, 8}); }
void logsumexp_kernel(const rb::Args& a) {
  const int t = computed(a.ret().dtype_id);
  fold_tensor(a, {"typedef LogSumExpFold<T> Fold", t, 2 * size_of(t)});
}
void var_kernel(const rb::Args& a) {
  Fold fold = moments_fold(a.tensor(0).dtype_id);
  fold.number = a.has(2) ? a.real(2) : 1.0;
  fold_tensor(a, fold);
}

// The least and largest values by dtype.
std::string end_of(int dtype, bool largest) {
  if (kFloat >> dtype & 1) return largest ? "INFINITY" : "-INFINITY";
  if (dtype == RB_BOOL8) return largest ? "true" : "false";
  const bool is_signed = dtype == RB_I8 || dtype == RB_I16 || dtype == RB_I32 || dtype == RB_I64;
  if (!is_signed) return largest ? "(T)-1" : "(T)0";
  return largest ? "(T)~((UInt64)1 << (8 * sizeof(T) - 1))"
                 : "(T)((UInt64)1 << (8 * sizeof(T) - 1))";
}
template <int Largest>
void extreme_kernel(const rb::Args& a) {
  const int t = computed(a.tensor(0).dtype_id);
  const std::string start =
      "struct Start { static __device__ T of() { return " + end_of(t, !Largest) + "; } };\n";
  fold_tensor(a, {start + "typedef ExtremeFold<T, Start, " + (Largest ? "1" : "0") + "> Fold", t,
                  size_of(t)});
}

template <int Largest>
void place_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &places = a.ret(a.nrets - 1);
  bool reduced[RB_MAX_DIMS];
  mark_dims(a, 1, x.ndim, reduced);
  const int t = computed(x.dtype_id);
  const Fold fold = {std::string("typedef PlaceFold<T, ") + (Largest ? "1" : "0") + "> Fold", t, 16,
                     0, true};
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
    {"amax", rb::wrap<extreme_kernel<1>>, 0, kReal},
    {"amin", rb::wrap<extreme_kernel<0>>, 0, kReal},
    {"argmax", rb::wrap<place_kernel<1>>, 0, kReal},
    {"argmin", rb::wrap<place_kernel<0>>, 0, kReal},
    {"max.dim", rb::wrap<place_kernel<1>>, 0, kReal},
    {"min.dim", rb::wrap<place_kernel<0>>, 0, kReal},
};

}  // namespace

Fold sum_fold(int dtype) {
  const int t = computed(dtype);
  return {"typedef SumFold<T> Fold", t, size_of(t)};
}
Fold moments_fold(int dtype) {
  const int t = computed(dtype);
  return {"typedef MomentsFold<T> Fold", t, 3 * size_of(t)};
}

int32_t add_reduce(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// sort, topk and searchsorted.
#include <algorithm>
#include <utility>

#include "view.h"

namespace rbcl {
namespace {

// `v` with dimension `dim` last.
View with_last(View v, int64_t dim) {
  if (v.ndim == 0) return at_least_1d(v);
  std::rotate(v.shape + dim, v.shape + dim + 1, v.shape + v.ndim);
  std::rotate(v.strides + dim, v.strides + dim + 1, v.strides + v.ndim);
  return v;
}

// The first entries of each sorted line, as many as the results have room for.
void sort_into(const rb::Args& a, int64_t dim, bool descending) {
  const View x = with_last(view_of(a.tensor(0)), dim);
  const int64_t n = x.numel(), length = x.shape[x.ndim - 1];
  if (n == 0) return;
  Device& device = device_of(a.ret());
  const Temp values(device, x.dtype, n), other(device, x.dtype, n), places(device, RB_I64, n),
      other_places(device, RB_I64, n);
  View from = dense_view(values.data(), x.dtype, x), to = dense_view(other.data(), x.dtype, x);
  View from_places = dense_view(places.data(), RB_I64, x),
       to_places = dense_view(other_places.data(), RB_I64, x);
  copy_view(device, from, x);
  Launch(device, RB_I64, "number_places").pointer(places.data()).value(length).value(n).run(n);
  for (int64_t width = 1; width < length; width *= 2) {
    Launch(device, x.dtype, "merge_runs")
        .pointer(to.data)
        .pointer(to_places.data)
        .pointer(from.data)
        .pointer(from_places.data)
        .value(length)
        .value(width)
        .value(static_cast<int>(descending))
        .value(n)
        .run(n);
    std::swap(from, to);
    std::swap(from_places, to_places);
  }
  const View out = with_last(view_of(a.ret(0)), dim),
             out_places = with_last(view_of(a.ret(1)), dim);
  const int last = out.ndim - 1;
  copy_view(device, out, from.narrowed(last, 0, out.shape[last]));
  copy_view(device, out_places, from_places.narrowed(last, 0, out.shape[last]));
}

void sort_kernel(const rb::Args& a) { sort_into(a, a.integer(1), a.has(2) && a.boolean(2)); }
void topk_kernel(const rb::Args& a) { sort_into(a, a.integer(2), !a.has(3) || a.boolean(3)); }

void searchsorted_kernel(const rb::Args& a) {
  const RbTensor &sorted = a.tensor(0), &out = a.ret();
  if (sorted.ndim != 1)
    rb::fail(RB_E_ARG, "searchsorted: `sorted_sequence` must have 1 dimension, got %d",
             sorted.ndim);
  const int dtype = sorted.dtype_id;
  Device& device = device_of(out);
  const DenseInput keys(device, sorted, dtype);
  const Temp number(device, dtype, 1);
  View one = {};
  one.data = number.data();
  one.dtype = dtype;
  if (a.args[1].tag != RB_TENSOR) fill_view(device, one, a.args[1]);
  const DenseInput wanted(
      device,
      a.args[1].tag == RB_TENSOR ? view_of(a.tensor(1)) : broadcast(one, out.ndim, out.shape),
      dtype);
  const DenseResult to(device, out);
  Launch(device, dtype, "searchsorted")
      .pointer(to.data())
      .pointer(keys.data())
      .pointer(wanted.data())
      .value(sorted.numel)
      .value(static_cast<int>(a.has(2) && a.boolean(2)))
      .value(out.numel)
      .run(out.numel);
  to.finish();
}

const rb::KernelSpec kKernels[] = {
    {"sort", rb::wrap<sort_kernel>},
    {"topk", rb::wrap<topk_kernel>},
    {"searchsorted", rb::wrap<searchsorted_kernel>},
};

}  // namespace

int32_t add_sort(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

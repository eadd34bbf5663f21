// gather, index_select and embedding: one kernel, whose index lies in different ways over the
// result.
#include "indexing.h"

namespace rbcl {
namespace {

void gather(const rb::Args& a, const View& out, const View& x, const View& index, int64_t size,
            int64_t step) {
  if (out.numel() == 0) return;
  Device& device = device_of(a.ret());
  const Space space = space_of(a.op_name(), {&out, &index, &x});
  Launch(device, bits_dtype(out.dtype), "gather")
      .pointer(out.data)
      .pointer(x.data)
      .pointer(index.data)
      .value(space)
      .value(size)
      .value(step)
      .pointer(device.fault())
      .value(fault_number(a.op_name()))
      .run(space.n);
}

// `x` over the shape of `out`, standing still along `dim`, where the index steps.
View source(const View& x, const View& out, int dim) {
  View v = out;
  v.data = x.data;
  for (int d = 0; d < out.ndim; ++d) v.strides[d] = d == dim ? 0 : x.strides[d];
  return v;
}

void gather_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  const Index index(a.op_name(), device_of(a.ret()), a.tensor(2));
  const View at = at_least_1d(index.view());
  bool fits = at.ndim == x.ndim;
  for (int d = 0; fits && d < x.ndim; ++d) fits = d == dim || at.shape[d] <= x.shape[d];
  if (!fits) {
    rb::fail(RB_E_ARG,
             "gather: `index` must have as many dimensions as `input` and be no larger, except "
             "along `dim`");
  }
  gather(a, out, source(x, out, dim), at, x.shape[dim], x.strides[dim]);
}

void index_select_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  if (a.tensor(2).ndim > 1)
    rb::fail(RB_E_ARG, "index_select: `index` must have 1 dimension, got %d", a.tensor(2).ndim);
  const Index index(a.op_name(), device_of(a.ret()), a.tensor(2));
  View at = out;
  at.data = index.view().data;
  for (int d = 0; d < out.ndim; ++d)
    at.strides[d] = d == dim && index.view().ndim ? index.view().strides[0] : 0;
  gather(a, out, source(x, out, dim), at, x.shape[dim], x.strides[dim]);
}

void embedding_kernel(const rb::Args& a) {
  const View table = view_of(a.tensor(0)), out = view_of(a.ret());
  const Index index(a.op_name(), device_of(a.ret()), a.tensor(1));
  View at = out, rows = out;
  at.data = index.view().data;
  rows.data = table.data;
  for (int d = 0; d < out.ndim; ++d) {
    const bool last = d == out.ndim - 1;
    at.strides[d] = last ? 0 : index.view().strides[d];
    rows.strides[d] = last ? table.strides[1] : 0;
  }
  gather(a, out, rows, at, table.shape[0], table.strides[0]);
}

const rb::KernelSpec kKernels[] = {
    {"gather", rb::wrap<gather_kernel>},
    {"index_select", rb::wrap<index_select_kernel>},
    {"embedding", rb::wrap<embedding_kernel>},
};

}  // namespace

int32_t add_gather(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

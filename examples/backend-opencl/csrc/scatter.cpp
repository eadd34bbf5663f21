// scatter, scatter_add, index_add and embedding's derivative: lines of an index, each in order
// (kernels/index.cl).
#include "indexing.h"

namespace rbcl {
namespace {

struct Writes {
  bool add = false;
  double factor = 1;
  int64_t whole_factor = 1;
  int64_t skip = std::numeric_limits<int64_t>::min();
};

// `index` and `src` have one shape, whose lines along `dim` go to the lines of `out`. src.data
// null: `number`.
void scatter(const rb::Args& a, const View& out, const View& index, const View& src,
             const RbValue& number, int dim, const Writes& w) {
  if (index.numel() == 0) return;
  Device& device = device_of(a.ret());
  View to = index, at = index, from = src;
  to.data = out.data;
  for (int d = 0; d < index.ndim; ++d) to.strides[d] = out.strides[d];
  to.shape[dim] = at.shape[dim] = from.shape[dim] = 1;
  const Space lines = space_of(a.op_name(), {&to, &at, &from});
  const bool has_src = src.data != nullptr;
  Launch(device, out.dtype, "scatter_lines")
      .pointer(out.data)
      .pointer(index.data)
      .pointer(has_src ? src.data : out.data)
      .number(out.dtype, has_src ? 0 : rb::to_double(number), has_src ? 0 : rb::to_int(number))
      .value(static_cast<int>(has_src))
      .value(lines)
      .value(index.shape[dim])
      .value(index.strides[dim])
      .value(src.strides[dim])
      .value(out.shape[dim])
      .value(out.strides[dim])
      .value(static_cast<int>(w.add))
      .number(out.dtype, w.factor, w.whole_factor)
      .value(w.skip)
      .pointer(device.fault())
      .value(fault_number(a.op_name()))
      .run(lines.n);
}

View source(const rb::Args& a, int i, const char* name) {
  const RbTensor& src = a.tensor(i);
  if (src.dtype_id != a.ret().dtype_id) {
    rb::fail(RB_E_TYPE, "%s: expected `%s` of %s like `input`, got %s", a.op_name(), name,
             dtype_name(a.ret().dtype_id), dtype_name(src.dtype_id));
  }
  return at_least_1d(view_of(src));
}

void check_index(const rb::Args& a, const View& index, const View& other, const char* name,
                 int free) {
  bool fits = index.ndim == other.ndim;
  for (int d = 0; fits && d < index.ndim; ++d) fits = d == free || index.shape[d] <= other.shape[d];
  if (!fits) {
    rb::fail(RB_E_ARG, "%s: `index` must have as many dimensions as `%s` and be no larger%s",
             a.op_name(), name, free < 0 ? "" : ", except along `dim`");
  }
}

enum Kind { kWrite, kAdd, kNumber };
template <Kind K>
void scatter_kernel(const rb::Args& a) {
  Device& device = device_of(a.ret());
  const View out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  const Index index(a.op_name(), device, a.tensor(2));
  const View at = at_least_1d(index.view());
  check_index(a, at, out, "input", dim);
  View src = at;
  src.data = nullptr;
  if (K != kNumber) {
    const View given = source(a, 3, "src");
    check_index(a, at, given, "src", -1);
    src = given;
    for (int d = 0; d < at.ndim; ++d) src.shape[d] = at.shape[d];
  }
  copy_view(device, view_of(a.ret()), view_of(a.tensor(0)));
  Writes w;
  w.add = K == kAdd;
  scatter(a, out, at, src, K == kNumber ? a.args[3] : rb::int_value(0), dim, w);
}

void index_add_kernel(const rb::Args& a) {
  Device& device = device_of(a.ret());
  const View out = at_least_1d(view_of(a.ret())), src = source(a, 3, "source");
  const int dim = static_cast<int>(a.integer(1));
  const Index index(a.op_name(), device, a.tensor(2));
  if (index.view().ndim > 1)
    rb::fail(RB_E_ARG, "index_add: `index` must have 1 dimension, got %d", index.view().ndim);
  bool fits = src.ndim == out.ndim && src.shape[dim] == index.view().numel();
  for (int d = 0; fits && d < out.ndim; ++d) fits = d == dim || src.shape[d] == out.shape[d];
  if (!fits) {
    rb::fail(
        RB_E_ARG,
        "index_add: `source` must have the shape of `input` with %lld slices along dimension %d",
        static_cast<long long>(index.view().numel()), dim);
  }
  View at = src;
  at.data = index.view().data;
  for (int d = 0; d < src.ndim; ++d)
    at.strides[d] = d == dim && index.view().ndim ? index.view().strides[0] : 0;
  copy_view(device, view_of(a.ret()), view_of(a.tensor(0)));
  Writes w;
  w.add = true;
  if (a.has(4)) {
    w.factor = a.real(4);
    w.whole_factor = rb::to_int(a.args[4]);
  }
  scatter(a, out, at, src, rb::int_value(0), dim, w);
}

void embedding_backward_kernel(const rb::Args& a) {
  Device& device = device_of(a.ret());
  const RbTensor& g = a.tensor(0);
  const View out = view_of(a.ret());
  fill_view(device, out, rb::int_value(0));
  const DenseInput rows(device, g, g.dtype_id), index(device, a.tensor(1), RB_I64);
  View src = {};
  src.data = rows.data();
  src.dtype = g.dtype_id;
  src.ndim = 2;
  src.shape[0] = a.tensor(1).numel;
  src.shape[1] = src.strides[0] = out.shape[1];
  src.strides[1] = 1;
  View at = src;
  at.data = index.data();
  at.strides[0] = 1;
  at.strides[1] = 0;
  Writes w;
  w.add = true;
  if (a.integer(3) >= 0) w.skip = a.integer(3);
  scatter(a, out, at, src, rb::int_value(0), 0, w);
}

const rb::KernelSpec kKernels[] = {
    {"scatter", rb::wrap<scatter_kernel<kWrite>>},
    {"scatter_add", rb::wrap<scatter_kernel<kAdd>>},
    {"scatter.value", rb::wrap<scatter_kernel<kNumber>>},
    {"index_add", rb::wrap<index_add_kernel>},
    {"embedding_backward", rb::wrap<embedding_backward_kernel>},
};

}  // namespace

int32_t add_scatter(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

// gather, scatter, scatter_add, index_select, index_add: indices along one dimension.
#include "indexing.h"
#include "kernels.h"

namespace rbcpu {
namespace {

// A 0-d tensor as one of size (1,), so that a dimension exists.
View at_least_1d(View v) {
  if (v.ndim == 0) {
    v.ndim = 1;
    v.shape[0] = 1;
    v.strides[0] = 1;
  }
  return v;
}

void set_space(LoopSpace& s, const View& positions, int nin, const IndexStep& step) {
  s.ndim = positions.ndim;
  s.nin = nin;
  s.ctx = &step;
  for (int d = 0; d < positions.ndim; ++d) s.shape[d] = positions.shape[d];
}
void set_bytes(int64_t* strides, const View& v) {
  for (int d = 0; d < v.ndim; ++d) strides[d] = v.strides[d] * v.item();
}

// index.shape[d] <= other.shape[d], except along `dim` where `skip_dim`.
void check_index_shape(const char* op, const View& index, const View& other, int dim, bool skip_dim,
                       const char* name) {
  bool ok = index.ndim == other.ndim;
  for (int d = 0; ok && d < index.ndim; ++d)
    ok = (skip_dim && d == dim) || index.shape[d] <= other.shape[d];
  if (!ok) {
    rb::fail(RB_E_ARG, "%s: `index` must have as many dimensions as `%s` and be no larger%s", op,
             name, skip_dim ? ", except along `dim`" : "");
  }
}

void gather_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  CheckedIndex index("gather", a.tensor(2), x.shape[dim], dim, false);
  const View at = at_least_1d(index.view);
  if (at.numel() == 0) return;
  check_index_shape("gather", at, x, dim, true, "input");
  IndexStep step{0, nullptr};
  LoopSpace s;
  set_space(s, at, 2, step);
  s.out = out.data;
  set_bytes(s.out_strides, out);
  s.in[0] = at.data;
  set_bytes(s.in_strides[0], at);
  s.in[1] = x.data;
  step.bytes = freeze_dim(x, dim, s.in_strides[1]);
  run_space(s, gather_loop(x.item()), kGrain);
}

// Shared by scatter, scatter.value and scatter_add: `value` is one element for scatter.value.
void run_scatter(const rb::Args& a, Loop loop, const View* src, const void* value) {
  const RbTensor& x = a.tensor(0);
  const View out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  CheckedIndex index(a.op_name(), a.tensor(2), out.shape[dim], dim, false);
  const View at = at_least_1d(index.view);
  if (at.numel() != 0) {
    check_index_shape(a.op_name(), at, out, dim, true, "input");
    if (src) check_index_shape(a.op_name(), at, *src, dim, false, "src");
  }
  copy_into_result(a.ret(), x);
  if (at.numel() == 0) return;
  IndexStep step{0, nullptr};
  LoopSpace s;
  set_space(s, at, 2, step);
  s.out = out.data;
  step.bytes = freeze_dim(out, dim, s.out_strides);
  s.in[0] = at.data;
  set_bytes(s.in_strides[0], at);
  if (src) {
    s.in[1] = src->data;
    set_bytes(s.in_strides[1], *src);
  } else {
    s.in[1] = static_cast<const char*>(value);
    for (int d = 0; d < s.ndim; ++d) s.in_strides[1][d] = 0;
  }
  run_split(s, loop, int64_t{1} << dim);
}

View same_dtype(const rb::Args& a, int arg, const char* name) {
  const RbTensor &x = a.tensor(0), &src = a.tensor(arg);
  if (src.dtype_id != x.dtype_id) {
    rb::fail(RB_E_TYPE, "%s: expected `%s` of %s like `input`, got %s", a.op_name(), name,
             kDTypeNames[x.dtype_id], kDTypeNames[src.dtype_id]);
  }
  return at_least_1d(view_of(src));
}

void scatter_kernel(const rb::Args& a) {
  const View src = same_dtype(a, 3, "src");
  run_scatter(a, scatter_loop(src.item()), &src, nullptr);
}
void scatter_add_kernel(const rb::Args& a) {
  const View src = same_dtype(a, 3, "src");
  run_scatter(a, scatter_add_loop(src.dtype), &src, nullptr);
}
void scatter_value_kernel(const rb::Args& a) {
  alignas(16) char value[16];
  store_value(a.args[3], a.ret().dtype_id, value);
  run_scatter(a, scatter_loop(item_size(a.ret())), nullptr, value);
}

void check_1d(const char* op, const View& index) {
  if (index.ndim > 1)
    rb::fail(RB_E_ARG, "%s: `index` must have 1 dimension, got %d", op, index.ndim);
}

// Positions are those of `slices`; the index varies along `dim` only.
void set_line_index(LoopSpace& s, const View& at, const View& slices, int dim) {
  s.in[0] = at.data;
  for (int d = 0; d < slices.ndim; ++d)
    s.in_strides[0][d] = d == dim ? static_cast<int64_t>(sizeof(int64_t)) : 0;
}

void index_select_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  check_1d("index_select", view_of(a.tensor(2)));
  CheckedIndex index("index_select", a.tensor(2), x.shape[dim], dim, false);
  IndexStep step{0, nullptr};
  LoopSpace s;
  set_space(s, out, 2, step);
  s.out = out.data;
  set_bytes(s.out_strides, out);
  set_line_index(s, index.view, out, dim);
  s.in[1] = x.data;
  step.bytes = freeze_dim(x, dim, s.in_strides[1]);
  run_space(s, gather_loop(x.item()), kGrain);
}

void index_add_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const View out = at_least_1d(view_of(a.ret())), src = same_dtype(a, 3, "source");
  const int dim = static_cast<int>(a.integer(1));
  check_1d("index_add", view_of(a.tensor(2)));
  CheckedIndex index("index_add", a.tensor(2), out.shape[dim], dim, false);
  bool ok = src.ndim == out.ndim && src.shape[dim] == index.view.numel();
  for (int d = 0; ok && d < out.ndim; ++d) ok = d == dim || src.shape[d] == out.shape[d];
  if (!ok) {
    rb::fail(
        RB_E_ARG,
        "index_add: `source` must have the shape of `input` with %lld slices along dimension %d",
        static_cast<long long>(index.view.numel()), dim);
  }
  copy_into_result(a.ret(), x);
  alignas(16) char factor[16];
  const bool half = (kMaskHalf >> src.dtype & 1) != 0;
  IndexStep step{0, nullptr};
  if (a.has(4) && !(a.args[4].tag == RB_INT && a.args[4].v.i == 1)) {
    store_value(a.args[4], half ? static_cast<int>(RB_F32) : src.dtype, factor);
    step.factor = factor;
  }
  LoopSpace s;
  set_space(s, src, 2, step);
  s.out = out.data;
  step.bytes = freeze_dim(out, dim, s.out_strides);
  set_line_index(s, index.view, src, dim);
  s.in[1] = src.data;
  set_bytes(s.in_strides[1], src);
  run_split(s, scatter_add_loop(src.dtype), int64_t{1} << dim);
}

const rb::KernelSpec kKernels[] = {
    {"gather", rb::wrap<gather_kernel>},
    {"scatter", rb::wrap<scatter_kernel>},
    {"scatter.value", rb::wrap<scatter_value_kernel>},
    {"scatter_add", rb::wrap<scatter_add_kernel>},
    {"index_select", rb::wrap<index_select_kernel>},
    {"index_add", rb::wrap<index_add_kernel>},
};

}  // namespace

int32_t add_scatter(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

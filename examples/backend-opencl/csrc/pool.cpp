// Pooling: maximum and mean over windows of a given or an adapted size, and their derivatives.
#include <algorithm>

#include "view.h"

namespace rbcl {
namespace {

struct Windows {  // twin of Windows in pool.cl
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  int64_t divisor;
  int32_t adapted, count_padding;

  int64_t ins() const { return in[0] * in[1] * in[2]; }
  int64_t outs() const { return out[0] * out[1] * out[2]; }
};

// Volumes of `in` and `out`; windows are adapted until `read` says otherwise.
struct Pool {
  Windows w = {};
  int64_t volumes = 1;
  int rank;

  Pool(const rb::Args& a, const RbTensor& in, const RbTensor& out, int r) : rank(r) {
    if (rank < 1 || rank > 3 || (in.ndim != rank + 1 && in.ndim != rank + 2) ||
        out.ndim != in.ndim) {
      rb::fail(RB_E_ARG, "%s: expected input of %d or %d dimensions, got %d", a.op_name(), rank + 1,
               rank + 2, in.ndim);
    }
    w.adapted = 1;
    for (int d = 0; d < 3; ++d) {
      const int at = in.ndim - 3 + d;
      w.in[d] = d < 3 - rank ? 1 : in.shape[at];
      w.out[d] = d < 3 - rank ? 1 : out.shape[at];
      w.kernel[d] = w.stride[d] = w.dilation[d] = 1;
    }
    for (int d = 0; d < in.ndim - rank; ++d) volumes *= in.shape[d];
  }

  /// kernel_size, stride, padding and perhaps dilation from argument `first` on.
  void read(const rb::Args& a, int first, bool dilated) {
    w.adapted = 0;
    read(a, first, "kernel_size", 1, w.kernel);
    std::copy(w.kernel, w.kernel + 3, w.stride);
    if (a.has(first + 1) && a.ints(first + 1).len) read(a, first + 1, "stride", 1, w.stride);
    read(a, first + 2, "padding", 0, w.padding);
    if (dilated) read(a, first + 3, "dilation", 1, w.dilation);
    for (int d = 0; d < 3; ++d) {
      if (2 * w.padding[d] > w.dilation[d] * (w.kernel[d] - 1) + 1)
        rb::fail(RB_E_ARG, "%s: `padding` must be at most half of `kernel_size`", a.op_name());
    }
  }
  /// count_include_pad and divisor_override from argument `first` on.
  void read_divisor(const rb::Args& a, int first) {
    w.count_padding = !a.has(first) || a.boolean(first);
    if (!a.has(first + 1)) return;
    w.divisor = a.integer(first + 1);
    if (w.divisor == 0) rb::fail(RB_E_ARG, "%s: `divisor_override` must not be 0", a.op_name());
  }

 private:
  void read(const rb::Args& a, int arg, const char* name, int64_t least, int64_t* to) const {
    const auto v = a.ints(arg);
    if (v.len != 1 && v.len != static_cast<uint32_t>(rank))
      rb::fail(RB_E_ARG, "%s: `%s` must have %d entries, got %u", a.op_name(), name, rank, v.len);
    for (int d = 3 - rank; d < 3; ++d) {
      to[d] = v[v.len == 1 ? 0 : d - (3 - rank)];
      if (to[d] < least)
        rb::fail(RB_E_ARG, "%s: `%s` must be at least %lld", a.op_name(), name,
                 static_cast<long long>(least));
    }
  }
};

void max_pool(const rb::Args& a, const Pool& pool) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  for (int d = 0; !pool.w.adapted && d < 3; ++d) {
    const int64_t start = (pool.w.out[d] - 1) * pool.w.stride[d] - pool.w.padding[d];
    if (out.numel && start >= pool.w.in[d])
      rb::fail(RB_E_ARG, "%s: a window lies in the padding altogether", a.op_name());
  }
  Device& device = device_of(out);
  const DenseResult values(device, out), places(device, a.ret(1));
  Launch(device, x.dtype_id, "max_pool")
      .pointer(values.data())
      .pointer(places.data())
      .pointer(x.data)
      .value(pool.w)
      .value(out.numel)
      .run(out.numel);
  values.finish();
  places.finish();
}
void max_pool_kernel(const rb::Args& a) {
  Pool pool(a, a.tensor(0), a.ret(), static_cast<int>(a.ints(1).len));
  pool.read(a, 1, true);
  max_pool(a, pool);
}
void adaptive_max_kernel(const rb::Args& a) {
  max_pool(a, Pool(a, a.tensor(0), a.ret(), static_cast<int>(a.ints(1).len)));
}

void max_pool_dx_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &index = a.tensor(1), &out = a.ret();
  const Pool pool(a, out, g, static_cast<int>(a.integer(3)));
  bool same = index.ndim == g.ndim && index.dtype_id == RB_I64;
  for (int d = 0; same && d < g.ndim; ++d) same = index.shape[d] == g.shape[d];
  if (!same) rb::fail(RB_E_ARG, "%s: `indices` must be int64 of the shape of `g`", a.op_name());
  Device& device = device_of(out);
  const DenseResult to(device, out);
  Launch(device, g.dtype_id, "max_pool_gradient")
      .pointer(to.data())
      .pointer(g.data)
      .pointer(index.data)
      .value(pool.w.ins())
      .value(pool.w.outs())
      .value(pool.volumes)
      .pointer(device.fault())
      .value(fault_number(a.op_name()))
      .run(pool.volumes);
  to.finish();
}

void mean(const rb::Args& a, const Pool& pool, const char* kernel, int64_t items) {
  const RbTensor& out = a.ret();
  Device& device = device_of(out);
  const DenseResult to(device, out);
  Launch(device, out.dtype_id, kernel)
      .pointer(to.data())
      .pointer(a.tensor(0).data)
      .value(pool.w)
      .value(items)
      .run(items);
  to.finish();
}
void avg_pool_kernel(const rb::Args& a) {
  Pool pool(a, a.tensor(0), a.ret(), static_cast<int>(a.ints(1).len));
  pool.read(a, 1, false);
  pool.read_divisor(a, 5);
  mean(a, pool, "mean_pool", a.ret().numel);
}
void avg_pool_dx_kernel(const rb::Args& a) {
  Pool pool(a, a.ret(), a.tensor(0), static_cast<int>(a.ints(2).len));
  pool.read(a, 2, false);
  pool.read_divisor(a, 6);
  mean(a, pool, "mean_pool_gradient", pool.volumes);
}
void adaptive_kernel(const rb::Args& a) {
  const Pool pool(a, a.tensor(0), a.ret(), static_cast<int>(a.ints(1).len));
  mean(a, pool, "mean_pool", a.ret().numel);
}
void adaptive_dx_kernel(const rb::Args& a) {
  const Pool pool(a, a.ret(), a.tensor(0), static_cast<int>(a.integer(2)));
  mean(a, pool, "mean_pool_gradient", pool.volumes);
}

const rb::KernelSpec kKernels[] = {
    {"max_pool_with_indices", rb::wrap<max_pool_kernel>, RB_K_CONTIGUOUS, kInt | kFloat},
    {"max_pool_dx", rb::wrap<max_pool_dx_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"adaptive_max_pool_with_indices", rb::wrap<adaptive_max_kernel>, RB_K_CONTIGUOUS,
     kInt | kFloat},
    {"avg_pool", rb::wrap<avg_pool_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"avg_pool_dx", rb::wrap<avg_pool_dx_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"adaptive_avg_pool", rb::wrap<adaptive_kernel>, RB_K_CONTIGUOUS, kFloat},
    {"adaptive_avg_pool_dx", rb::wrap<adaptive_dx_kernel>, RB_K_CONTIGUOUS, kFloat},
};

}  // namespace

int32_t add_pool(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

// Pooling in one to three directions, and its derivatives, on tensors of any strides.
#include <algorithm>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

struct Pool {  // twin of the kernels'
  int64_t planes, in[3], out[3];
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  int64_t in_step[3], out_step[3], index_step[3];
  double divisor;
  int32_t adapted, count_pad, planes_fast, reserved;

  int64_t inputs() const { return planes * in[0] * in[1] * in[2]; }
  int64_t outputs() const { return planes * out[0] * out[1] * out[2]; }
};

void steps_of(const RbTensor& t, int rank, int64_t* steps) {
  for (int d = 0; d < 3; ++d) {
    const int at = t.ndim - 3 + d;
    steps[d] = d < 3 - rank ? 0 : t.strides[at];
  }
}

// Dimensions before the windows' ones.
View planes_of(const RbTensor& t, int rank) {
  View view = scalar_view(t);
  for (int d = 0; d < t.ndim - rank; ++d) view.add(t.shape[d], t.strides[d]);
  return view;
}

// Core has checked that shapes fit.
Pool pool_of(const RbTensor& in, const RbTensor& out, int rank) {
  Pool p = {};
  p.planes = 1;
  for (int d = 0; d < in.ndim - rank; ++d) p.planes *= in.shape[d];
  for (int d = 0; d < 3; ++d) {
    const int at = in.ndim - 3 + d;
    p.in[d] = d < 3 - rank ? 1 : in.shape[at];
    p.out[d] = d < 3 - rank ? 1 : out.shape[at];
    p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
  }
  steps_of(in, rank, p.in_step);
  steps_of(out, rank, p.out_step);
  const int channel = in.ndim - rank - 1;
  p.planes_fast = in.strides[channel] == 1 && in.shape[channel] > 1 && p.in[2] > 1;
  p.count_pad = 1;
  return p;
}

void read(const rb::Args& a, int arg, int rank, int64_t* to) {
  const auto given = a.ints(arg);
  for (int d = 3 - rank; d < 3; ++d) to[d] = given[given.len == 1 ? 0 : d - (3 - rank)];
}
void read_windows(const rb::Args& a, int first, int rank, bool dilated, Pool& p) {
  read(a, first, rank, p.kernel);
  std::copy(p.kernel, p.kernel + 3, p.stride);
  if (a.has(first + 1) && a.ints(first + 1).len) read(a, first + 1, rank, p.stride);
  read(a, first + 2, rank, p.padding);
  if (dilated) read(a, first + 3, rank, p.dilation);
  for (int d = 0; d < 3; ++d) {  // a single window has any stride, a single tap any dilation
    p.stride[d] = std::min(p.stride[d], std::max<int64_t>(1, p.in[d] + 2 * p.padding[d]));
    if (p.kernel[d] == 1) p.dilation[d] = 1;
  }
}
void read_divisor(const rb::Args& a, int first, Pool& p) {
  p.count_pad = !a.has(first) || a.boolean(first);
  if (!a.has(first + 1)) return;
  if (a.integer(first + 1) == 0)
    rb::fail(RB_E_ARG, "%s: `divisor_override` must not be 0", a.op_name());
  p.divisor = static_cast<double>(a.integer(first + 1));
}

// A macro with the integers that positions need.
bool fits_32(const Pool& p) { return std::max(p.inputs(), p.outputs()) <= INT32_MAX; }
#define RB_POSITIONS(macro, p) (fits_32(p) ? macro "(UInt32)\n" : macro "(Int64)\n")
Types types_of(int from, int to) { return {{"A", from}, {"T", computed(to)}, {"O", to}}; }

void max_pool(const rb::Args& a, Pool& p, int rank) {
  const RbTensor &x = a.tensor(0), &values = a.ret(0), &indices = a.ret(1);
  if (values.numel == 0) return;
  steps_of(indices, rank, p.index_step);
  const View from = planes_of(x, rank), to = planes_of(values, rank), at = planes_of(indices, rank);
  Layout planes = layout_of(a.op_name(), {&from.tensor(), &to.tensor(), &at.tensor()});
  void *out = values.data, *places = indices.data, *in = x.data;
  void* arguments[] = {&out, &places, &in, &p, &planes};
  launch(device_of(x),
         Kernel{a.op_name(), types_of(x.dtype_id, values.dtype_id), kText_pool,
                RB_POSITIONS("RB_MAX_POOL", p)},
         p.outputs(), arguments);
}
void max_pool_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  Pool p = pool_of(a.tensor(0), a.ret(0), rank);
  read_windows(a, 1, rank, true, p);
  for (int d = 0; d < 3; ++d) {  // each window sees something
    const int64_t last = (p.out[d] - 1) * p.stride[d] - p.padding[d];
    if (a.ret(0).numel && last >= p.in[d])
      rb::fail(RB_E_ARG, "%s: a window lies in the padding altogether", a.op_name());
  }
  max_pool(a, p, rank);
}
void adaptive_max_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  Pool p = pool_of(a.tensor(0), a.ret(0), rank);
  p.adapted = 1;
  max_pool(a, p, rank);
}

void average(const rb::Args& a, Pool& p, int rank) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  if (out.numel == 0) return;
  const View from = planes_of(x, rank), to = planes_of(out, rank);
  Layout planes = layout_of(a.op_name(), {&from.tensor(), &to.tensor()});
  void *result = out.data, *in = x.data;
  void* arguments[] = {&result, &in, &p, &planes};
  launch(device_of(x),
         Kernel{a.op_name(), types_of(x.dtype_id, out.dtype_id), kText_pool,
                RB_POSITIONS("RB_AVG_POOL", p)},
         p.outputs(), arguments);
}
void spread(const rb::Args& a, Pool& p, int rank) {
  const RbTensor &g = a.tensor(0), &dx = a.ret();
  if (dx.numel == 0) return;
  if (g.numel == 0) return fill(a.op_name(), dx, rb::int_value(0), rb::int_value(0));
  const View to = planes_of(dx, rank), from = planes_of(g, rank);
  Layout planes = layout_of(a.op_name(), {&to.tensor(), &from.tensor()});
  void *result = dx.data, *gradient = g.data;
  void* arguments[] = {&result, &gradient, &p, &planes};
  launch(device_of(dx),
         Kernel{a.op_name(), types_of(g.dtype_id, dx.dtype_id), kText_pool,
                RB_POSITIONS("RB_AVG_POOL_DX", p)},
         p.inputs(), arguments);
}
void avg_pool_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  Pool p = pool_of(a.tensor(0), a.ret(), rank);
  read_windows(a, 1, rank, false, p);
  read_divisor(a, 5, p);
  average(a, p, rank);
}
void avg_pool_dx_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(2).len);
  Pool p = pool_of(a.ret(), a.tensor(0), rank);
  read_windows(a, 2, rank, false, p);
  read_divisor(a, 6, p);
  spread(a, p, rank);
}
void adaptive_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.ints(1).len);
  Pool p = pool_of(a.tensor(0), a.ret(), rank);
  p.adapted = 1;
  average(a, p, rank);
}
void adaptive_dx_kernel(const rb::Args& a) {
  const int rank = static_cast<int>(a.integer(2));
  Pool p = pool_of(a.ret(), a.tensor(0), rank);
  p.adapted = 1;
  spread(a, p, rank);
}

// Gradients to the places that were largest; 16-bit floats are added up in float32.
void max_pool_dx_kernel(const rb::Args& a) {
  const RbTensor &g = a.tensor(0), &indices = a.tensor(1), &dx = a.ret();
  if (dx.numel == 0) return;
  const int rank = static_cast<int>(a.integer(3)), dtype = computed(dx.dtype_id);
  Temporary wide;
  if (dtype != dx.dtype_id) wide = Temporary(dx, dtype, dx.ndim, dx.shape);
  const RbTensor& sums = wide.data() ? wide.tensor() : dx;
  fill(a.op_name(), sums, rb::int_value(0), rb::int_value(0));
  if (g.numel) {
    Pool p = pool_of(sums, g, rank);
    steps_of(indices, rank, p.index_step);
    const View to = planes_of(sums, rank), from = planes_of(g, rank), at = planes_of(indices, rank);
    Layout planes = layout_of(a.op_name(), {&to.tensor(), &from.tensor(), &at.tensor()});
    void *result = sums.data, *gradient = g.data, *places = indices.data;
    void* arguments[] = {&result, &gradient, &places, &p, &planes};
    launch(device_of(dx),
           Kernel{a.op_name(), types_of(g.dtype_id, dtype), kText_pool, "RB_MAX_POOL_DX\n"},
           p.planes * 32, arguments);
  }
  if (wide.data()) copy(a.op_name(), dx, sums);
}

const rb::KernelSpec kKernels[] = {
    {"max_pool_with_indices", rb::wrap<max_pool_kernel>, 0, kInt | kFloat},
    {"max_pool_dx", rb::wrap<max_pool_dx_kernel>, 0, kFloat},
    {"adaptive_max_pool_with_indices", rb::wrap<adaptive_max_kernel>, 0, kInt | kFloat},
    {"avg_pool", rb::wrap<avg_pool_kernel>, 0, kFloat},
    {"avg_pool_dx", rb::wrap<avg_pool_dx_kernel>, 0, kFloat},
    {"adaptive_avg_pool", rb::wrap<adaptive_kernel>, 0, kFloat},
    {"adaptive_avg_pool_dx", rb::wrap<adaptive_dx_kernel>, 0, kFloat},
};

}  // namespace

int32_t add_pool(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

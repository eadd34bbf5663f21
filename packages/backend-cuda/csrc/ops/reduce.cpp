// Reductions and softmax; kernels/reduce.cuh says how the work is split.
#include <algorithm>

#include "launch/jit.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

constexpr int64_t kEnough = 1024;    // blocks: results from which on none is split
constexpr int64_t kSegment = 16384;  // elements that are worth a block

struct Reduction {
  const char* start;
  const char* step;  // of `all` and `v`
};
const Reduction kSum = {"As<T>::of(0)", "(T)(all + v)"};
const Reduction kProduct = {"As<T>::of(1)", "(T)(all * v)"};

// `x` in two parts: dimensions that stay, and those that are reduced.
struct Split {
  Split(const RbTensor& x, const RbValue& dims) : kept(scalar_view(x)), inner(scalar_view(x)) {
    bool reduced[RB_MAX_DIMS] = {};
    const int64_t* given = dims.tag == RB_INT ? &dims.v.i : dims.v.is;
    const uint32_t count = dims.tag == RB_INT ? 1 : dims.tag == RB_INTS ? dims.len : 0;
    for (uint32_t k = 0; k < count && x.ndim; ++k)
      reduced[given[k] < 0 ? given[k] + x.ndim : given[k]] = true;
    for (int d = 0; d < x.ndim; ++d)
      (reduced[d] || count == 0 ? inner : kept).add(x.shape[d], x.strides[d]);
  }
  View kept, inner;
};

// The result without the dimensions of size 1 that keepdim leaves.
View squeezed(const RbTensor& out, const View& kept) {
  View view(out);
  if (view.ndim() == kept.ndim()) return view;
  View result = scalar_view(out);
  for (int d = 0, at = 0; d < kept.ndim(); ++d) {
    while (view.size(at) != kept.size(d)) ++at;
    result.add(kept.size(d), view.stride(at++));
  }
  return result;
}

unsigned threads_for(int64_t elements) {
  unsigned threads = 32;
  while (threads < 256 && threads < elements) threads *= 2;
  return threads;
}
unsigned blocks_for(int64_t results) {
  return static_cast<unsigned>(std::min<int64_t>(results, 1 << 20));
}

void reduce(const char* op, const Reduction& what, const RbTensor& out, const View& kept,
            const View& inner, int compute, int64_t segments) {
  Layout results = layout_of(op, {&out, &kept.tensor()}),
         elements = layout_of(op, {&inner.tensor()});
  int64_t segment = (elements.n + segments - 1) / segments;
  const Kernel kernel{
      op,
      {{"A", kept.tensor().dtype_id}, {"T", compute}, {"O", out.dtype_id}},
      kText_reduce,
      std::string("RB_REDUCE(") + what.start + ", " + what.step + ", " + what.step + ")\n"};
  void *to = out.data, *from = kept.tensor().data;
  void* arguments[] = {&to, &from, &results, &elements, &segment, &segments};
  launch(device_of(out), kernel, Grid{blocks_for(results.n * segments), 1, 1, threads_for(segment)},
         arguments);
}

void reduce_tensor(const rb::Args& a, const Reduction& what, int compute) {
  const RbTensor &x = a.tensor(0), &result = a.ret();
  if (result.numel == 0) return;
  const Split parts(x, a.has(1) ? a.args[1] : rb::none_value());
  const View out = squeezed(result, parts.kept);
  const int64_t elements = parts.inner.tensor().numel;
  const int64_t segments =
      result.numel >= kEnough
          ? 1
          : std::clamp<int64_t>(elements / kSegment, 1, kEnough / result.numel + 1);
  if (segments == 1)
    return reduce(a.op_name(), what, out.tensor(), parts.kept, parts.inner, compute, 1);
  RbTensor* partial = nullptr;
  int64_t sizes[RB_MAX_DIMS + 1];
  const int ndim = parts.kept.ndim();
  for (int d = 0; d < ndim; ++d) sizes[d] = parts.kept.size(d);
  sizes[ndim] = segments;
  rb::check(
      rb::host->tensor_new(backend_id, x.device.id, compute, ndim + 1, sizes, nullptr, &partial));
  const struct Release {
    RbTensor* t;
    ~Release() { rb::host->release(t); }
  } release{partial};
  View kept(*partial), inner = scalar_view(*partial);
  kept.drop(ndim);
  inner.add(segments, 1);
  reduce(a.op_name(), what, kept.tensor(), parts.kept, parts.inner, compute, segments);
  reduce(a.op_name(), what, out.tensor(), kept, inner, compute, 1);
}

template <const Reduction& What>
void sum_kernel(const rb::Args& a) {
  reduce_tensor(a, What, computed(a.ret().dtype_id));
}
template <int All>
void test_kernel(const rb::Args& a) {
  static const Reduction kAny = {"false", "all || v"}, kEvery = {"true", "all && v"};
  reduce_tensor(a, All ? kEvery : kAny, RB_BOOL8);
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
  const int dtype = a.tensor(0).dtype_id;
  const std::string start = end_of(dtype, !Largest);
  reduce_tensor(a, {start.c_str(), Largest ? "larger(all, v)" : "smaller(all, v)"},
                computed(dtype));
}

template <int Largest>
void place_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &places = a.ret(a.nrets - 1);
  if (places.numel == 0) return;
  const Split parts(x, a.has(1) ? a.args[1] : rb::none_value());
  const View at = squeezed(places, parts.kept);
  const View values = a.nrets == 2 ? squeezed(a.ret(0), parts.kept) : View(at);
  Layout results = layout_of(a.op_name(), {&values.tensor(), &parts.kept.tensor(), &at.tensor()});
  Layout elements = layout_of(a.op_name(), {&parts.inner.tensor()});
  const Kernel kernel{a.op_name(),
                      {{"A", x.dtype_id}, {"T", computed(x.dtype_id)}, {"O", x.dtype_id}},
                      kText_reduce,
                      Largest ? "RB_REDUCE_PLACE(v > best)\n" : "RB_REDUCE_PLACE(v < best)\n"};
  void *to = a.nrets == 2 ? a.ret(0).data : nullptr, *from = x.data, *there = places.data;
  void* arguments[] = {&to, &from, &there, &results, &elements};
  launch(device_of(places), kernel, Grid{blocks_for(results.n), 1, 1, threads_for(elements.n)},
         arguments);
}

template <int Logarithm>
void softmax_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  if (out.numel == 0) return;
  const int64_t given = a.integer(1);
  const int dim = static_cast<int>(given < 0 ? given + x.ndim : given);
  View from(x), to(out);
  int64_t length = x.ndim ? x.shape[dim] : 1, to_step = 0, from_step = 0;
  if (x.ndim) {
    to_step = out.strides[dim];
    from_step = x.strides[dim];
    from.drop(dim);
    to.drop(dim);
  }
  Layout lines = layout_of(a.op_name(), {&to.tensor(), &from.tensor()});
  const Kernel kernel{a.op_name(),
                      {{"A", x.dtype_id}, {"T", computed(out.dtype_id)}, {"O", out.dtype_id}},
                      kText_reduce,
                      Logarithm ? "RB_SOFTMAX(true)\n" : "RB_SOFTMAX(false)\n"};
  void *target = out.data, *source = x.data;
  void* arguments[] = {&target, &source, &lines, &length, &to_step, &from_step};
  launch(device_of(out), kernel, Grid{blocks_for(lines.n), 1, 1, threads_for(length)}, arguments);
}

const rb::KernelSpec kKernels[] = {
    {"sum", rb::wrap<sum_kernel<kSum>>, 0, kAll},
    {"prod.dim", rb::wrap<sum_kernel<kProduct>>, 0, kAll},
    {"amax", rb::wrap<extreme_kernel<1>>, 0, kReal},
    {"amin", rb::wrap<extreme_kernel<0>>, 0, kReal},
    {"any", rb::wrap<test_kernel<0>>, 0, kAll},
    {"all", rb::wrap<test_kernel<1>>, 0, kAll},
    {"argmax", rb::wrap<place_kernel<1>>, 0, kReal},
    {"argmin", rb::wrap<place_kernel<0>>, 0, kReal},
    {"max.dim", rb::wrap<place_kernel<1>>, 0, kReal},
    {"min.dim", rb::wrap<place_kernel<0>>, 0, kReal},
    {"softmax", rb::wrap<softmax_kernel<0>>, 0, kFloat},
    {"log_softmax", rb::wrap<softmax_kernel<1>>, 0, kFloat},
};

}  // namespace

int32_t add_reduce(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

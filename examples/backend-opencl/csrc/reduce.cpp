// Reductions over any dimensions; see kernels/reduce.cl for how the work is split.
#include <algorithm>
#include <cstring>

#include "view.h"

namespace rbcl {
namespace {

constexpr int64_t kItems = 256;      // results from which on none is split
constexpr int64_t kSegment = 2048;   // elements that are worth a work item
constexpr int64_t kSegments = 1024;  // at most, per result

// `x` in two parts: dimensions that stay, and those that are reduced.
struct Split {
  View kept, inner;
};
Split split(const View& x, const RbValue& dims) {
  bool reduced[kMaxDims] = {};
  if (dims.tag == RB_NONE || (dims.tag == RB_INTS && dims.len == 0)) {
    std::fill(reduced, reduced + x.ndim, true);
  } else if (dims.tag == RB_INT) {
    if (x.ndim) reduced[dims.v.i < 0 ? dims.v.i + x.ndim : dims.v.i] = true;
  } else {
    for (uint32_t k = 0; k < dims.len; ++k) {
      if (x.ndim) reduced[dims.v.is[k] < 0 ? dims.v.is[k] + x.ndim : dims.v.is[k]] = true;
    }
  }
  Split s;
  s.kept = s.inner = x;
  s.kept.ndim = s.inner.ndim = 0;
  for (int d = 0; d < x.ndim; ++d) {
    View& to = reduced[d] ? s.inner : s.kept;
    to.shape[to.ndim] = x.shape[d];
    to.strides[to.ndim++] = x.strides[d];
  }
  return s;
}

// The result without the dimensions of size 1 that keepdim leaves.
View result_view(const RbTensor& out, const View& kept) {
  View v = view_of(out);
  if (v.ndim == kept.ndim) return v;
  View squeezed = kept;
  squeezed.data = v.data;
  squeezed.dtype = v.dtype;
  for (int d = 0, at = 0; d < kept.ndim; ++d) {
    while (at < v.ndim && v.shape[at] != kept.shape[d]) ++at;
    squeezed.strides[d] = v.strides[at++];
  }
  return squeezed;
}

int64_t segments_for(int64_t results, int64_t elements) {
  if (results >= kItems) return 1;
  return std::clamp<int64_t>(elements / kSegment, 1, std::min(kSegments, kItems * 4 / results + 1));
}

// Row-major partial results, `segments` per result; the walk over them for the second call.
View partial_view(void* data, int dtype, const View& kept, int64_t segments) {
  View v = dense_view(data, dtype, kept);
  for (int d = 0; d < v.ndim; ++d) v.strides[d] *= segments;
  return v;
}
View segment_view(int64_t segments) {
  View v = {};
  v.ndim = 1;
  v.shape[0] = segments;
  v.strides[0] = 1;
  return v;
}

void reduce_call(Device& device, const char* op, int dtype, const char* kernel, const View& out,
                 const View& kept, const View& inner, int64_t segments, double scale) {
  const Space results = space_of(op, {&out, &kept}), elements = space_of(op, {&inner});
  const int64_t segment = (elements.n + segments - 1) / segments;
  Launch(device, dtype, kernel)
      .pointer(out.data)
      .pointer(kept.data)
      .value(results)
      .value(elements)
      .value(segment)
      .value(segments)
      .number(dtype, scale, 1)
      .run(results.n * segments);
}

// `self` is the kernel's name.
void reduce_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &result = a.ret();
  if (result.numel == 0) return;
  const char* kernel = static_cast<const char*>(a.self);
  const bool test = !std::strcmp(kernel, "reduce_any") || !std::strcmp(kernel, "reduce_all");
  const Split parts = split(view_of(x), a.has(1) ? a.args[1] : rb::none_value());
  const View out = result_view(result, parts.kept);
  const int64_t elements = parts.inner.numel();
  if (elements == 0 && !std::strncmp(kernel, "reduce_m", 8))
    rb::fail(RB_E_ARG, "%s: the dimension to reduce is empty", a.op_name());
  const double scale =
      !std::strcmp(a.op_name(), "mean") ? 1.0 / static_cast<double>(elements) : 1.0;
  const int64_t segments = segments_for(result.numel, elements);
  Device& device = device_of(x);
  const int dtype = x.dtype_id;
  if (segments == 1)
    return reduce_call(device, a.op_name(), dtype, kernel, out, parts.kept, parts.inner, 1, scale);
  const int between = test ? static_cast<int>(RB_BOOL8) : dtype;
  const Temp partial(device, between, result.numel * segments);
  const View first = partial_view(partial.data(), between, parts.kept, segments);
  reduce_call(device, a.op_name(), dtype, kernel, first, parts.kept, parts.inner, segments, 1.0);
  reduce_call(device, a.op_name(), between, kernel, out, first, segment_view(segments), 1, scale);
}

void place_call(Device& device, const char* op, int dtype, const char* kernel, const View& values,
                const View& places, const void* given, const View& kept, const View& inner,
                int64_t segments) {
  const Space results = space_of(op, {&values, &kept}), elements = space_of(op, {&inner});
  const int64_t segment = (elements.n + segments - 1) / segments;
  Launch(device, dtype, kernel)
      .pointer(values.data)
      .pointer(places.data)
      .pointer(kept.data)
      .pointer(given ? given : places.data)
      .value(static_cast<int>(given != nullptr))
      .value(results)
      .value(elements)
      .value(segment)
      .value(segments)
      .run(results.n * segments);
}

// max.dim and min.dim give values and places, argmax and argmin places.
void place_kernel(const rb::Args& a) {
  const char* kernel = static_cast<const char*>(a.self);
  const RbTensor &x = a.tensor(0), &last = a.ret(a.nrets - 1);
  if (last.numel == 0) return;
  const Split parts = split(view_of(x), a.has(1) ? a.args[1] : rb::none_value());
  const int64_t elements = parts.inner.numel(), n = last.numel;
  if (elements == 0) rb::fail(RB_E_ARG, "%s: the dimension to reduce is empty", a.op_name());
  const int64_t segments = segments_for(n, elements);
  Device& device = device_of(x);
  const int dtype = x.dtype_id;
  // Both results are made row-major, side by side, and copied to where they belong.
  const Temp values(device, dtype, n), places(device, RB_I64, n);
  const View to = dense_view(values.data(), dtype, parts.kept),
             at = dense_view(places.data(), RB_I64, parts.kept);
  if (segments == 1) {
    place_call(device, a.op_name(), dtype, kernel, to, at, nullptr, parts.kept, parts.inner, 1);
  } else {
    const Temp some(device, dtype, n * segments), there(device, RB_I64, n * segments);
    const View first = partial_view(some.data(), dtype, parts.kept, segments),
               second = partial_view(there.data(), RB_I64, parts.kept, segments);
    place_call(device, a.op_name(), dtype, kernel, first, second, nullptr, parts.kept, parts.inner,
               segments);
    place_call(device, a.op_name(), dtype, kernel, to, at, there.data(), first,
               segment_view(segments), 1);
  }
  if (a.nrets == 2) copy_view(device, result_view(a.ret(0), parts.kept), to);
  copy_view(device, result_view(last, parts.kept), at);
}

const rb::KernelSpec kKernels[] = {
    {"sum", rb::wrap<reduce_kernel>, 0, 0, "reduce_sum"},
    {"mean", rb::wrap<reduce_kernel>, 0, kFloat, "reduce_sum"},
    {"prod.dim", rb::wrap<reduce_kernel>, 0, 0, "reduce_prod"},
    {"amax", rb::wrap<reduce_kernel>, 0, 0, "reduce_max"},
    {"amin", rb::wrap<reduce_kernel>, 0, 0, "reduce_min"},
    {"any", rb::wrap<reduce_kernel>, 0, 0, "reduce_any"},
    {"all", rb::wrap<reduce_kernel>, 0, 0, "reduce_all"},
    {"max.dim", rb::wrap<place_kernel>, 0, 0, "place_max"},
    {"min.dim", rb::wrap<place_kernel>, 0, 0, "place_min"},
    {"argmax", rb::wrap<place_kernel>, 0, 0, "place_max"},
    {"argmin", rb::wrap<place_kernel>, 0, 0, "place_min"},
};

}  // namespace

int32_t add_reduce(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

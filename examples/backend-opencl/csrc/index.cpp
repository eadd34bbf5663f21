// index and index_put (advanced indexing), nonzero.
#include <algorithm>

#include "indexing.h"

namespace rbcl {
namespace {

// Positions of the indexed places of `x`: offsets that the index tensors add, over their common
// shape, and the dimensions that are not indexed around them.
struct Advanced {
  View places;   // data of x, strides 0 in the indexed part
  View offsets;  // strides 0 outside of it
  View shape;    // of the index tensors together; data: the offsets, row-major
  View rest;     // of x, what is not indexed
  int place;     // where the indexed dimensions stand in the result
  std::unique_ptr<Temp> memory;

  Advanced(const char* op, Device& device, const View& x, rb::Span<RbTensor*> indices);
};

View common_shape(const char* op, rb::Span<RbTensor*> indices) {
  View b = {};
  b.dtype = RB_I64;
  for (const RbTensor* t : indices) {
    if (t) b.ndim = std::max(b.ndim, t->ndim);
  }
  std::fill(b.shape, b.shape + b.ndim, 1);
  for (const RbTensor* t : indices) {
    for (int k = 0; t && k < t->ndim; ++k) {
      int64_t& size = b.shape[b.ndim - t->ndim + k];
      if (size != t->shape[k] && size != 1 && t->shape[k] != 1) {
        rb::fail(RB_E_INDEX, "%s: index tensors do not broadcast: sizes %lld and %lld", op,
                 static_cast<long long>(size), static_cast<long long>(t->shape[k]));
      }
      if (size == 1) size = t->shape[k];
    }
  }
  return b;
}

Advanced::Advanced(const char* op, Device& device, const View& x, rb::Span<RbTensor*> indices) {
  if (indices.len > static_cast<uint32_t>(x.ndim))
    rb::fail(RB_E_INDEX, "%s: %u indices for %d dimensions", op, indices.len, x.ndim);
  shape = common_shape(op, indices);
  memory = std::make_unique<Temp>(device, RB_I64, shape.numel());
  shape = dense_view(memory->data(), RB_I64, shape);
  fill_view(device, shape, rb::int_value(0));
  // The indexed dimensions stand where the first of them was if they are adjacent, else in front.
  int first = -1, last = -1, count = 0;
  for (int d = 0; d < static_cast<int>(indices.len); ++d) {
    if (!indices[d]) continue;
    if (first < 0) first = d;
    last = d;
    ++count;
    const Index index(op, device, *indices[d]);
    const View at = broadcast(index.view(), shape.ndim, shape.shape);
    const Space space = space_of(op, {&shape, &at});
    Launch(device, RB_I64, "add_offsets")
        .pointer(shape.data)
        .pointer(at.data)
        .value(space)
        .value(x.shape[d])
        .value(x.strides[d])
        .pointer(device.fault())
        .value(fault_number(op))
        .run(space.n);
  }
  place = count > 0 && last - first + 1 == count ? first : 0;
  places = offsets = rest = x;
  places.ndim = offsets.ndim = rest.ndim = 0;
  offsets.data = shape.data;
  const auto push = [&](int64_t size, int64_t x_stride, int64_t offset_stride) {
    if (places.ndim == kMaxDims)
      rb::fail(RB_E_ARG, "%s: the result has more than %d dimensions", op, kMaxDims);
    places.shape[places.ndim] = offsets.shape[places.ndim] = size;
    places.strides[places.ndim] = x_stride;
    offsets.strides[places.ndim++] = offset_stride;
    ++offsets.ndim;
  };
  for (int d = 0; d <= x.ndim; ++d) {
    if (d == place) {
      for (int k = 0; k < shape.ndim; ++k) push(shape.shape[k], 0, shape.strides[k]);
    }
    if (d == x.ndim || (d < static_cast<int>(indices.len) && indices[d])) continue;
    push(x.shape[d], x.strides[d], 0);
    rest.shape[rest.ndim] = x.shape[d];
    rest.strides[rest.ndim++] = x.strides[d];
  }
}

void index_kernel(const rb::Args& a) {
  const View x = view_of(a.tensor(0)), out = view_of(a.ret());
  if (out.numel() == 0) return;
  Device& device = device_of(a.ret());
  const Advanced adv("index", device, x, a.tensors(1));
  const Space space = space_of("index", {&out, &adv.offsets, &adv.places});
  Launch(device, bits_dtype(x.dtype), "take")
      .pointer(out.data)
      .pointer(x.data)
      .pointer(adv.offsets.data)
      .value(space)
      .run(space.n);
}

void index_put_kernel(const rb::Args& a) {
  const RbTensor& xt = a.tensor(0);
  const View out = view_of(a.ret());
  const bool accumulate = a.has(3) && a.boolean(3);
  Device& device = device_of(a.ret());
  copy_view(device, out, view_of(xt));
  const Advanced adv("index_put", device, out, a.tensors(1));
  const Temp number(device, out.dtype, 1);
  View given = {};
  given.data = number.data();
  given.dtype = out.dtype;
  if (a.args[2].tag == RB_TENSOR) {
    const RbTensor& values = a.tensor(2);
    if (values.dtype_id != xt.dtype_id) {
      rb::fail(RB_E_TYPE, "index_put: expected `values` of %s like `input`, got %s",
               dtype_name(xt.dtype_id), dtype_name(values.dtype_id));
    }
    given = view_of(values);
    const int extra =
        values.ndim - adv.places.ndim;  // leading ones may be more than the places have
    for (int k = 0; k < values.ndim; ++k) {
      const int d = k - extra;
      if (values.shape[k] != 1 && (d < 0 || values.shape[k] != adv.places.shape[d])) {
        rb::fail(RB_E_ARG,
                 "index_put: `values` (size %lld at dimension %d) do not broadcast to the indexed "
                 "places",
                 static_cast<long long>(values.shape[k]), k);
      }
    }
    if (extra > 0) {
      given.ndim -= extra;
      std::copy(given.shape + extra, given.shape + values.ndim, given.shape);
      std::copy(given.strides + extra, given.strides + values.ndim, given.strides);
    }
  } else {
    fill_view(device, given, a.args[2]);
  }
  const View values = broadcast(given, adv.places.ndim, adv.places.shape);
  if (values.numel() == 0) return;
  if (!accumulate) {
    const Space space = space_of("index_put", {&adv.places, &adv.offsets, &values});
    Launch(device, bits_dtype(out.dtype), "put")
        .pointer(out.data)
        .pointer(values.data)
        .pointer(adv.offsets.data)
        .value(space)
        .run(space.n);
    return;
  }
  View indexed = values, rest = values;  // its dimensions in two parts
  indexed.ndim = adv.shape.ndim;
  rest.ndim = 0;
  for (int d = 0; d < values.ndim; ++d) {
    if (d >= adv.place && d < adv.place + adv.shape.ndim) {
      indexed.shape[d - adv.place] = values.shape[d];
      indexed.strides[d - adv.place] = values.strides[d];
    } else {
      rest.shape[rest.ndim] = values.shape[d];
      rest.strides[rest.ndim++] = values.strides[d];
    }
  }
  const Space outer = space_of("index_put", {&adv.rest, &rest}),
              inner = space_of("index_put", {&indexed});
  Launch(device, out.dtype, "put_sums")
      .pointer(out.data)
      .pointer(values.data)
      .pointer(adv.shape.data)
      .value(outer)
      .value(inner)
      .run(outer.n);
}

// The number of rows is the result's shape: this one waits for the device.
void nonzero_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  check_dtype(a, x.dtype_id);
  constexpr int64_t kBlock = 1024;
  const int64_t blocks = (x.numel + kBlock - 1) / kBlock;
  Device& device = device_of(x);
  const Temp counts(device, RB_I64, blocks);
  Launch(device, x.dtype_id, "count_nonzero")
      .pointer(counts.data())
      .pointer(x.data)
      .value(kBlock)
      .value(x.numel)
      .run(blocks);
  std::vector<int64_t> starts(blocks);
  void* stream = device.current_stream();
  if (blocks) device.read(starts.data(), counts.data(), blocks * sizeof(int64_t), stream);
  int64_t total = 0;
  for (int64_t& start : starts) {
    const int64_t count = start;
    start = total;
    total += count;
  }
  const int64_t shape[2] = {total, x.ndim};
  rb::Ref rows;
  rb::check(
      rb::host->tensor_new(backend_id, device.index(), RB_I64, 2, shape, nullptr, rows.out()));
  if (total && x.ndim) {
    if (x.ndim > kSpaceDims)
      rb::fail(RB_E_NOTIMPL, "nonzero on 'opencl': at most %d dimensions, got %d", kSpaceDims,
               x.ndim);
    Space places = {};
    places.ndim = x.ndim;
    std::copy(x.shape, x.shape + x.ndim, places.shape);
    device.write(counts.data(), starts.data(), blocks * sizeof(int64_t), stream);
    Launch(device, x.dtype_id, "write_nonzero")
        .pointer(rows->data)
        .pointer(counts.data())
        .pointer(x.data)
        .value(kBlock)
        .value(x.numel)
        .value(places)
        .run(blocks);
  }
  a.set_ret(0, rows.take());
}

const rb::KernelSpec kKernels[] = {
    {"index", rb::wrap<index_kernel>},
    {"index_put", rb::wrap<index_put_kernel>},
    {"nonzero", rb::wrap<nonzero_kernel>, RB_K_ALLOCATES | RB_K_CONTIGUOUS},
};

}  // namespace

int32_t add_index(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

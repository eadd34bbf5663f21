// index and index_put (advanced indexing), nonzero.
#include <algorithm>
#include <optional>

#include "common/kernels.h"
#include "index/indexing.h"

namespace rbcpu {
namespace {

// Advanced indexing of `x`: the positions of the result, the offsets that the index tensors add at
// each position, and the strides of the dimensions without an index.
struct Advanced {
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t x_strides[kMaxDims];       // bytes; 0 in the indexed part
  int64_t offset_strides[kMaxDims];  // bytes into `offsets`; 0 outside
  const int64_t* offsets;            // in units of `unit` bytes
  int64_t unit = 1;

  Advanced(const char* op, const View& x, rb::Span<RbTensor*> indices);

 private:
  void sum_offsets(const char* op, const View& x, rb::Span<RbTensor*> indices, const View& shape);

  std::optional<CheckedIndex> only_;  // a single index provides the offsets itself
  std::unique_ptr<rb::Scratch<int64_t>> sums_;

  void push(int64_t size, int64_t x_stride, int64_t offset_stride) {
    if (ndim == kMaxDims)
      rb::fail(RB_E_ARG, "index: the result has more than %d dimensions", kMaxDims);
    shape[ndim] = size;
    x_strides[ndim] = x_stride;
    offset_strides[ndim++] = offset_stride;
  }
};

// Broadcast the shapes of the index tensors.
View broadcast_shape(const char* op, rb::Span<RbTensor*> indices) {
  View b;
  b.data = nullptr;
  b.dtype = RB_I64;
  b.ndim = 0;
  for (const RbTensor* t : indices) {
    if (t && t->ndim > b.ndim) b.ndim = t->ndim;
  }
  for (int d = 0; d < b.ndim; ++d) b.shape[d] = 1;
  for (const RbTensor* t : indices) {
    if (!t) continue;
    for (int k = 0; k < t->ndim; ++k) {
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

Advanced::Advanced(const char* op, const View& x, rb::Span<RbTensor*> indices) {
  if (indices.len > static_cast<uint32_t>(x.ndim)) {
    rb::fail(RB_E_INDEX, "%s: %u indices for %d dimensions", op, indices.len, x.ndim);
  }
  const View b = broadcast_shape(op, indices);
  // The indexed dimensions stand where the first of them was if they are adjacent, else in front.
  int first = -1, last = -1, count = 0;
  for (int d = 0; d < static_cast<int>(indices.len); ++d) {
    if (!indices[d]) continue;
    if (first < 0) first = d;
    last = d;
    ++count;
  }
  if (count == 1) {
    only_.emplace(op, *indices[first], x.shape[first], first, true);
    offsets = only_->data();
    unit = x.strides[first] * x.item();
  } else {
    sum_offsets(op, x, indices, b);
  }
  const bool adjacent = count > 0 && last - first + 1 == count;
  const int place = adjacent ? first : 0;
  for (int d = 0; d <= x.ndim; ++d) {
    if (d == place) {
      const View full = dense_view(nullptr, RB_I64, b);
      for (int k = 0; k < b.ndim; ++k)
        push(b.shape[k], 0, full.strides[k] * static_cast<int64_t>(sizeof(int64_t)));
    }
    if (d == x.ndim) break;
    const bool indexed = d < static_cast<int>(indices.len) && indices[d];
    if (!indexed) push(x.shape[d], x.strides[d] * x.item(), 0);
  }
}

// Broadcast several indices to each other and add up their byte offsets.
void Advanced::sum_offsets(const char* op, const View& x, rb::Span<RbTensor*> indices,
                           const View& shape) {
  const int64_t n = shape.numel();
  sums_ = std::make_unique<rb::Scratch<int64_t>>(n);
  int64_t* sum = sums_->data();
  offsets = sum;
  bool begun = false;
  for (int d = 0; d < static_cast<int>(indices.len); ++d) {
    if (!indices[d]) continue;
    const CheckedIndex index(op, *indices[d], x.shape[d], d, true);
    const bool whole = index.view.numel() == n;  // no broadcasting
    rb::Scratch<int64_t> wide(whole ? 0 : n);
    if (!whole) copy_view(dense_view(wide.data(), RB_I64, shape), index.view);
    const int64_t* at = whole ? index.data() : wide.data();
    const int64_t step = x.strides[d] * x.item();
    rb::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      if (begun) {
        for (int64_t i = begin; i < end; ++i) sum[i] += at[i] * step;
      } else {
        for (int64_t i = begin; i < end; ++i) sum[i] = at[i] * step;
      }
    });
    begun = true;
  }
  if (!begun) std::fill_n(sum, n, 0);
}

void start_space(LoopSpace& s, const Advanced& adv, const IndexStep& step) {
  s.ndim = adv.ndim;
  s.nin = 2;
  s.ctx = &step;
  s.in[0] = reinterpret_cast<const char*>(adv.offsets);
  for (int d = 0; d < adv.ndim; ++d) {
    s.shape[d] = adv.shape[d];
    s.in_strides[0][d] = adv.offset_strides[d];
  }
}

void index_kernel(const rb::Args& a) {
  const View x = view_of(a.tensor(0)), out = view_of(a.ret());
  const Advanced adv("index", x, a.tensors(1));
  bool same = adv.ndim == out.ndim;
  for (int d = 0; same && d < out.ndim; ++d) same = adv.shape[d] == out.shape[d];
  if (!same) rb::fail(RB_E_INTERNAL, "index: the result has another shape than the indices give");
  const IndexStep step{adv.unit, nullptr};
  LoopSpace s;
  start_space(s, adv, step);
  s.out = out.data;
  s.in[1] = x.data;
  for (int d = 0; d < adv.ndim; ++d) {
    s.out_strides[d] = out.strides[d] * out.item();
    s.in_strides[1][d] = adv.x_strides[d];
  }
  run_space(s, gather_loop(x.item()), kGrain);
}

void index_put_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const View out = view_of(a.ret());
  const bool accumulate = a.has(3) && a.boolean(3);
  std::optional<Accumulator> sums;
  if (accumulate) sums.emplace(x, a.ret());
  const View& target = accumulate ? sums->view : out;
  const Advanced adv("index_put", target, a.tensors(1));
  LoopSpace s;
  const IndexStep step{adv.unit, nullptr};
  start_space(s, adv, step);
  s.out = target.data;
  for (int d = 0; d < adv.ndim; ++d) s.out_strides[d] = adv.x_strides[d];
  alignas(16) char number[16];
  if (a.args[2].tag == RB_TENSOR) {
    const RbTensor& values = a.tensor(2);
    if (values.dtype_id != x.dtype_id) {
      rb::fail(RB_E_TYPE, "index_put: expected `values` of %s like `input`, got %s",
               kDTypeNames[x.dtype_id], kDTypeNames[values.dtype_id]);
    }
    // Leading dimensions of size 1 may be more than the places have.
    int extra = values.ndim - adv.ndim;
    for (int k = 0; k < values.ndim; ++k) {
      const int d = k - extra;
      if (values.shape[k] != 1 && (d < 0 || values.shape[k] != adv.shape[d])) {
        rb::fail(RB_E_ARG,
                 "index_put: `values` (size %lld at dimension %d) do not broadcast to the indexed "
                 "places",
                 static_cast<long long>(values.shape[k]), k);
      }
    }
    s.in[1] = static_cast<const char*>(values.data);
    for (int d = 0; d < adv.ndim; ++d) {
      const int k = d + extra;
      s.in_strides[1][d] = k < 0 || values.shape[k] == 1 ? 0 : values.strides[k] * out.item();
    }
  } else {
    if (!rb::is_number(a.args[2]))
      rb::fail(RB_E_TYPE, "index_put: `values` must be a tensor or a number");
    store_value(a.args[2], out.dtype, number);
    s.in[1] = number;
    for (int d = 0; d < adv.ndim; ++d) s.in_strides[1][d] = 0;
  }
  if (!accumulate) copy_into_result(a.ret(), x);
  // Writes may meet along dimensions where the index varies. Their order does not matter if all of
  // them store the same value.
  bool one_value = !accumulate;
  for (int d = 0; d < adv.ndim; ++d)
    one_value = one_value && (adv.shape[d] == 1 || s.in_strides[1][d] == 0);
  int64_t busy = 0;
  for (int d = 0; d < adv.ndim && !one_value; ++d)
    busy |= static_cast<int64_t>(adv.x_strides[d] == 0) << d;
  run_split(s, accumulate ? scatter_add_loop(out.dtype) : scatter_loop(out.item()), busy);
  if (accumulate) sums->store();
}

// Store the positions of the true elements of a run and return their number.
int64_t compact(const uint8_t* truth, int64_t n, int32_t* places) {
  int64_t count = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, truth + i, sizeof eight);
    if (eight == 0) continue;
    for (int64_t k = i; k < i + 8; ++k) {
      places[count] = static_cast<int32_t>(k);
      count += truth[k] != 0;
    }
  }
  for (; i < n; ++i) {
    places[count] = static_cast<int32_t>(i);
    count += truth[i] != 0;
  }
  return count;
}

// Store the indices of the true elements in [begin, end) of row-major `truth`. The indices along
// dimension d begin at to + d * column.
void write_nonzero(const View& x, const uint8_t* truth, int64_t begin, int64_t end, int64_t* to,
                   int64_t column) {
  constexpr int64_t kPiece = 1024;
  int32_t places[kPiece];
  int64_t index[kMaxDims], rest = begin;
  const int last = x.ndim - 1;
  for (int d = last; d >= 0; --d) {
    index[d] = rest % x.shape[d];
    rest /= x.shape[d];
  }
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min({x.shape[last] - index[last], end - at, kPiece});
    const int64_t count = compact(truth + at, n, places);
    for (int d = 0; d < last; ++d) std::fill_n(to + d * column, count, index[d]);
    int64_t* inner = to + last * column;
    for (int64_t i = 0; i < count; ++i) inner[i] = index[last] + places[i];
    to += count;
    at += n;
    index[last] += n;
    for (int d = last; d > 0 && index[d] == x.shape[d]; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

void nonzero_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  // Truth values first: one dense pass, whatever dtype and strides.
  const bool given = x.dtype_id == RB_BOOL8 && (x.flags & RB_T_CONTIGUOUS);
  rb::Scratch<uint8_t> converted(given ? 0 : x.numel);
  if (!given) copy_view(dense_view(converted.data(), RB_BOOL8, view_of(x)), view_of(x));
  const uint8_t* truth = given ? static_cast<const uint8_t*>(x.data) : converted.data();
  const int64_t parts = (x.numel + kGrain - 1) / kGrain;
  rb::Scratch<int64_t> first(parts + 1);  // number of true elements before each part
  rb::parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = part * kGrain, to = std::min(x.numel, from + kGrain);
      int32_t count = 0;
      for (int64_t i = from; i < to; ++i) count += truth[i] != 0;
      first[part + 1] = count;
    }
  });
  first[0] = 0;
  for (int64_t part = 0; part < parts; ++part) first[part + 1] += first[part];
  const int64_t count = first[parts];
  // The indices of a dimension lie side by side, as in PyTorch.
  const int64_t shape[2] = {count, x.ndim}, strides[2] = {1, std::max<int64_t>(count, 1)};
  RbTensor* out = nullptr;
  const int64_t* const order = x.ndim ? strides : nullptr;
  rb::check(rb::host->tensor_new(x.backend, x.device.id, RB_I64, 2, shape, order, &out));
  a.set_ret(0, out);
  if (x.ndim == 0) return;
  const View v = view_of(x);
  rb::parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = part * kGrain;
      write_nonzero(v, truth, from, std::min(x.numel, from + kGrain),
                    static_cast<int64_t*>(out->data) + first[part], count);
    }
  });
}

const rb::KernelSpec kKernels[] = {
    {"index", rb::wrap<index_kernel>, RB_K_MOVES},
    {"index_put", rb::wrap<index_put_kernel>},
    {"nonzero", rb::wrap<nonzero_kernel>, RB_K_ALLOCATES},
};

}  // namespace

int32_t add_index(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

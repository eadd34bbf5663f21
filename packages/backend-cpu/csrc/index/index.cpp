// index and index_put (advanced indexing), nonzero.
#include <optional>

#include "common/kernels.h"
#include "index/indexing.h"

namespace rbcpu {
namespace {

// Advanced indexing of `x`: positions of the result, the byte offset that the index tensors add at
// each of them, and the strides of the dimensions that are not indexed.
struct Advanced {
  int ndim = 0;
  int64_t shape[kMaxDims];
  int64_t x_strides[kMaxDims];       // bytes; 0 in the indexed part
  int64_t offset_strides[kMaxDims];  // bytes into `offsets`; 0 outside
  std::unique_ptr<rb::Scratch<int64_t>> offsets;

  Advanced(const char* op, const View& x, rb::Span<RbTensor*> indices);

 private:
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
  const int64_t n = b.numel();
  offsets = std::make_unique<rb::Scratch<int64_t>>(n);
  int64_t* sum = offsets->data();
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  // The indexed dimensions stand where the first of them was if they are adjacent, else in front.
  int first = -1, last = -1, count = 0;
  rb::Scratch<int64_t> wide(n);
  for (int d = 0; d < static_cast<int>(indices.len); ++d) {
    if (!indices[d]) continue;
    if (first < 0) first = d;
    last = d;
    ++count;
    const CheckedIndex index(op, *indices[d], x.shape[d], d, true);
    const View full = dense_view(wide.data(), RB_I64, b);
    copy_view(full, index.view);
    const int64_t step = x.strides[d] * x.item();
    for (int64_t i = 0; i < n; ++i) sum[i] += wide[i] * step;
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

void start_space(LoopSpace& s, const Advanced& adv, const IndexStep& step) {
  s.ndim = adv.ndim;
  s.nin = 2;
  s.ctx = &step;
  s.in[0] = reinterpret_cast<const char*>(adv.offsets->data());
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
  const IndexStep step{1, nullptr};
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
  const IndexStep step{1, nullptr};
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
  int64_t busy = 0;  // where the index varies, writes may meet
  for (int d = 0; d < adv.ndim; ++d) busy |= static_cast<int64_t>(adv.x_strides[d] == 0) << d;
  run_split(s, accumulate ? scatter_add_loop(out.dtype) : scatter_loop(out.item()), busy);
  if (accumulate) sums->store();
}

void nonzero_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  // Truth values first: one dense pass, whatever dtype and strides.
  rb::Scratch<bool> truth(x.numel);
  copy_view(dense_view(truth.data(), RB_BOOL8, view_of(x)), view_of(x));
  int64_t count = 0;
  for (int64_t i = 0; i < x.numel; ++i) count += truth[i];
  // The indices of a dimension lie side by side, as in PyTorch.
  const int64_t shape[2] = {count, x.ndim}, strides[2] = {1, std::max<int64_t>(count, 1)};
  RbTensor* out = nullptr;
  const int64_t* const order = x.ndim ? strides : nullptr;
  rb::check(rb::host->tensor_new(x.backend, x.device.id, RB_I64, 2, shape, order, &out));
  a.set_ret(0, out);
  int64_t* to = static_cast<int64_t*>(out->data);
  int64_t index[kMaxDims] = {};
  for (int64_t i = 0; i < x.numel; ++i) {
    if (truth[i]) {
      for (int d = 0; d < x.ndim; ++d) to[d * count] = index[d];
      ++to;
    }
    for (int d = x.ndim - 1; d >= 0 && ++index[d] == x.shape[d]; --d) index[d] = 0;
  }
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

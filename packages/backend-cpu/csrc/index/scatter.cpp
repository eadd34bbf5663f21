// gather, scatter and its reductions, index_select, index_add: indices along one dimension.
#include <algorithm>
#include <vector>

#include "common/extremes.h"
#include "common/kernels.h"
#include "common/level.h"
#include "common/stream.h"
#include "index/gather.h"
#include "index/indexing.h"
#include "reduce/reduce.h"

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

// Along the last dimension of rows that each lie side by side: checked while they are gathered.
// False where there is an index out of range.
template <class T>
bool gather_rows(const View& x, const View& at, Gather<T> gather, T* out) {
  constexpr int64_t kPiece = 8192;  // of a row, per call
  const int last = at.ndim - 1;
  const int64_t n = at.shape[last], size = x.shape[last], rows = at.numel() / n;
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  const int64_t* index = reinterpret_cast<const int64_t*>(at.data);
  const T* from = reinterpret_cast<const T*>(x.data);
  const bool stream = can_stream(out, rows * n * sizeof(T), n * sizeof(T));
  int bad = 0;
  auto run = [&](int64_t begin, int64_t end) {
    bool ok = true;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t row = k / pieces, first = k % pieces * kPiece;
      auto source = [&](int64_t i) { return from + offset_at(i, last, at.shape, x.strides); };
      const T* next = pieces == 1 && k + 1 < end ? source(row + 1) : nullptr;
      ok &= gather(index + row * n + first, std::min(kPiece, n - first), size, source(row), next,
                   out + row * n + first, stream);
    }
    if (stream) stream_fence();
    if (!ok) __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
  };
  rb::parallel_for(rows * pieces, std::max<int64_t>(1, kGrain / std::min(n, kPiece)), run);
  return !bad;
}

const GatherTable& gather_table() {
  static const GatherTable& table = RB_PICK_LEVEL(gather_table);
  return table;
}

// Whether it was done: for elements of 4 and 8 bytes.
bool gather_dense(const View& x, const RbTensor& index, const RbTensor& out, int dim) {
  const View at = at_least_1d(view_of(index));
  const bool dense = index.dtype_id == RB_I64 && (index.flags & out.flags & RB_T_CONTIGUOUS);
  if (!dense || dim != at.ndim - 1 || at.numel() == 0 || x.strides[dim] != 1) return false;
  check_index_shape("gather", at, x, dim, true, "input");
  if (x.item() == 4)
    return gather_rows(x, at, gather_table().b32, static_cast<uint32_t*>(out.data));
  if (x.item() == 8)
    return gather_rows(x, at, gather_table().b64, static_cast<uint64_t*>(out.data));
  return false;
}

void gather_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  if (gather_dense(x, a.tensor(2), a.ret(), dim)) return;
  CheckedIndex index("gather", a.tensor(2), x.shape[dim], dim, false, true);
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

// Along the last dimension where everything is row-major and only that dimension differs: each row
// of the result is copied and changed at once. Whether it was done.
template <bool Add>
bool scatter_dense(const RbTensor& x, const View& at, const View& src, const RbTensor& out,
                   int dim) {
  const View to = at_least_1d(view_of(out));
  bool fits = dim == to.ndim - 1 && (x.flags & out.flags & RB_T_CONTIGUOUS) && is_dense(src) &&
              is_dense(at) && src.shape[dim] == at.shape[dim];
  for (int d = 0; fits && d < dim; ++d)
    fits = at.shape[d] == to.shape[d] && src.shape[d] == to.shape[d];
  const int64_t n = at.shape[dim], size = to.shape[dim], rows = at.numel() / n;
  if (!fits || rows < 8) return false;
  const int64_t* index = reinterpret_cast<const int64_t*>(at.data);
  visit_dtype(out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(x.data), *source = reinterpret_cast<const T*>(src.data);
    T* result = static_cast<T*>(out.data);
    rb::parallel_for(rows, std::max<int64_t>(1, kGrain / (size + n)),
                     [&](int64_t begin, int64_t end) {
                       rb::Scratch<C> sums(Add && is_half_v<T> ? size : 0);
                       for (int64_t row = begin; row < end; ++row) {
                         T* r = result + row * size;
                         const T* s = source + row * n;
                         const int64_t* k = index + row * n;
                         if constexpr (Add && is_half_v<T>) {
                           for (int64_t i = 0; i < size; ++i) sums[i] = C(from[row * size + i]);
                           for (int64_t i = 0; i < n; ++i) sums[k[i]] += C(s[i]);
                           for (int64_t i = 0; i < size; ++i) r[i] = T(sums[i]);
                         } else {
                           if (from != result) std::memcpy(r, from + row * size, size * sizeof(T));
                           for (int64_t i = 0; i < n; ++i)
                             r[k[i]] = Add ? T(C(r[k[i]]) + C(s[i])) : s[i];
                         }
                       }
                     });
  });
  return true;
}

// Run `loop` from the elements of `src`, or from the single element `value` if `src` is null, to
// the places of `at` along `dim` of `target`.
void scatter_into(const View& target, const View& at, int dim, Loop loop, const View* src,
                  const void* value) {
  IndexStep step{0, nullptr};
  LoopSpace s;
  set_space(s, at, 2, step);
  s.out = target.data;
  step.bytes = freeze_dim(at_least_1d(target), dim, s.out_strides);
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

// Shared by scatter, scatter.value and scatter_add: `value` is one element for scatter.value.
template <bool Add>
void run_scatter(const rb::Args& a, Loop loop, const View* src, const void* value) {
  const RbTensor& x = a.tensor(0);
  const View out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  CheckedIndex index(a.op_name(), a.tensor(2), out.shape[dim], dim, false, true);
  const View at = at_least_1d(index.view);
  if (at.numel() != 0) {
    check_index_shape(a.op_name(), at, out, dim, true, "input");
    if (src) check_index_shape(a.op_name(), at, *src, dim, false, "src");
  }
  if (at.numel() == 0) return copy_into_result(a.ret(), x);
  if (src && scatter_dense<Add>(x, at, *src, a.ret(), dim)) return;
  if constexpr (Add) {
    const Accumulator sums(x, a.ret());
    scatter_into(sums.view, at, dim, loop, src, value);
    sums.store();
  } else {
    copy_into_result(a.ret(), x);
    scatter_into(out, at, dim, loop, src, value);
  }
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
  run_scatter<false>(a, scatter_loop(src.item()), &src, nullptr);
}
void scatter_add_kernel(const rb::Args& a) {
  const View src = same_dtype(a, 3, "src");
  run_scatter<true>(a, scatter_add_loop(src.dtype), &src, nullptr);
}
void scatter_value_kernel(const rb::Args& a) {
  alignas(16) char value[16];
  store_value(a.args[3], a.ret().dtype_id, value);
  run_scatter<false>(a, scatter_loop(item_size(a.ret())), nullptr, value);
}

// Store the neutral element of the maximum if `Largest`, else that of the product.
template <bool Largest>
void fill_neutral(int dtype, void* to) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T neutral = T(1);
    if constexpr (Largest && !is_complex_v<T>) neutral = convert<T>(worst<compute_t<T>>(true));
    std::memcpy(to, &neutral, sizeof(T));
  });
}

// Scatter with a maximum if `Largest`, else with a product. The elements of the input at the
// indices take part only if `include_self`.
template <bool Largest>
void scatter_reduce_kernel(const rb::Args& a, bool include_self) {
  const RbTensor& x = a.tensor(0);
  const View src = same_dtype(a, 3, "src"), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  CheckedIndex index("scatter_reduce", a.tensor(2), out.shape[dim], dim, false, true);
  const View at = at_least_1d(index.view);
  if (at.numel() == 0) return copy_into_result(a.ret(), x);
  check_index_shape("scatter_reduce", at, out, dim, true, "input");
  check_index_shape("scatter_reduce", at, src, dim, false, "src");
  const Accumulator joined(x, a.ret());
  const View& target = joined.view;
  if (!include_self) {
    alignas(16) char neutral[16];
    fill_neutral<Largest>(target.dtype, neutral);
    scatter_into(target, at, dim, scatter_loop(target.item()), nullptr, neutral);
  }
  scatter_into(target, at, dim,
               Largest ? scatter_maximum_loop(src.dtype) : scatter_multiply_loop(src.dtype), &src,
               nullptr);
  joined.store();
}
void scatter_amax_kernel(const rb::Args& a) { scatter_reduce_kernel<true>(a, a.boolean(4)); }
void scatter_combined_kernel(const rb::Args& a) {
  const bool include_self = a.boolean(5);
  if (std::strcmp(a.str(4), "amax") == 0) return scatter_reduce_kernel<true>(a, include_self);
  scatter_reduce_kernel<false>(a, include_self);
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

// A stretch of an index in which each element is one more than the one before.
struct Stretch {
  int64_t first, from, length;  // position in the index, and index value at that position
};
// Split an index into stretches of at most `longest` elements. Returns none if they are shorter
// than `shortest` on average.
std::vector<Stretch> stretches_of(const int64_t* index, int64_t n, int64_t shortest,
                                  int64_t longest) {
  constexpr int64_t kPatience = 16;
  std::vector<Stretch> found;
  for (int64_t i = 0; i < n;) {
    int64_t length = 1;
    while (i + length < n && length < longest && index[i + length] == index[i] + length) ++length;
    found.push_back({i, index[i], length});
    i += length;
    const int64_t allowed = i < n ? kPatience : 0;
    if ((static_cast<int64_t>(found.size()) - allowed) * shortest > i) return {};
  }
  return found;
}

// index_select of row-major x by memcpy, if a slice or several consecutive slices make runs that
// are long enough. Returns whether it did so.
bool select_runs(const View& x, const CheckedIndex& index, const View& out, int dim) {
  constexpr int64_t kShortest = 64, kLongest = 1 << 16;  // bytes of a run
  int64_t outer = 1, slice = x.item();
  for (int d = 0; d < dim; ++d) outer *= x.shape[d];
  for (int d = dim + 1; d < x.ndim; ++d) slice *= x.shape[d];
  const int64_t n = index.view.numel(), size = x.shape[dim];
  if (!is_dense(x) || !is_dense(out) || n < 2 || outer * slice == 0) return false;
  const int64_t shortest = std::max<int64_t>(2, (kShortest + slice - 1) / slice);
  const std::vector<Stretch> stretches =
      stretches_of(index.data(), n, shortest, std::max(shortest, kLongest / slice));
  const int64_t runs = static_cast<int64_t>(stretches.size());
  if (runs == 0) return false;
  const int64_t grain =
      std::max<int64_t>(1, kGrain * static_cast<int64_t>(sizeof(float)) / (n * slice / runs));
  rb::parallel_for(outer * runs, grain, [&](int64_t begin, int64_t end) {
    int64_t o = begin / runs, run = begin % runs;
    for (int64_t unit = begin; unit < end; ++unit) {
      const Stretch& s = stretches[run];
      std::memcpy(out.data + (o * n + s.first) * slice, x.data + (o * size + s.from) * slice,
                  s.length * slice);
      if (++run < runs) continue;
      run = 0;
      ++o;
    }
  });
  return true;
}

// index_select along the last dimension of row-major x, for elements of 4 or 8 bytes. Returns
// whether it did so.
bool select_elements(const View& x, const CheckedIndex& index, const View& out, int dim) {
  if (dim != x.ndim - 1 || x.ndim < 2 || !is_dense(x) || !is_dense(out)) return false;
  const int64_t n = index.view.numel(), size = x.shape[dim];
  const auto gather_all = [&](auto gather, auto element) {
    using T = decltype(element);
    const T* from = reinterpret_cast<const T*>(x.data);
    T* to = reinterpret_cast<T*>(out.data);
    rb::parallel_for(out.numel() / std::max<int64_t>(n, 1),
                     std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row)
                         gather(index.data(), n, size, from + row * size,
                                static_cast<const T*>(nullptr), to + row * n, false);
                     });
    return true;
  };
  if (x.item() == 4) return gather_all(gather_table().b32, uint32_t{});
  if (x.item() == 8) return gather_all(gather_table().b64, uint64_t{});
  return false;
}

void index_select_kernel(const rb::Args& a) {
  const View x = at_least_1d(view_of(a.tensor(0))), out = at_least_1d(view_of(a.ret()));
  const int dim = static_cast<int>(a.integer(1));
  check_1d("index_select", view_of(a.tensor(2)));
  CheckedIndex index("index_select", a.tensor(2), x.shape[dim], dim, false);
  if (select_runs(x, index, out, dim) || select_elements(x, index, out, dim)) return;
  if (dim == 0 && x.ndim > 1 && is_dense(x) && is_dense(out)) {
    const int64_t n = index.view.numel(), row = out.numel() / std::max<int64_t>(n, 1) * x.item();
    return copy_rows(x.data, index.data(), n, row, out.data);
  }
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

// Positions of an index by what they point at: those of k, ascending, are order[start[k]] up to
// order[start[k + 1]].
struct Groups {
  rb::Scratch<int64_t> start, order;
  Groups(const int64_t* index, int64_t n, int64_t size) : start(size + 2), order(n) {
    // Counts lie two places further, so that filling leaves each start in its place.
    std::fill_n(start.data(), size + 2, 0);
    for (int64_t i = 0; i < n; ++i) ++start[index[i] + 2];
    for (int64_t k = 2; k < size + 2; ++k) start[k] += start[k - 1];
    for (int64_t i = 0; i < n; ++i) order[start[index[i] + 1]++] = i;
  }
};

// One run of a result: x and those of the sources that belong to it, in order.
template <class T>
void add_runs(const T* x, const T* src, int64_t src_step, const int64_t* order, int64_t count,
              const compute_t<T>* factor, T* to, int64_t n, bool stream) {
  using C = compute_t<T>;
  constexpr int64_t kTile = std::max<int64_t>(8, 128 / sizeof(T));
  alignas(64) C sum[kTile];
  alignas(64) T rounded[kTile];
  int64_t j = 0;
  for (; j + kTile <= n; j += kTile) {
    for (int64_t l = 0; l < kTile; ++l) sum[l] = C(x[j + l]);
    for (int64_t i = 0; i < count; ++i) {
      const T* from = src + order[i] * src_step + j;
      if (factor) {
        for (int64_t l = 0; l < kTile; ++l) sum[l] = C(sum[l] + C(*factor * C(from[l])));
      } else {
        for (int64_t l = 0; l < kTile; ++l) sum[l] = C(sum[l] + C(from[l]));
      }
    }
    for (int64_t l = 0; l < kTile; ++l) rounded[l] = T(sum[l]);
    if (stream) {
      stream_copy(reinterpret_cast<char*>(to + j), reinterpret_cast<const char*>(rounded),
                  sizeof(rounded));
    } else {
      std::memcpy(to + j, rounded, sizeof(rounded));
    }
  }
  for (; j < n; ++j) {
    C one = C(x[j]);
    for (int64_t i = 0; i < count; ++i) {
      const C term = C(src[order[i] * src_step + j]);
      one = C(one + (factor ? C(*factor * term) : term));
    }
    to[j] = T(one);
  }
}

// index_add where everything is row-major and what follows `dim` is a run worth a vector: each run
// of the result is read and written once. Whether it was done.
bool add_dense(const RbTensor& x, const View& src, const CheckedIndex& index, const RbTensor& out,
               int dim, const void* factor) {
  constexpr int64_t kShortest = 16, kLongest = 4096;  // elements that one task adds
  const View to = at_least_1d(view_of(out));
  const int64_t count = index.view.numel(), size = to.shape[dim];
  int64_t inner = 1, outer = 1;
  for (int d = 0; d < dim; ++d) outer *= to.shape[d];
  for (int d = dim + 1; d < to.ndim; ++d) inner *= to.shape[d];
  const bool in_place = x.data == out.data;
  if (!(x.flags & out.flags & RB_T_CONTIGUOUS) || !is_dense(src) || inner < kShortest ||
      (in_place && size > 16 * count))
    return false;
  const Groups groups(index.data(), count, size);
  const int64_t strips = (inner + kLongest - 1) / kLongest;
  visit_dtype(out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(x.data), *source = reinterpret_cast<const T*>(src.data);
    T* result = static_cast<T*>(out.data);
    const bool stream = can_stream(result, to.numel() * sizeof(T), inner * sizeof(T));
    rb::parallel_for(
        outer * size * strips, std::max<int64_t>(1, kGrain / 2 / std::min(inner, kLongest)),
        [&](int64_t begin, int64_t end) {
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t run = unit / strips, o = run / size, k = run % size;
            const int64_t first = unit % strips * kLongest, n = std::min(kLongest, inner - first);
            const int64_t many = groups.start[k + 1] - groups.start[k];
            if (many == 0 && in_place) continue;
            const int64_t at = run * inner + first;
            add_runs<T>(from + at, source + o * count * inner + first, inner,
                        groups.order.data() + groups.start[k], many, static_cast<const C*>(factor),
                        result + at, n, stream);
          }
          if (stream) stream_fence();
        });
  });
  return true;
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
  alignas(16) char factor[16];
  const bool half = (kMaskHalf >> src.dtype & 1) != 0;
  IndexStep step{0, nullptr};
  if (a.has(4) && !(a.args[4].tag == RB_INT && a.args[4].v.i == 1)) {
    store_value(a.args[4], half ? static_cast<int>(RB_F32) : src.dtype, factor);
    step.factor = factor;
  }
  if (add_dense(x, src, index, a.ret(), dim, step.factor)) return;
  const Accumulator sums(x, a.ret());
  LoopSpace s;
  set_space(s, src, 2, step);
  s.out = sums.view.data;
  step.bytes = freeze_dim(at_least_1d(sums.view), dim, s.out_strides);
  set_line_index(s, index.view, src, dim);
  s.in[1] = src.data;
  set_bytes(s.in_strides[1], src);
  run_split(s, scatter_add_loop(src.dtype), int64_t{1} << dim);
  sums.store();
}

const rb::KernelSpec kKernels[] = {
    {"gather", rb::wrap<gather_kernel>, RB_K_MOVES},
    {"scatter", rb::wrap<scatter_kernel>, RB_K_MOVES},
    {"scatter.value", rb::wrap<scatter_value_kernel>},
    {"scatter_add", rb::wrap<scatter_add_kernel>},
    {"scatter_amax", rb::wrap<scatter_amax_kernel>, 0, kMaskReal},
    {"scatter_combined", rb::wrap<scatter_combined_kernel>},
    {"index_select", rb::wrap<index_select_kernel>, RB_K_MOVES},
    {"index_add", rb::wrap<index_add_kernel>},
};

}  // namespace

int32_t add_scatter(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

// flip, roll, cat, padding, join_diagonal, tril, triu, slice_scatter, diagonal_scatter: copies of
// parts.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

void flip_kernel(const rb::Args& a) {
  View x = view_of(a.tensor(0));
  for (int64_t d : a.ints(1)) {
    if (x.ndim == 0 || x.shape[d] == 0) continue;
    x.data += (x.shape[d] - 1) * x.strides[d] * x.item();
    x.strides[d] = -x.strides[d];
  }
  copy_view(view_of(a.ret()), x);
}

// One dimension at a time: both parts of it go to their places, recursively in the remaining ones.
void roll_parts(View to, View from, const int64_t* shifts, const int64_t* dims, size_t n) {
  if (n == 0) return copy_view(to, from);
  const int d = static_cast<int>(dims[0]);
  const int64_t size = from.shape[d];
  if (size == 0) return;
  const int64_t shift = (shifts[0] % size + size) % size;
  roll_parts(narrowed(to, d, shift, size - shift), narrowed(from, d, 0, size - shift), shifts + 1,
             dims + 1, n - 1);
  if (shift)
    roll_parts(narrowed(to, d, 0, shift), narrowed(from, d, size - shift, shift), shifts + 1,
               dims + 1, n - 1);
}

void roll_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  const auto shifts = a.ints(1);
  const rb::Span<int64_t> dims = a.has(2) ? a.ints(2) : rb::Span<int64_t>{nullptr, 0};
  if (dims.len == 0 && shifts.len == 1) {  // the flattened elements
    rb::Scratch<char> dense(2 * x.numel * item_size(x));
    View flat = view_of(x);
    const View from = dense_view(dense.data(), x.dtype_id, flat);
    copy_view(from, flat);
    flat = from;
    flat.ndim = 1;
    flat.shape[0] = x.numel;
    flat.strides[0] = 1;
    View to = flat;
    to.data += x.numel * item_size(x);
    const int64_t zero = 0;
    roll_parts(to, flat, shifts.data, &zero, 1);
    return copy_view(view_of(out), dense_view(to.data, x.dtype_id, from));
  }
  if (dims.len != shifts.len) {
    rb::fail(RB_E_ARG, "roll: `shifts` has %u entries and `dims` %u", shifts.len, dims.len);
  }
  roll_parts(view_of(out), view_of(x), shifts.data, dims.data, dims.len);
}

void cat_kernel(const rb::Args& a) {
  const View out = view_of(a.ret());
  const int dim = static_cast<int>(a.integer(1));
  int64_t at = 0;
  for (const RbTensor* t : a.tensors(0)) {
    if (t->ndim == 1 && t->shape[0] == 0 && out.ndim != 1)
      continue;  // PyTorch's legacy: an empty 1-d tensor fits all
    const int64_t n = t->shape[dim];
    if (at + n > out.shape[dim]) rb::fail(RB_E_INTERNAL, "cat: the result is too small");
    copy_view(narrowed(out, dim, at, n), view_of(*t));
    at += n;
  }
}

void pad_constant_kernel(const rb::Args& a) {
  View from = view_of(a.tensor(0)), to = view_of(a.ret());
  const auto pad = a.ints(1);
  fill_view(to, a.has(2) ? a.args[2] : rb::int_value(0));
  if (pad.len % 2 || pad.len / 2 > static_cast<uint32_t>(from.ndim)) {
    rb::fail(RB_E_ARG,
             "pad: expected (before, after) pairs for at most %d dimensions, got %u numbers",
             from.ndim, pad.len);
  }
  for (uint32_t i = 0; i < pad.len / 2; ++i) {
    const int d = from.ndim - 1 - static_cast<int>(i);
    const int64_t before = pad[2 * i];
    const int64_t skip = std::max<int64_t>(0, -before), start = std::max<int64_t>(0, before);
    const int64_t n = std::min(from.shape[d] - skip, to.shape[d] - start);
    if (n <= 0) return;
    from = narrowed(from, d, skip, n);
    to = narrowed(to, d, start, n);
  }
  copy_view(to, from);
}

// Matrices after each other along the diagonal, zeros beside them.
void join_diagonal_kernel(const rb::Args& a) {
  const View out = view_of(a.ret());
  const auto parts = a.tensors(0);
  const auto rows = a.ints(1), columns = a.ints(2);
  for (uint32_t i = 0; i < parts.len; ++i) {
    const RbTensor& part = *parts[i];
    if (part.ndim != 2 || out.ndim != 2 || rows.len != parts.len || columns.len != parts.len ||
        rows[i] < 0 || columns[i] < 0 || rows[i] + part.shape[0] > out.shape[0] ||
        columns[i] + part.shape[1] > out.shape[1]) {
      rb::fail(RB_E_ARG, "%s: matrix %u does not fit the result", a.op_name(), i);
    }
    const View band = narrowed(out, 0, rows[i], part.shape[0]);
    const int64_t end = columns[i] + part.shape[1];
    fill_view(narrowed(band, 1, 0, columns[i]), rb::int_value(0));
    copy_view(narrowed(band, 1, columns[i], part.shape[1]), view_of(part));
    fill_view(narrowed(band, 1, end, out.shape[1] - end), rb::int_value(0));
  }
}

// Where the elements of a padded dimension come from.
enum class Border { kReflect, kReplicate, kCircular };
int64_t border_place(Border border, int64_t i, int64_t size, int64_t before, int64_t after) {
  if (border == Border::kReflect) return size - 1 - std::abs(size - 1 - std::abs(i));
  if (border == Border::kReplicate) return std::clamp<int64_t>(i, 0, size - 1);
  // What negative widths take away is gone before the rest wraps around.
  const int64_t first = std::max<int64_t>(-before, 0),
                kept = size - std::max<int64_t>(-after, 0) - first;
  return kept <= 0 ? -1 : ((i - first) % kept + kept) % kept + first;
}

// Run by run of places that follow each other upwards, downwards or not at all, recursively in the
// dimensions before.
void pad_runs(const rb::Args& a, Border border, View to, View from, const rb::Span<int64_t>& pad,
              uint32_t pair) {
  if (2 * pair >= pad.len) return copy_view(to, from);
  const int d = from.ndim - 1 - static_cast<int>(pair);
  const int64_t before = pad[2 * pair], after = pad[2 * pair + 1], size = from.shape[d];
  const int64_t n = to.shape[d];
  constexpr int64_t kShortRun = 8;  // shorter ones are faster column by column
  const auto place = [&](int64_t i) {
    const int64_t at = border_place(border, i - before, size, before, after);
    if (at < 0 || at >= size)
      rb::fail(RB_E_ARG, "%s: widths (%lld, %lld) are too large for a dimension of size %lld",
               a.op_name(), static_cast<long long>(before), static_cast<long long>(after),
               static_cast<long long>(size));
    return at;
  };
  for (int64_t i = 0; i < n;) {
    const int64_t first = place(i), step = i + 1 < n ? place(i + 1) - first : 1;
    int64_t count = 1;
    if (std::abs(step) <= 1) {
      while (i + count < n && place(i + count) == first + count * step) ++count;
      if (step < 1 && count < kShortRun) count = 1;
    }
    View run = narrowed(from, d, first, count);
    run.strides[d] *= count > 1 ? step : 1;
    pad_runs(a, border, narrowed(to, d, i, count), run, pad, pair + 1);
    i += count;
  }
}
void pad_with(const rb::Args& a, Border border) {
  const View from = view_of(a.tensor(0)), to = view_of(a.ret());
  const auto pad = a.ints(1);
  if (pad.len % 2 || pad.len / 2 > static_cast<uint32_t>(from.ndim))
    rb::fail(RB_E_ARG, "%s: expected (before, after) pairs for at most %d dimensions", a.op_name(),
             from.ndim);
  if (a.ret().numel == 0) return;
  if (a.tensor(0).numel == 0)
    rb::fail(RB_E_ARG, "%s: an input without elements has none to repeat", a.op_name());
  pad_runs(a, border, to, from, pad, 0);
}
void pad_border_kernel(const rb::Args& a) {
  pad_with(a, std::strcmp(a.str(2), "reflect") == 0 ? Border::kReflect : Border::kReplicate);
}
void pad_circular_kernel(const rb::Args& a) { pad_with(a, Border::kCircular); }

template <bool Lower>
void triangle_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  RbTensor& out = a.ret();
  if (x.ndim < 2)
    rb::fail(RB_E_ARG, "%s: expected at least 2 dimensions, got %d", a.op_name(), x.ndim);
  const int64_t diagonal = a.has(1) ? a.integer(1) : 0;
  if (out.numel == 0) return;
  const View from = view_of(x), to = view_of(out);
  const int last = to.ndim - 1;
  const int64_t rows = to.shape[last - 1], cols = to.shape[last], item = to.item();
  const bool in_place = out.data == x.data;
  const Loop copy = cast_loop(to.dtype, to.dtype);
  alignas(16) const char zero[16] = {};
  rb::parallel_for(
      out.numel / cols, std::max<int64_t>(1, kGrain / cols), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          int64_t rest = row, target = 0, source = 0;
          for (int d = last - 1; d >= 0; --d) {
            target += rest % to.shape[d] * to.strides[d];
            source += rest % to.shape[d] * from.strides[d];
            rest /= to.shape[d];
          }
          const int64_t edge = row % rows + diagonal;  // the last column of the lower triangle
          const int64_t split = std::clamp<int64_t>(Lower ? edge + 1 : edge, 0, cols);
          // Fill columns [first, first + n) from elements at `data` that lie `step` bytes apart.
          const auto fill = [&](int64_t first, int64_t n, const char* data, int64_t step) {
            LoopArgs run;
            run.n = n;
            run.out = to.data + (target + first * to.strides[last]) * item;
            run.out_stride = to.strides[last] * item;
            run.in[0] = data;
            run.in_stride[0] = step;
            run.ctx = nullptr;
            if (n) copy(&run);
          };
          const int64_t kept = Lower ? 0 : split, kept_count = Lower ? split : cols - split;
          if (!in_place)
            fill(kept, kept_count, from.data + (source + kept * from.strides[last]) * item,
                 from.strides[last] * item);
          fill(Lower ? split : 0, cols - kept_count, zero, 0);
        }
      });
}

void check_same_shape(const char* op, const View& part, const RbTensor& src) {
  bool same = part.ndim == src.ndim;
  for (int d = 0; same && d < part.ndim; ++d) same = part.shape[d] == src.shape[d];
  if (same) return;
  char expected[256] = "", got[256] = "";
  size_t used = 0;
  for (int d = 0; d < part.ndim && used < sizeof expected; ++d) {
    used += std::snprintf(expected + used, sizeof expected - used, d ? ", %lld" : "%lld",
                          static_cast<long long>(part.shape[d]));
  }
  used = 0;
  for (int d = 0; d < src.ndim && used < sizeof got; ++d) {
    used += std::snprintf(got + used, sizeof got - used, d ? ", %lld" : "%lld",
                          static_cast<long long>(src.shape[d]));
  }
  rb::fail(RB_E_ARG, "%s: expected `src` of shape (%s), got (%s)", op, expected, got);
}

void slice_scatter_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &src = a.tensor(1);
  RbTensor& out = a.ret();
  const int dim = static_cast<int>(a.integer(2));
  if (x.ndim == 0) rb::fail(RB_E_ARG, "slice_scatter: expected at least 1 dimension");
  const int64_t size = x.shape[dim];
  auto bound = [&](int i, int64_t otherwise) {
    int64_t v = a.has(i) ? a.integer(i) : otherwise;
    if (v < 0) v += size;
    return std::clamp<int64_t>(v, 0, size);
  };
  const int64_t start = bound(3, 0), end = std::max(start, bound(4, size)),
                step = a.has(5) ? a.integer(5) : 1;
  if (step <= 0)
    rb::fail(RB_E_ARG, "slice_scatter: `step` must be positive, got %lld",
             static_cast<long long>(step));
  const View part = narrowed(view_of(out), dim, start, (end - start + step - 1) / step, step);
  check_same_shape("slice_scatter", part, src);
  copy_into_result(out, x);
  copy_view(part, view_of(src));
}

void diagonal_scatter_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &src = a.tensor(1);
  RbTensor& out = a.ret();
  const int64_t offset = a.has(2) ? a.integer(2) : 0;
  const int d1 = static_cast<int>(a.has(3) ? a.integer(3) : 0),
            d2 = static_cast<int>(a.has(4) ? a.integer(4) : 1);
  const View v = view_of(out);
  if (x.ndim < 2 || d1 == d2 || d1 >= x.ndim || d2 >= x.ndim) {
    rb::fail(RB_E_ARG, "diagonal_scatter: expected two different dimensions of %d, got %d and %d",
             x.ndim, d1, d2);
  }
  View part = v;
  part.ndim = 0;
  for (int d = 0; d < v.ndim; ++d) {
    if (d == d1 || d == d2) continue;
    part.shape[part.ndim] = v.shape[d];
    part.strides[part.ndim++] = v.strides[d];
  }
  const int64_t down = std::max<int64_t>(0, -offset), right = std::max<int64_t>(0, offset);
  const int64_t n = std::max<int64_t>(0, std::min(v.shape[d1] - down, v.shape[d2] - right));
  if (n > 0) part.data += (down * v.strides[d1] + right * v.strides[d2]) * v.item();
  part.shape[part.ndim] = n;
  part.strides[part.ndim++] = v.strides[d1] + v.strides[d2];
  check_same_shape("diagonal_scatter", part, src);
  copy_into_result(out, x);
  copy_view(part, view_of(src));
}

const rb::KernelSpec kKernels[] = {
    {"flip", rb::wrap<flip_kernel>, RB_K_MOVES},
    {"roll", rb::wrap<roll_kernel>, RB_K_MOVES},
    {"cat", rb::wrap<cat_kernel>, RB_K_MOVES},
    {"pad_constant", rb::wrap<pad_constant_kernel>},
    {"pad_border", rb::wrap<pad_border_kernel>, RB_K_MOVES},
    {"pad_circular", rb::wrap<pad_circular_kernel>, RB_K_MOVES},
    {"join_diagonal", rb::wrap<join_diagonal_kernel>},
    {"tril", rb::wrap<triangle_kernel<true>>},
    {"triu", rb::wrap<triangle_kernel<false>>},
    {"slice_scatter", rb::wrap<slice_scatter_kernel>, RB_K_MOVES},
    {"diagonal_scatter", rb::wrap<diagonal_scatter_kernel>, RB_K_MOVES},
};

}  // namespace

int32_t add_movement(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

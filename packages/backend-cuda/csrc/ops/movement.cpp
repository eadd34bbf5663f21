// Operators that only move elements, as copies between views, and evenly spaced numbers.
#include <algorithm>
#include <cmath>

#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

// Twin of Parts in movement.cuh.
struct Parts {
  const void* from[32];
  int64_t begin[33];
  int32_t count, reserved;
};

// Tensors without gaps of the result's dtype, in units of up to 16 bytes. Whether they are so.
bool join_parts(const RbTensor& out, const rb::Span<RbTensor*>& given, int dim) {
  if (!(out.flags & RB_T_CONTIGUOUS) || given.len < 3) return false;
  const int64_t item = stored_size(out.dtype_id);
  int64_t rows = 1, inner = item;
  for (int d = 0; d < dim; ++d) rows *= out.shape[d];
  for (int d = dim + 1; d < out.ndim; ++d) inner *= out.shape[d];
  uint64_t all =
      16 | reinterpret_cast<uint64_t>(out.data) | static_cast<uint64_t>(inner * out.shape[dim]);
  for (const RbTensor* t : given) {
    if (t->numel == 0) continue;
    if (!(t->flags & RB_T_CONTIGUOUS) || t->dtype_id != out.dtype_id) return false;
    all |= reinterpret_cast<uint64_t>(t->data) | static_cast<uint64_t>(inner * t->shape[dim]);
  }
  const int64_t unit = static_cast<int64_t>(all & -all);
  int64_t row_step = inner * out.shape[dim] / unit;
  Parts parts = {};
  const auto flush = [&] {
    if (parts.count == 0) return;
    const int64_t width = parts.begin[parts.count] - parts.begin[0];
    const Kernel kernel{"cat",
                        {{"E", unit_dtype(unit)}, {"O", RB_U8}, {"T", RB_U8}},
                        kText_movement,
                        "RB_JOIN_PARTS()\n"};
    void* to = out.data;
    void* arguments[] = {&to, &parts, &rows, &row_step};
    launch(device_of(out), kernel, rows * width, arguments);
    parts.begin[0] = parts.begin[parts.count];
    parts.count = 0;
  };
  for (const RbTensor* t : given) {
    if (t->numel == 0) continue;
    parts.from[parts.count] = t->data;
    parts.begin[parts.count + 1] = parts.begin[parts.count] + inner * t->shape[dim] / unit;
    if (++parts.count == 32) flush();
  }
  flush();
  return true;
}

void cat_kernel(const rb::Args& a) {
  const auto given = a.tensors(0);
  const RbTensor& out = a.ret();
  const int dim = static_cast<int>(a.integer(1));
  if (join_parts(out, given, dim)) return;
  int64_t start = 0;
  for (const RbTensor* t : given) {
    if (t->ndim == 1 && t->numel == 0) continue;  // joins everything, as in PyTorch
    View part(out);
    part.narrow(dim, start, t->shape[dim]);
    start += t->shape[dim];
    copy("cat", part.tensor(), *t);
  }
}

void flip_kernel(const rb::Args& a) {
  View from(a.tensor(0));
  if (a.ret().numel == 0) return;
  for (const int64_t dim : a.ints(1)) {
    if (from.ndim() == 0) break;
    const int d = static_cast<int>(dim);
    from.narrow(d, from.size(d) - 1, from.size(d), -1);
  }
  copy("flip", a.ret(), from.tensor());
}

void slice_scatter_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  copy("slice_scatter", out, x);
  const int dim = static_cast<int>(a.integer(2));
  const int64_t size = x.shape[dim], step = a.has(5) ? a.integer(5) : 1;
  const auto bound = [&](int i, int64_t otherwise) {
    const int64_t given = a.has(i) ? a.integer(i) : otherwise;
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const int64_t start = bound(3, 0), stop = std::max(bound(4, size), start);
  View part(out);
  part.narrow(dim, start, (stop - start + step - 1) / step, step);
  copy("slice_scatter", part.tensor(), a.tensor(1));
}

void pad_constant_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const auto pads = a.ints(1);
  fill("pad_constant", out, a.has(2) ? a.args[2] : rb::int_value(0), rb::int_value(0));
  View from(x), to(out);
  int d = x.ndim;
  for (auto pad = pads.begin(); pad != pads.end(); pad += 2) {  // from the last dimension on
    --d;
    const int64_t before = pad[0], after = pad[1];
    to.narrow(d, std::max<int64_t>(before, 0),
              out.shape[d] - std::max<int64_t>(before, 0) - std::max<int64_t>(after, 0));
    from.narrow(d, std::max<int64_t>(-before, 0), to.size(d));
  }
  copy("pad_constant", to.tensor(), from.tensor());
}

// One dimension at a time: both parts of it go to their places, recursively in the remaining ones.
void roll_parts(const View& to, const View& from, const int64_t* shifts, const int64_t* dims,
                uint32_t n) {
  if (n == 0) return copy("roll", to.tensor(), from.tensor());
  const int d = static_cast<int>(dims[0]);
  const int64_t size = from.size(d);
  if (size == 0) return;
  const int64_t shift = (shifts[0] % size + size) % size;
  const auto move = [&](int64_t target, int64_t source, int64_t count) {
    if (count == 0) return;
    View part(to), given(from);
    part.narrow(d, target, count);
    given.narrow(d, source, count);
    roll_parts(part, given, shifts + 1, dims + 1, n - 1);
  };
  move(shift, 0, size - shift);
  move(0, size - shift, shift);
}

View flat(const RbTensor& t) {
  View view = scalar_view(t);
  view.add(t.numel, 1);
  return view;
}

void roll_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const auto shifts = a.ints(1);
  const rb::Span<int64_t> dims = a.has(2) ? a.ints(2) : rb::Span<int64_t>{nullptr, 0};
  if (dims.len == 0 && shifts.len == 1) {  // the flattened elements
    const int64_t zero = 0;
    const Temporary from(x, x.dtype_id, x.ndim, x.shape), to(x, x.dtype_id, x.ndim, x.shape);
    copy("roll", from.tensor(), x);
    roll_parts(flat(to.tensor()), flat(from.tensor()), shifts.data, &zero, 1);
    return copy("roll", out, to.tensor());
  }
  if (dims.len != shifts.len)
    rb::fail(RB_E_ARG, "roll: `shifts` has %u entries and `dims` %u", shifts.len, dims.len);
  roll_parts(View(out), View(x), shifts.data, dims.data, dims.len);
}

void diagonal_scatter_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &src = a.tensor(1), &out = a.ret();
  const int64_t offset = a.has(2) ? a.integer(2) : 0;
  const int d1 = static_cast<int>(a.has(3) ? a.integer(3) : 0),
            d2 = static_cast<int>(a.has(4) ? a.integer(4) : 1);
  if (x.ndim < 2 || d1 == d2 || d1 >= x.ndim || d2 >= x.ndim)
    rb::fail(RB_E_ARG, "diagonal_scatter: expected two different dimensions of %d, got %d and %d",
             x.ndim, d1, d2);
  const int64_t down = std::max<int64_t>(0, -offset), right = std::max<int64_t>(0, offset);
  const int64_t n = std::max<int64_t>(0, std::min(out.shape[d1] - down, out.shape[d2] - right));
  View part(out);
  if (n > 0) {
    part.narrow(d1, down, n);
    part.narrow(d2, right, n);
  }
  part.drop(std::max(d1, d2));
  part.drop(std::min(d1, d2));
  part.add(n, out.strides[d1] + out.strides[d2]);
  bool same = part.ndim() == src.ndim;
  for (int d = 0; same && d < src.ndim; ++d) same = part.size(d) == src.shape[d];
  if (!same)
    rb::fail(RB_E_ARG, "diagonal_scatter: `src` must have the shape of the diagonal, %lld long",
             static_cast<long long>(n));
  if (out.data != x.data) copy("diagonal_scatter", out, x);
  copy("diagonal_scatter", part.tensor(), src);
}

template <bool Lower>
void triangle_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (x.ndim < 2)
    rb::fail(RB_E_ARG, "%s: expected at least 2 dimensions, got %d", a.op_name(), x.ndim);
  triangle(a.op_name(), a.ret(), x, a.has(1) ? a.integer(1) : 0, Lower);
}

// ---- creation

void eye_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  if (out.numel == 0) return;
  Layout layout = layout_of("eye", {&out});
  int64_t columns = out.shape[1];
  const Kernel kernel{
      "eye", {{"E", RB_U8}, {"O", out.dtype_id}, {"T", RB_U8}}, kText_movement, "RB_EYE()\n"};
  void* to = out.data;
  void* arguments[] = {&to, &layout, &columns};
  launch(device_of(out), kernel, layout.n, arguments);
}

struct Pair {  // a complex number, of which real ones use the first half
  double re, im;
};
Pair pair_of(const RbValue& v) {
  return v.tag == RB_COMPLEX ? Pair{v.v.fs[0], v.v.fs[1]} : Pair{rb::to_double(v), 0};
}

void linspace_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  if (out.numel == 0) return;
  Pair start = pair_of(a.args[0]), end = pair_of(a.args[1]);
  if (kInt >> out.dtype_id & 1) {  // fractions of the ends are cut off first
    start.re = std::trunc(start.re);
    end.re = std::trunc(end.re);
  }
  int64_t n = out.numel, stride = out.ndim ? out.strides[0] : 1;
  const double gaps = static_cast<double>(std::max<int64_t>(n - 1, 1));
  Pair step = {(end.re - start.re) / gaps, (end.im - start.im) / gaps};
  const Kernel kernel{
      "linspace",
      {{"E", RB_U8}, {"O", out.dtype_id}, {"T", is_complex(out.dtype_id) ? +RB_C128 : +RB_F64}},
      kText_movement,
      "RB_EVENLY()\n"};
  void* to = out.data;
  void* arguments[] = {&to, &n, &stride, &start, &end, &step};
  launch(device_of(out), kernel, n, arguments);
}

template <int Part>
void part_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (is_complex(x.dtype_id)) return copy(a.op_name(), a.ret(), part_of(x, Part).tensor());
  if (Part == 0) return copy(a.op_name(), a.ret(), x);
  fill(a.op_name(), a.ret(), rb::int_value(0), rb::int_value(0));
}
void complex_kernel(const rb::Args& a) {
  for (int part = 0; part < 2; ++part) {
    const View to = part_of(a.ret(), part);
    if (a.args[part].tag == RB_TENSOR) {
      copy("complex", to.tensor(), a.tensor(part));
    } else {
      fill("complex", to.tensor(), a.args[part], rb::int_value(0));
    }
  }
}

void arange_kernel(const rb::Args& a) {
  const bool from_zero = !a.has(1);
  fill("arange", a.ret(), from_zero ? rb::int_value(0) : a.args[0],
       a.has(2) ? a.args[2] : rb::int_value(1));
}

const rb::KernelSpec kKernels[] = {
    {"cat", rb::wrap<cat_kernel>, RB_K_MOVES},
    {"flip", rb::wrap<flip_kernel>, RB_K_MOVES},
    {"slice_scatter", rb::wrap<slice_scatter_kernel>, RB_K_MOVES},
    {"pad_constant", rb::wrap<pad_constant_kernel>, 0, kAll},
    {"roll", rb::wrap<roll_kernel>, RB_K_MOVES},
    {"diagonal_scatter", rb::wrap<diagonal_scatter_kernel>, RB_K_MOVES},
    {"tril", rb::wrap<triangle_kernel<true>>, 0, kAll},
    {"triu", rb::wrap<triangle_kernel<false>>, 0, kAll},
    {"arange", rb::wrap<arange_kernel>, 0, kReal},
    {"linspace", rb::wrap<linspace_kernel>, 0, kAll},
    {"eye", rb::wrap<eye_kernel>, 0, kAll},
    {"real", rb::wrap<part_kernel<0>>, 0, kAll},
    {"imag", rb::wrap<part_kernel<1>>, 0, kAll},
    {"complex", rb::wrap<complex_kernel>, 0, bit(RB_F32) | bit(RB_F64)},
};

}  // namespace

void triangle(const char* op, const RbTensor& out, const RbTensor& x, int64_t diagonal,
              bool lower) {
  if (out.numel == 0) return;
  int64_t rows = out.shape[out.ndim - 2], columns = out.shape[out.ndim - 1];
  Layout layout = layout_of(op, {&out, &x});
  const Kernel kernel{op,
                      {{"E", unit_dtype(stored_size(out.dtype_id))}, {"O", RB_U8}, {"T", RB_U8}},
                      kText_movement,
                      lower ? "RB_TRIANGLE(column <= edge)\n" : "RB_TRIANGLE(column >= edge)\n"};
  void *to = out.data, *from = x.data;
  void* arguments[] = {&to, &from, &layout, &rows, &columns, &diagonal};
  launch(device_of(out), kernel, layout.n, arguments);
}

int32_t add_movement(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// Copies and casts, and the movement operators, all of which are copies between views.
#include <algorithm>
#include <string>

#include "view.h"

namespace rbcl {

void copy_view(Device& device, const View& dst, const View& src) {
  if (dst.numel() == 0) return;
  const Space space = space_of("copy", {&dst, &src});
  if (src.dtype != dst.dtype) {
    const std::string kernel = std::string("cast_") + dtype_name(src.dtype);
    Launch(device, dst.dtype, kernel.c_str())
        .pointer(dst.data)
        .pointer(src.data)
        .value(space)
        .run(space.n);
  } else if (space.ndim == 1 && space.strides[0][0] == 1 && space.strides[1][0] == 1) {
    if (dst.data != src.data) device.move(dst.data, src.data, space.n * dst.item());
  } else {
    // Of one size all dtypes are alike.
    const int like = dst.item() == 1 ? RB_BOOL8 : dst.item() == 4 ? RB_F32 : RB_I64;
    Launch(device, like, "copy_bits").pointer(dst.data).pointer(src.data).value(space).run(space.n);
  }
}

void fill_view(Device& device, const View& dst, const RbValue& number) {
  const Space space = space_of("fill", {&dst});
  const bool real = number.tag == RB_FLOAT || number.tag == RB_COMPLEX;
  const double value = rb::to_double(number);
  const int64_t whole = dst.dtype == RB_BOOL8 && real ? value != 0 : rb::to_int(number);
  Launch(device, dst.dtype, "fill")
      .pointer(dst.data)
      .number(dst.dtype, value, whole)
      .value(space)
      .run(space.n);
}

namespace {

// copy_(input, src), clone(input), cast(input, dtype), conj and real of real numbers.
template <int Source>
void copy_kernel(const rb::Args& a) {
  const RbTensor &src = a.tensor(Source), &out = a.ret();
  check_dtype(a, src.dtype_id);
  check_dtype(a, out.dtype_id);
  copy_view(device_of(out), view_of(out), broadcast(view_of(src), out.ndim, out.shape));
}

void fill_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  if (a.args[1].tag == RB_TENSOR) {
    copy_view(device_of(out), view_of(out), broadcast(view_of(a.tensor(1)), out.ndim, out.shape));
  } else {
    fill_view(device_of(out), view_of(out), a.args[1]);
  }
}

void imag_kernel(const rb::Args& a) {
  fill_view(device_of(a.ret()), view_of(a.ret()), rb::int_value(0));
}

void flip_kernel(const rb::Args& a) {
  View x = view_of(a.tensor(0));
  for (int64_t d : a.ints(1)) {
    if (x.ndim > 0 && x.shape[d] > 0)
      x = x.narrowed(static_cast<int>(d), x.shape[d] - 1, x.shape[d], -1);
  }
  copy_view(device_of(a.ret()), view_of(a.ret()), x);
}

void roll_parts(Device& device, const View& out, const View& x, const int64_t* shifts,
                const int64_t* dims, uint32_t count) {
  if (count == 0) return copy_view(device, out, x);
  const int d = static_cast<int>(dims[0] < 0 ? dims[0] + x.ndim : dims[0]);
  const int64_t n = x.shape[d];
  if (n == 0) return;
  const int64_t shift = ((shifts[0] % n) + n) % n;
  roll_parts(device, out.narrowed(d, shift, n - shift), x.narrowed(d, 0, n - shift), shifts + 1,
             dims + 1, count - 1);
  if (shift) {
    roll_parts(device, out.narrowed(d, 0, shift), x.narrowed(d, n - shift, shift), shifts + 1,
               dims + 1, count - 1);
  }
}

void roll_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const auto shifts = a.ints(1), dims = a.ints(2);
  Device& device = device_of(out);
  if (a.has(2) && dims.len) {
    if (dims.len != shifts.len)
      rb::fail(RB_E_ARG, "roll: `shifts` has %u entries and `dims` %u", shifts.len, dims.len);
    return roll_parts(device, view_of(out), view_of(x), shifts.data, dims.data, dims.len);
  }
  if (shifts.len != 1) rb::fail(RB_E_ARG, "roll: `shifts` must have 1 entry without `dims`");
  const DenseInput from(device, x, x.dtype_id);
  const DenseResult to(device, out);
  View flat = view_of(x);
  flat.ndim = 1;
  flat.shape[0] = x.numel;
  const int64_t zero = 0;
  roll_parts(device, dense_view(to.data(), x.dtype_id, flat),
             dense_view(from.data(), x.dtype_id, flat), shifts.data, &zero, 1);
  to.finish();
}

// Inputs have the result's dtype: core cast them.
void cat_kernel(const rb::Args& a) {
  const View out = view_of(a.ret());
  const int dim = static_cast<int>(a.integer(1));
  int64_t at = 0;
  for (const RbTensor* t : a.tensors(0)) {
    if (t->ndim == 1 && t->shape[0] == 0 && out.ndim != 1) continue;
    const int64_t n = t->shape[dim];
    copy_view(device_of(a.ret()), out.narrowed(dim, at, n), view_of(*t));
    at += n;
  }
}

void pad_kernel(const rb::Args& a) {
  View from = view_of(a.tensor(0)), to = view_of(a.ret());
  const auto pad = a.ints(1);
  if (pad.len % 2 || pad.len > 2u * from.ndim) {
    rb::fail(RB_E_ARG,
             "pad: expected (before, after) pairs for at most %d dimensions, got %u numbers",
             from.ndim, pad.len);
  }
  Device& device = device_of(a.ret());
  fill_view(device, to, a.has(2) ? a.args[2] : rb::int_value(0));
  for (uint32_t k = 0; k < pad.len / 2; ++k) {
    const int d = from.ndim - 1 - static_cast<int>(k);
    const int64_t before = pad[2 * k], skip = std::max<int64_t>(-before, 0),
                  start = std::max<int64_t>(before, 0);
    const int64_t n = std::min(from.shape[d] - skip, to.shape[d] - start);
    if (n <= 0) return;
    from = from.narrowed(d, skip, n);
    to = to.narrowed(d, start, n);
  }
  copy_view(device, to, from);
}

template <int Side>
void triangle_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (x.ndim < 2)
    rb::fail(RB_E_ARG, "%s: expected at least 2 dimensions, got %d", a.op_name(), x.ndim);
  const int64_t diagonal = a.has(1) ? a.integer(1) : 0;
  Device& device = device_of(x);
  const DenseResult out(device, a.ret());
  Launch(device, x.dtype_id, "triangle")
      .pointer(out.data())
      .pointer(x.data)
      .value(x.shape[x.ndim - 2])
      .value(x.shape[x.ndim - 1])
      .value(Side * diagonal)
      .value(Side)
      .value(x.numel)
      .run(x.numel);
  out.finish();
}

void replace_part(const rb::Args& a, const View& part) {
  check_dtype(a, a.tensor(1).dtype_id);
  const View src = view_of(a.tensor(1));
  bool same = src.ndim == part.ndim;
  for (int d = 0; same && d < src.ndim; ++d) same = src.shape[d] == part.shape[d];
  if (!same) rb::fail(RB_E_ARG, "%s: `src` has another shape than what it replaces", a.op_name());
  Device& device = device_of(a.ret());
  copy_view(device, view_of(a.ret()), view_of(a.tensor(0)));
  copy_view(device, part, src);
}

void slice_scatter_kernel(const rb::Args& a) {
  const View out = view_of(a.ret());
  const int dim = a.has(2) ? static_cast<int>(a.integer(2)) : 0;
  const int64_t size = out.shape[dim], step = a.has(5) ? a.integer(5) : 1;
  const auto bound = [&](int i, int64_t otherwise) {
    int64_t v = a.has(i) ? a.integer(i) : otherwise;
    if (v < 0) v += size;
    return std::clamp<int64_t>(v, 0, size);
  };
  const int64_t start = bound(3, 0), end = std::max(start, bound(4, size));
  replace_part(a, out.narrowed(dim, start, (end - start + step - 1) / step, step));
}

void diagonal_scatter_kernel(const rb::Args& a) {
  const View out = view_of(a.ret());
  const int64_t offset = a.has(2) ? a.integer(2) : 0;
  const int d1 = a.has(3) ? static_cast<int>(a.integer(3)) : 0;
  const int d2 = a.has(4) ? static_cast<int>(a.integer(4)) : 1;
  const int64_t down = std::max<int64_t>(-offset, 0), right = std::max<int64_t>(offset, 0);
  View part = out;
  part.data += (down * out.strides[d1] + right * out.strides[d2]) * out.item();
  part.ndim = 0;
  for (int d = 0; d < out.ndim; ++d) {
    if (d == d1 || d == d2) continue;
    part.shape[part.ndim] = out.shape[d];
    part.strides[part.ndim++] = out.strides[d];
  }
  part.shape[part.ndim] =
      std::max<int64_t>(std::min(out.shape[d1] - down, out.shape[d2] - right), 0);
  part.strides[part.ndim++] = out.strides[d1] + out.strides[d2];
  replace_part(a, part);
}

const rb::KernelSpec kKernels[] = {
    {"clone", rb::wrap<copy_kernel<0>>},
    {"conj", rb::wrap<copy_kernel<0>>},
    {"real", rb::wrap<copy_kernel<0>>},
    {"imag", rb::wrap<imag_kernel>},
    {"fill", rb::wrap<fill_kernel>},
    {"flip", rb::wrap<flip_kernel>},
    {"roll", rb::wrap<roll_kernel>},
    {"cat", rb::wrap<cat_kernel>},
    {"pad_constant", rb::wrap<pad_kernel>},
    {"tril", rb::wrap<triangle_kernel<1>>, RB_K_CONTIGUOUS},
    {"triu", rb::wrap<triangle_kernel<-1>>, RB_K_CONTIGUOUS},
    {"slice_scatter", rb::wrap<slice_scatter_kernel>},
    {"diagonal_scatter", rb::wrap<diagonal_scatter_kernel>},
};
// Of two dtypes, which a mask does not describe: they look themselves.
const rb::KernelSpec kBetweenDTypes[] = {
    {"copy", rb::wrap<copy_kernel<1>>},
    {"cast", rb::wrap<copy_kernel<0>>},
};

}  // namespace

int32_t add_copy(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  if (int32_t code = add_table(host, txn, kKernels, dtypes)) return code;
  return rb::add_kernels(host, txn, kBackendName, kBetweenDTypes);
}

}  // namespace rbcl

// Creation: core has allocated the result, these fill it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

void fill_int(RbTensor& out, int64_t value) { fill_view(view_of(out), rb::int_value(value)); }

void zeros_kernel(const rb::Args& a) {
  constexpr int64_t kSerial = kGrain * static_cast<int64_t>(sizeof(float));  // bytes
  RbTensor& out = a.ret();
  if (!(out.flags & RB_T_CONTIGUOUS)) return fill_int(out, 0);
  char* data = static_cast<char*>(out.data);  // zero is all bits 0 in every dtype
  rb::parallel_for(out.numel * kItemSize[out.dtype_id], kSerial, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, static_cast<size_t>(end - begin));
  });
}
void ones_kernel(const rb::Args& a) { fill_int(a.ret(), 1); }
void full_kernel(const rb::Args& a) {
  RbTensor& out = a.ret();
  const RbValue& value = a.args[1];
  if (!rb::is_number(value)) rb::fail(RB_E_TYPE, "%s: `fill_value` must be a number", a.op_name());
  if (value.tag == RB_COMPLEX && !(kMaskComplex >> out.dtype_id & 1)) {
    rb::fail(RB_E_TYPE, "%s: a complex number does not fit into %s", a.op_name(),
             kDTypeNames[out.dtype_id]);
  }
  if (value.tag == RB_UINT && rb::dtype_kind(out.dtype_id) == RB_CLASS_INT) {
    rb::fail(RB_E_ARG, "value cannot be converted to type %s without overflow",
             kDTypeNames[out.dtype_id]);
  }
  fill_view(view_of(out), value);
}

// Compute a 1-d result of any stride piece by piece: fill(to, i, count) stores elements [i, i +
// count) in the type V, which is `dtype`, and a loop converts them.
template <class V, class Fill>
void generate(RbTensor& out, int dtype, const Fill& fill) {
  constexpr int64_t kPiece = 512;
  const Loop store = cast_loop(out.dtype_id, dtype);
  const int64_t step = (out.ndim ? out.strides[0] : 1) * kItemSize[out.dtype_id];
  rb::parallel_for(out.numel, kGrain, [&](int64_t begin, int64_t end) {
    V piece[kPiece];
    LoopArgs run;
    run.out_stride = step;
    run.in[0] = reinterpret_cast<const char*>(piece);
    run.in_stride[0] = sizeof(V);
    run.ctx = nullptr;
    for (int64_t at = begin; at < end; at += run.n) {
      run.n = std::min(kPiece, end - at);
      fill(piece, at, run.n);
      run.out = static_cast<char*>(out.data) + at * step;
      store(&run);
    }
  });
}

// to[k] = start + step * (at + k), or start + step * (at - k) if `Down`. `at` and `k` are exact in
// double.
template <bool Down = false, class V>
void fill_evenly(V* to, V start, V step, int64_t at, int64_t n) {
  const double from = static_cast<double>(at);
  for (int k = 0; k < static_cast<int>(n); ++k) to[k] = start + step * (Down ? from - k : from + k);
}

void arange_kernel(const rb::Args& a) {
  RbValue start = a.has(1) ? a.args[0] : rb::int_value(0);
  RbValue step = a.has(2) ? a.args[2] : rb::int_value(1);
  if (kMaskInt >> a.ret().dtype_id & 1) {  // fractions are cut off before the numbers are made
    for (RbValue* v : {&start, &step}) {
      if (v->tag == RB_FLOAT) *v = rb::int_value(static_cast<int64_t>(v->v.f));
    }
  }
  if (start.tag == RB_FLOAT || step.tag == RB_FLOAT || !(kMaskInt >> a.ret().dtype_id & 1)) {
    const double first = rb::to_double(start), by = rb::to_double(step);
    generate<double>(a.ret(), RB_F64,
                     [=](double* to, int64_t at, int64_t n) { fill_evenly(to, first, by, at, n); });
  } else {
    const int64_t first = start.v.i, by = step.v.i;
    generate<int64_t>(a.ret(), RB_I64, [=](int64_t* to, int64_t at, int64_t n) {
      for (int64_t k = 0; k < n; ++k) to[k] = first + by * (at + k);
    });
  }
}

// From both ends towards the middle, so that both ends are exact.
template <class V>
void generate_evenly(RbTensor& out, int dtype, V start, V end) {
  const int64_t steps = out.numel, middle = (steps + 1) / 2;
  const V step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : V(0);
  generate<V>(out, dtype, [=](V* to, int64_t at, int64_t n) {
    const int64_t up = std::clamp<int64_t>(middle - at, 0, n);
    fill_evenly(to, start, step, at, up);
    fill_evenly<true>(to + up, end, -step, steps - 1 - (at + up), n - up);
  });
}
void linspace_kernel(const rb::Args& a) {
  if (kMaskComplex >> a.ret().dtype_id & 1)
    return generate_evenly(a.ret(), RB_C128, from_value<c128>(a.args[0]),
                           from_value<c128>(a.args[1]));
  const bool whole = kMaskInt >> a.ret().dtype_id & 1;  // fractions of the ends are cut off first
  const double start = a.real(0), end = a.real(1);
  generate_evenly(a.ret(), RB_F64, whole ? std::trunc(start) : start,
                  whole ? std::trunc(end) : end);
}

void eye_kernel(const rb::Args& a) {
  View v = view_of(a.ret());
  fill_int(a.ret(), 0);
  v.strides[0] += v.strides[1];
  v.shape[0] = v.shape[0] < v.shape[1] ? v.shape[0] : v.shape[1];
  v.ndim = 1;
  fill_view(v, rb::int_value(1));
}

// The row and column indices of the elements on and below a diagonal of a matrix if `Lower`, else
// on and above it, row by row.
template <bool Lower>
void triangle_indices_kernel(const rb::Args& a) {
  RbTensor& out = a.ret();
  const int64_t rows = a.integer(0), cols = a.integer(1), offset = a.integer(2);
  const bool direct = out.dtype_id == RB_I64 && (out.flags & RB_T_CONTIGUOUS);
  rb::Scratch<int64_t> own(direct ? 0 : out.numel);
  int64_t* const found = direct ? static_cast<int64_t*>(out.data) : own.data();
  int64_t* row = found;
  int64_t* col = found + out.numel / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t edge = std::clamp<int64_t>(Lower ? r + offset + 1 : r + offset, 0, cols);
    const int64_t first = Lower ? 0 : edge, count = Lower ? edge : cols - edge;
    std::fill_n(row, count, r);
    for (int64_t k = 0; k < count; ++k) col[k] = first + k;
    row += count;
    col += count;
  }
  if (!direct) copy_view(view_of(out), dense_view(found, RB_I64, view_of(out)));
}

const rb::KernelSpec kKernels[] = {
    {"full", rb::wrap<full_kernel>},
    {"full_like", rb::wrap<full_kernel>},
    {"zeros", rb::wrap<zeros_kernel>},
    {"zeros_like", rb::wrap<zeros_kernel>},
    {"ones", rb::wrap<ones_kernel>},
    {"ones_like", rb::wrap<ones_kernel>},
    {"arange", rb::wrap<arange_kernel>},
    {"linspace", rb::wrap<linspace_kernel>},
    {"eye", rb::wrap<eye_kernel>},
    {"tril_indices", rb::wrap<triangle_indices_kernel<true>>},
    {"triu_indices", rb::wrap<triangle_indices_kernel<false>>},
};

}  // namespace

int32_t add_create(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

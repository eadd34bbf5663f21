// Creation: core has allocated the result, these fill it.
#include <cmath>
#include <cstring>

#include "common/kernels.h"
#include "common/view.h"

namespace rbcpu {
namespace {

void fill_int(RbTensor& out, int64_t value) { fill_view(view_of(out), rb::int_value(value)); }

void zeros_kernel(const rb::Args& a) {
  constexpr int64_t kSerial = 1 << 15;  // bytes: more is worth the pool
  RbTensor& out = a.ret();
  const int64_t bytes = out.numel * kItemSize[out.dtype_id];
  if ((out.flags & RB_T_CONTIGUOUS) && bytes <= kSerial) {  // zero is all bits 0 in every dtype
    if (bytes) std::memset(out.data, 0, static_cast<size_t>(bytes));
  } else {
    fill_int(out, 0);
  }
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

// out[i] = f(i) for a 1-d result of any stride.
template <class F>
void generate(const char* op, RbTensor& out, const F& f) {
  dispatch_dtype(op, out.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = static_cast<T*>(out.data);
    const int64_t stride = out.ndim ? out.strides[0] : 1;
    rb::parallel_for(out.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i * stride] = convert<T>(f(i));
    });
  });
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
    generate("arange", a.ret(), [=](int64_t i) { return first + by * static_cast<double>(i); });
  } else {
    const int64_t first = start.v.i, by = step.v.i;
    generate("arange", a.ret(), [=](int64_t i) { return first + by * i; });
  }
}

// From both ends towards the middle, so that both ends are exact.
template <class V>
void generate_evenly(RbTensor& out, V start, V end) {
  const int64_t steps = out.numel;
  const V step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : V(0);
  generate("linspace", out, [=](int64_t i) {
    return i < (steps + 1) / 2 ? start + step * static_cast<double>(i)
                               : end - step * static_cast<double>(steps - 1 - i);
  });
}
void linspace_kernel(const rb::Args& a) {
  if (kMaskComplex >> a.ret().dtype_id & 1)
    return generate_evenly(a.ret(), from_value<c128>(a.args[0]), from_value<c128>(a.args[1]));
  const bool whole = kMaskInt >> a.ret().dtype_id & 1;  // fractions of the ends are cut off first
  const double start = a.real(0), end = a.real(1);
  generate_evenly(a.ret(), whole ? std::trunc(start) : start, whole ? std::trunc(end) : end);
}

void eye_kernel(const rb::Args& a) {
  View v = view_of(a.ret());
  fill_int(a.ret(), 0);
  v.strides[0] += v.strides[1];
  v.shape[0] = v.shape[0] < v.shape[1] ? v.shape[0] : v.shape[1];
  v.ndim = 1;
  fill_view(v, rb::int_value(1));
}

const rb::KernelSpec kKernels[] = {
    {"full", rb::wrap<full_kernel>},     {"full_like", rb::wrap<full_kernel>},
    {"zeros", rb::wrap<zeros_kernel>},   {"zeros_like", rb::wrap<zeros_kernel>},
    {"ones", rb::wrap<ones_kernel>},     {"ones_like", rb::wrap<ones_kernel>},
    {"arange", rb::wrap<arange_kernel>}, {"linspace", rb::wrap<linspace_kernel>},
    {"eye", rb::wrap<eye_kernel>},
};

}  // namespace

int32_t add_create(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

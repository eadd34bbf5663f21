// Creation: core has allocated the result, these fill it.
#include <cmath>

#include "view.h"

namespace rbcl {
namespace {

void fill_int(const RbTensor& out, int64_t value) {
  fill_view(device_of(out), view_of(out), rb::int_value(value));
}
void zeros_kernel(const rb::Args& a) { fill_int(a.ret(), 0); }
void ones_kernel(const rb::Args& a) { fill_int(a.ret(), 1); }
void full_kernel(const rb::Args& a) {
  if (!rb::is_number(a.args[1]) || a.args[1].tag == RB_COMPLEX)
    rb::fail(RB_E_TYPE, "%s: `fill_value` must be a real number", a.op_name());
  fill_view(device_of(a.ret()), view_of(a.ret()), a.args[1]);
}

void arange_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  const RbValue start = a.has(1) ? a.args[0] : rb::int_value(0);
  const RbValue step = a.has(2) ? a.args[2] : rb::int_value(1);
  Device& device = device_of(out);
  const bool real = start.tag == RB_FLOAT || step.tag == RB_FLOAT;
  // Fractions that end in integers: the values are made as floats and cast, as on the CPU.
  const int dtype = real && !(kFloat >> out.dtype_id & 1) ? device.has_fp64() ? RB_F64 : RB_F32
                                                          : static_cast<int>(out.dtype_id);
  const Temp values(device, dtype, out.numel);
  Launch launch(device, dtype, "range");
  launch.pointer(values.data());
  const int wide = dtype == RB_F32 || !device.has_fp64() ? RB_F32 : RB_F64;
  launch.number(wide, rb::to_double(start), 0).number(wide, rb::to_double(step), 0);
  launch.value(rb::to_int(start)).value(rb::to_int(step)).value(out.numel).run(out.numel);
  copy_view(device, view_of(out), dense_view(values.data(), dtype, view_of(out)));
}

void linspace_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  const bool whole = rb::dtype_kind(out.dtype_id) != RB_CLASS_FLOAT;  // without fractions then
  const double start = whole ? std::trunc(a.real(0)) : a.real(0),
               end = whole ? std::trunc(a.real(1)) : a.real(1);
  const double step = out.numel > 1 ? (end - start) / static_cast<double>(out.numel - 1) : 0.0;
  Device& device = device_of(out);
  const int wide = out.dtype_id == RB_F32 || !device.has_fp64() ? RB_F32 : RB_F64;
  const DenseResult result(device, out);
  Launch launch(device, out.dtype_id, "linspace");
  launch.pointer(result.data()).number(wide, start, 0).number(wide, end, 0).number(wide, step, 0);
  launch.value(out.numel).run(out.numel);
  result.finish();
}

void eye_kernel(const rb::Args& a) {
  fill_int(a.ret(), 0);
  View v = view_of(a.ret());
  v.strides[0] += v.strides[1];
  v.shape[0] = v.shape[0] < v.shape[1] ? v.shape[0] : v.shape[1];
  v.ndim = 1;
  fill_view(device_of(a.ret()), v, rb::int_value(1));
}

const rb::KernelSpec kKernels[] = {
    {"full", rb::wrap<full_kernel>},     {"full_like", rb::wrap<full_kernel>},
    {"zeros", rb::wrap<zeros_kernel>},   {"zeros_like", rb::wrap<zeros_kernel>},
    {"ones", rb::wrap<ones_kernel>},     {"ones_like", rb::wrap<ones_kernel>},
    {"arange", rb::wrap<arange_kernel>}, {"linspace", rb::wrap<linspace_kernel>},
    {"eye", rb::wrap<eye_kernel>},
};

}  // namespace

int32_t add_create(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

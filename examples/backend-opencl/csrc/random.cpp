// Random numbers: the same for a seed as on any other device, up to the last bits of log, sin and
// cos.
#include <rabbet/philox.h>

#include <cmath>

#include "view.h"

namespace rbcl {
namespace {

// A launch with the destination, seed and offset set.
struct Draw {
  Draw(const rb::Args& a, int generator, int bits, const char* kernel, int dtype)
      : device(device_of(a.ret())),
        result(device, a.ret()),
        n(a.ret().numel),
        per(bits == 64 ? 2 : 4) {
    RbRngSlice slice{sizeof(RbRngSlice), 0, 0, 0};
    rb::check(rb::host->rng_reserve(a.generator(generator), a.ret().backend, device.index(),
                                    rb_philox_counters(static_cast<uint64_t>(n), bits), &slice));
    launch = std::make_unique<Launch>(device, dtype, kernel);
    launch->pointer(result.data()).value(slice.seed).value(slice.offset);
  }
  void run() {
    launch->value(n).run((n + per - 1) / per);
    launch.reset();
    result.finish();
  }
  Device& device;
  const DenseResult result;
  std::unique_ptr<Launch> launch;
  const int64_t n, per;
};
int bits_of(const RbTensor& out) { return out.dtype_id == RB_F64 ? 64 : 32; }
int uniform_dtype(const RbTensor& out) { return out.dtype_id == RB_F64 ? RB_F64 : RB_F32; }

void uniform_kernel(const rb::Args& a) {
  const double from = a.has(1) ? a.real(1) : 0.0, to = a.has(2) ? a.real(2) : 1.0;
  if (!(from <= to)) rb::fail(RB_E_ARG, "uniform: `from` (%g) must not exceed `to` (%g)", from, to);
  const int dtype = a.ret().dtype_id;
  double top = from;  // the largest value of the dtype below `to`, which rounding must not reach
  if (from < to && dtype == RB_F64) {
    top = std::nextafter(to, -HUGE_VAL);
  } else if (from < to) {
    const float rounded = static_cast<float>(to);
    top = rounded < to ? rounded : std::nextafter(rounded, -HUGE_VALF);
  }
  Draw draw(a, 3, bits_of(a.ret()), "uniform_numbers", dtype);
  draw.launch->number(dtype, from, 0).number(dtype, to - from, 0).number(dtype, top, 0);
  draw.run();
}
void normal_kernel(const rb::Args& a) {
  const double mean = a.has(1) ? a.real(1) : 0.0, std = a.has(2) ? a.real(2) : 1.0;
  if (!(std >= 0.0)) rb::fail(RB_E_ARG, "normal: `std` must not be negative, got %g", std);
  const int dtype = a.ret().dtype_id;
  Draw draw(a, 3, bits_of(a.ret()), "normal", dtype);
  draw.launch->number(dtype, mean, 0).number(dtype, std, 0);
  draw.run();
}
void exponential_kernel(const rb::Args& a) {
  const double rate = a.has(1) ? a.real(1) : 1.0;
  if (!(rate > 0.0)) rb::fail(RB_E_ARG, "exponential: `lambd` must be positive, got %g", rate);
  Draw draw(a, 2, bits_of(a.ret()), "exponential", a.ret().dtype_id);
  draw.launch->number(a.ret().dtype_id, rate, 0);
  draw.run();
}
void bernoulli_kernel(const rb::Args& a) {
  const double p = a.has(1) ? a.real(1) : 0.5;
  if (!(p >= 0.0 && p <= 1.0)) rb::fail(RB_E_ARG, "bernoulli: `p` must lie in [0, 1], got %g", p);
  Draw draw(a, 2, bits_of(a.ret()), "bernoulli", a.ret().dtype_id);
  draw.launch->number(uniform_dtype(a.ret()), p, 0);
  draw.run();
}
// Probabilities outside [0, 1] act as 0 and 1: looking at them would wait for the device.
void bernoulli_tensor_kernel(const rb::Args& a) {
  const RbTensor &p = a.tensor(1), &out = a.ret();
  if (!(kFloat >> p.dtype_id & 1)) {
    rb::fail(RB_E_TYPE, "bernoulli: expected floating probabilities, got %s",
             dtype_name(p.dtype_id));
  }
  for (int d = 0; d < p.ndim; ++d) {
    const int k = d + out.ndim - p.ndim;
    if (k < 0 || (p.shape[d] != 1 && p.shape[d] != out.shape[k]))
      rb::fail(RB_E_ARG, "bernoulli: `p` does not broadcast to the result");
  }
  const DenseInput given(device_of(out), broadcast(view_of(p), out.ndim, out.shape),
                         uniform_dtype(out));
  Draw draw(a, 2, bits_of(out), "bernoulli_each", out.dtype_id);
  draw.launch->pointer(given.data());
  draw.run();
}
void random_kernel(const rb::Args& a) {
  const int64_t from = a.integer(1), to = a.integer(2);
  if (from >= to) {
    rb::fail(RB_E_ARG, "random: `from` (%lld) must be below `to` (%lld)",
             static_cast<long long>(from), static_cast<long long>(to));
  }
  const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  const int wide = range > (uint64_t{1} << 32);
  Draw draw(a, 3, wide ? 64 : 32, "integers", a.ret().dtype_id);
  draw.launch->value(from).value(range).value(wide);
  draw.run();
}
void randperm_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  RbRngSlice slice{sizeof(RbRngSlice), 0, 0, 0};
  Device& device = device_of(out);
  rb::check(rb::host->rng_reserve(a.generator(3), out.backend, device.index(),
                                  rb_philox_counters(static_cast<uint64_t>(out.numel), 64),
                                  &slice));
  if (out.numel == 0) return;
  const Temp order(device, RB_I64, out.numel);
  Launch(device, RB_I64, "permutation")
      .pointer(order.data())
      .value(slice.seed)
      .value(slice.offset)
      .value(out.numel)
      .run(1);
  copy_view(device, view_of(out), dense_view(order.data(), RB_I64, view_of(out)));
}

const rb::KernelSpec kKernels[] = {
    {"uniform", rb::wrap<uniform_kernel>, 0, kFloat},
    {"normal", rb::wrap<normal_kernel>, 0, kFloat},
    {"exponential", rb::wrap<exponential_kernel>, 0, kFloat},
    {"bernoulli", rb::wrap<bernoulli_kernel>},
    {"bernoulli.tensor", rb::wrap<bernoulli_tensor_kernel>},
    {"random", rb::wrap<random_kernel>},
    {"randperm", rb::wrap<randperm_kernel>},
};

}  // namespace

int32_t add_random(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

// Random numbers: rabbet/philox.h maps counters to elements, so that a seed gives the CPU's numbers
// (up to the last bits of log, sin and cos).
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device/report.h"
#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "rabbet/capture.h"
#include "rabbet/philox.h"

namespace rbcuda {
namespace {

const RbCaptureRng* rng;

// Twin of Stream in random.cuh.
struct Stream {
  uint64_t seed, offset;
  const uint64_t* base;
};
Stream reserve(RbGenerator* generator, const RbTensor& out, int bits) {
  RbCaptureSlice slice = {};
  slice.struct_size = sizeof slice;
  rb::check(rng->reserve(generator, out.backend, out.device.id,
                         rb_philox_counters(static_cast<uint64_t>(out.numel), bits), &slice));
  return {slice.seed, slice.offset, slice.base};
}

struct Numbers {
  double p[3] = {};
  uint64_t from = 0, range = 0;
};

// `given`: a tensor that broadcasts to the result, or null.
void random(const char* op, const RbTensor& out, Stream stream, int per_counter,
            const char* kernel_text, Numbers numbers, const RbTensor* given = nullptr) {
  if (out.numel == 0) return;
  Device& device = device_of(out);
  Layout layout = layout_of(op, {&out, given});
  Finder check = finder(device, op, kBadProbability);
  const int size = stored_size(out.dtype_id);
  const bool flat =
      (out.flags & RB_T_CONTIGUOUS) && reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  if (flat) per_counter = std::max(per_counter, 16 / size);
  const Kernel kernel{op,
                      {{"O", out.dtype_id}, {"P", given ? +given->dtype_id : +RB_F64}},
                      kText_random,
                      kernel_text,
                      flat ? "enum { FLAT = 1 };\n" : "enum { FLAT = 0 };\n"};
  void *to = out.data, *from = given ? given->data : nullptr;
  void* arguments[] = {&to,           &from,         &stream,       &layout,        &numbers.p[0],
                       &numbers.p[1], &numbers.p[2], &numbers.from, &numbers.range, &check};
  launch(device, kernel, (layout.n + per_counter - 1) / per_counter, arguments);
}

void from_uniform(const rb::Args& a, int generator, const char* text, Numbers numbers,
                  const RbTensor* given = nullptr) {
  const bool wide = a.ret().dtype_id == RB_F64;
  const Stream stream = reserve(a.generator(generator), a.ret(), wide ? 64 : 32);
  random(a.op_name(), a.ret(), stream, wide ? 2 : 4, text, numbers, given);
}

// The largest value of a dtype with `digits` binary digits and least exponent `least` below x.
double below(double x, int digits, int least) {
  int exponent = least;
  if (x != 0) std::frexp(x, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent, least) - digits);
  const double down = std::floor(x / step) * step;
  if (down < x) return down;
  // x is a power of two: those below it lie closer.
  const bool finer = std::fabs(std::frexp(x, &exponent)) == 0.5 && x > 0 && exponent > least;
  return x - (finer ? step / 2 : step);
}
double below(double x, int dtype) {
  switch (dtype) {
    case RB_F16:
      return std::min(below(x, 11, -13), 65504.0);
    case RB_BF16:
      return below(x, 8, -125);
    case RB_F32: {
      const float rounded = static_cast<float>(x);
      return rounded < x ? rounded
                         : std::nextafter(rounded, -std::numeric_limits<float>::infinity());
    }
    default:
      return std::nextafter(x, -std::numeric_limits<double>::infinity());
  }
}

void uniform_kernel(const rb::Args& a) {
  const double from = a.has(1) ? a.real(1) : 0.0, to = a.has(2) ? a.real(2) : 1.0;
  if (!(from <= to)) rb::fail(RB_E_ARG, "uniform: `from` (%g) must not exceed `to` (%g)", from, to);
  const double top = from < to ? below(to, a.ret().dtype_id) : from;  // rounding must not pass it
  from_uniform(a, 3, "RB_FROM_UNIFORM(uniform_value(RB_U, p0, p1, p2))\n",
               {{from, to - from, top}});
}

void exponential_kernel(const rb::Args& a) {
  const double rate = a.has(1) ? a.real(1) : 1.0;
  if (!(rate > 0.0)) rb::fail(RB_E_ARG, "exponential: `lambd` must be positive, got %g", rate);
  from_uniform(a, 2, "RB_FROM_UNIFORM(exponential_value(RB_U, p0))\n", {{rate}});
}

void bernoulli_kernel(const rb::Args& a) {
  const double p = a.has(1) ? a.real(1) : 0.5;
  if (!(p >= 0.0 && p <= 1.0)) rb::fail(RB_E_ARG, "bernoulli: `p` must lie in [0, 1], got %g", p);
  from_uniform(a, 2, "RB_FROM_UNIFORM(bernoulli_value(RB_U, p0))\n", {{p}});
}

void bernoulli_tensor_kernel(const rb::Args& a) {
  const RbTensor &p = a.tensor(1), &out = a.ret();
  if (!(kFloat >> p.dtype_id & 1))
    rb::fail(RB_E_TYPE, "bernoulli: expected floating probabilities, got another dtype");
  for (int d = 0; d < p.ndim; ++d) {
    const int k = d + out.ndim - p.ndim;
    if (k < 0 || (p.shape[d] != 1 && p.shape[d] != out.shape[k]))
      rb::fail(RB_E_ARG, "bernoulli: `p` does not broadcast to the result");
  }
  from_uniform(a, 2,
               "RB_FROM_UNIFORM(bernoulli_checked(RB_U, As<double>::of(given[places_of(layout, "
               "i).at[1]]), finder))\n",
               {}, &p);
}

void normal_kernel(const rb::Args& a) {
  const double mean = a.has(1) ? a.real(1) : 0.0, std = a.has(2) ? a.real(2) : 1.0;
  if (!(std >= 0.0)) rb::fail(RB_E_ARG, "normal: `std` must not be negative, got %g", std);
  from_uniform(a, 3, "RB_FROM_UNIFORM(stored(normal_value(U(), r, k, p0, p1)))\n", {{mean, std}});
}

void random_kernel(const rb::Args& a) {
  const int64_t from = a.integer(1), to = a.integer(2);
  if (from >= to)
    rb::fail(RB_E_ARG, "random: `from` (%lld) must be below `to` (%lld)",
             static_cast<long long>(from), static_cast<long long>(to));
  Numbers numbers;
  numbers.from = static_cast<uint64_t>(from);
  numbers.range = static_cast<uint64_t>(to) - numbers.from;
  const bool wide = numbers.range > (uint64_t{1} << 32);
  const Stream stream = reserve(a.generator(3), a.ret(), wide ? 64 : 32);
  random("random", a.ret(), stream, wide ? 2 : 4,
         wide ? "RB_RANDOM(2, stored((Int64)(from + rb_below_64(r.w[2 * k], r.w[2 * k + 1], "
                "range))))\n"
              : "RB_RANDOM(4, stored((Int64)(from + rb_below_32(r.w[k], range))))\n",
         numbers);
}

// The same shuffle on the host: one thread of it is much faster than one of the device.
std::vector<int64_t> permuted(const Stream& stream, int64_t n) {
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  RbPhilox r = {};
  for (int64_t s = 0; s + 1 < n; ++s) {
    if (s % 2 == 0) r = rb_philox(stream.seed, stream.offset + static_cast<uint64_t>(s) / 2);
    const int64_t place = n - 1 - s, w = s % 2 * 2;
    std::swap(order[place],
              order[rb_below_64(r.w[w], r.w[w + 1], static_cast<uint64_t>(place) + 1)]);
  }
  return order;
}

void randperm_kernel(const rb::Args& a) {
  const RbTensor& out = a.ret();
  int64_t n = out.numel;
  constexpr int64_t kFew = 4096;  // elements that the device shuffles itself, without a wait
  Stream stream = reserve(a.generator(3), out, 64);
  if (n == 0) return;
  Device& device = device_of(out);
  const Temporary order(out, RB_I64, 1, &n);
  if (stream.base || n <= kFew) {
    const Kernel kernel{"randperm", {{"O", RB_I64}, {"P", RB_F64}}, kText_random, "RB_PERMUTE()\n"};
    void* to = order.data();
    void* arguments[] = {&to, &stream, &n};
    launch(device, kernel, Grid{1, 1, 1, 256}, arguments);
  } else {
    const std::vector<int64_t> made = permuted(stream, n);
    device.enter();
    const CuStream here = device.current_stream();
    {
      const Timed timed(device, here, kCopyFromHost, RB_LAUNCH_COPY);
      check_cuda(
          driver().copy_in(address(order.data()), made.data(), made.size() * sizeof(int64_t), here),
          device.index(), "cuMemcpyHtoDAsync");
    }
    device.synchronize(here);
  }
  copy("randperm", out, order.tensor());
}

const rb::KernelSpec kKernels[] = {
    {"uniform", rb::wrap<uniform_kernel>, 0, kFloat},
    {"normal", rb::wrap<normal_kernel>, 0, kFloat},
    {"exponential", rb::wrap<exponential_kernel>, 0, kFloat},
    {"bernoulli", rb::wrap<bernoulli_kernel>, 0, kReal},
    {"bernoulli.tensor", rb::wrap<bernoulli_tensor_kernel>, 0, kReal},
    {"random", rb::wrap<random_kernel>, 0, kReal},
    {"randperm", rb::wrap<randperm_kernel>, 0, kReal},
};

}  // namespace

int32_t add_random(const RbHost* host, RbTxn* txn) {
  rng = static_cast<const RbCaptureRng*>(host->get_ext(RB_CAPTURE_RNG_EXT, RB_CAPTURE_RNG_VERSION));
  if (!rng) return rb::set_error(RB_E_PLUGIN, "cuda: this core does not count random numbers");
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

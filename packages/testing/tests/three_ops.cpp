// A backend of three operators, for the tests of the conformance kit. The environment variable
// THREE_OPS_MISCHIEF makes it wrong in one way.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "rabbet/plugin.hpp"

namespace {

bool mischief(const char* name) {
  static const char* const chosen = std::getenv("THREE_OPS_MISCHIEF");
  return chosen && !std::strcmp(chosen, name);
}

int32_t allocate(void*, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  out->data = nbytes < uint64_t{1} << 40 ? std::malloc(nbytes ? nbytes : 1) : nullptr;
  if (!out->data) return rb::set_error(RB_E_OOM, "three: no memory");
  out->nbytes = nbytes;
  out->ctx = nullptr;
  out->device_index = device;
  out->flags = 0;
  return RB_OK;
}
void release(void*, RbBuffer* buffer, void*) { std::free(buffer->data); }
int32_t count(void*, int32_t* n) { return *n = 1, RB_OK; }
int32_t sync(void*, int32_t) { return RB_OK; }
int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void*, uint32_t) {
  const size_t item = src->dtype.bits / 8;
  size_t bytes = static_cast<size_t>(src->numel) * item;
  if (mischief("copy") && src->dtype_id == RB_I16 && bytes > item) bytes -= item;
  if (bytes) std::memcpy(dst->data, src->data, bytes);
  return RB_OK;
}
const RbDevices kDevices = {RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync, copy, nullptr};
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};
const RbBackend kBackend = {
    RB_SIZE(RbBackend, allocator), 0, "three", 12, 0, &kDevices, &kAllocator};

// The element of `t` (broadcast to `out`) that belongs to element `n` of `out`.
template <class T>
T* at(const RbTensor& t, const RbTensor& out, int64_t n) {
  int64_t offset = 0;
  for (int d = out.ndim - 1, k = t.ndim - 1; d >= 0; --d, --k) {
    const int64_t i = n % out.shape[d];
    n /= out.shape[d];
    if (k >= 0 && t.shape[k] > 1) offset += i * t.strides[k];
  }
  return static_cast<T*>(t.data) + offset;
}

template <class T>
T operand(const RbValue& v, const RbTensor& out, int64_t n) {
  if (v.tag == RB_TENSOR) return *at<T>(*v.v.t, out, n);
  return static_cast<T>(v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i));
}

template <class T, class F>
void fill(const rb::Args& a, const F& f) {
  const RbTensor& out = a.ret();
  for (int64_t n = 0; n < out.numel; ++n) *at<T>(out, out, n) = f(n);
}

template <class T>
void add_of(const rb::Args& a) {
  const RbTensor& out = a.ret();
  const T alpha = operand<T>(a.args[2], out, 0);
  fill<T>(a, [&](int64_t n) {
    return operand<T>(a.args[0], out, n) + alpha * operand<T>(a.args[1], out, n);
  });
}
void add(const rb::Args& a) {
  if (mischief("leak")) {
    const int64_t size = 1000;
    RbTensor* lost = nullptr;
    rb::check(rb::host->tensor_new(a.ret().backend, 0, RB_F32, 1, &size, nullptr, &lost));
  }
  if (mischief("slow")) std::this_thread::sleep_for(std::chrono::microseconds(400));
  if (a.ret().dtype_id == RB_F64) return add_of<double>(a);
  add_of<float>(a);
}
void mul(const rb::Args& a) {
  const RbTensor& out = a.ret();
  if (out.dtype_id == RB_I64) {
    fill<int64_t>(a, [&](int64_t n) {
      const bool wrong = mischief("value") && n == 5;
      return operand<int64_t>(a.args[0], out, n) * operand<int64_t>(a.args[1], out, n) + wrong;
    });
    return;
  }
  fill<float>(a, [&](int64_t n) {
    return operand<float>(a.args[0], out, n) * operand<float>(a.args[1], out, n);
  });
}
void neg(const rb::Args& a) {
  if (mischief("refuse") && a.ret().dtype_id == RB_F64)
    rb::fail(RB_E_NOTIMPL, "neg on 'three': not in float64 after all");
  if (mischief("crash") && a.ret().dtype_id == RB_F64) std::abort();
  if (mischief("strides") && !(a.tensor(0).flags & RB_T_CONTIGUOUS))
    rb::fail(RB_E_ARG, "neg on 'three': expected a contiguous tensor");
  if (a.ret().dtype_id == RB_F64)
    return fill<double>(a, [&](int64_t n) { return -operand<double>(a.args[0], a.ret(), n); });
  fill<float>(a, [&](int64_t n) { return -operand<float>(a.args[0], a.ret(), n); });
}
// Numbers of its own, not those of Philox.
void uniform(const rb::Args& a) {
  static uint32_t state = 1;
  fill<float>(a, [&](int64_t) {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / 16777216.0f;
  });
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  int32_t id = -1;
  if (int32_t code = host->add_backend(txn, &kBackend, &id)) return code;
  const uint64_t f32 = 1ull << RB_F32, f64 = 1ull << RB_F64, i64 = 1ull << RB_I64;
  const rb::KernelSpec kernels[] = {{"add", rb::wrap<add>, 0, f32 | f64},
                                    {"mul", rb::wrap<mul>, 0, f32 | i64},
                                    {"neg", rb::wrap<neg>, 0, f32 | f64},
                                    {"uniform", rb::wrap<uniform>, 0, f32}};
  return rb::add_kernels(host, txn, "three", kernels, mischief("random") ? 4 : 3);
}
const RbPlugin kPlugin = {RB_SIZE(RbPlugin, retire),
                          RB_ABI_MAJOR,
                          RB_ABI_MINOR,
                          RB_ABI_MINOR,
                          0,
                          0,
                          "three-plugin",
                          "1.0",
                          init,
                          nullptr};

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &kPlugin; }

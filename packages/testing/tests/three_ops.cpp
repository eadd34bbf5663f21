// A backend of three operators, for the tests of the conformance kit. The environment variable
// THREE_OPS_MISCHIEF makes it wrong in one way.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "small_backend.h"

namespace {

bool mischief(const char* name) {
  static const char* const chosen = std::getenv("THREE_OPS_MISCHIEF");
  return chosen && !std::strcmp(chosen, name);
}

int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void*, uint32_t) {
  const bool wrong = mischief("copy") && src->dtype_id == RB_I16 && src->numel > 1;
  return small::copy_bytes(src, dst, src->numel - wrong);
}
const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, small::count, small::sync, copy, nullptr};
const RbBackend kBackend = {
    RB_SIZE(RbBackend, allocator), 0, "three", 12, 0, &kDevices, &small::kAllocator};

template <class T>
void add_of(const rb::Args& a) {
  const RbTensor& out = a.ret();
  const T alpha = small::operand<T>(a.args[2], out, 0);
  small::fill<T>(a, [&](int64_t n) {
    return small::operand<T>(a.args[0], out, n) + alpha * small::operand<T>(a.args[1], out, n);
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
    small::fill<int64_t>(a, [&](int64_t n) {
      const bool wrong = mischief("value") && n == 5;
      return small::operand<int64_t>(a.args[0], out, n) *
                 small::operand<int64_t>(a.args[1], out, n) +
             wrong;
    });
    return;
  }
  const float factor = mischief("ulp") ? 1 + 3e-7f : 1;
  small::fill<float>(a, [&](int64_t n) {
    return small::operand<float>(a.args[0], out, n) * small::operand<float>(a.args[1], out, n) *
           factor;
  });
}
void neg(const rb::Args& a) {
  if (mischief("refuse") && a.ret().dtype_id == RB_F64)
    rb::fail(RB_E_NOTIMPL, "neg on 'three': not in float64 after all");
  if (mischief("crash") && a.ret().dtype_id == RB_F64) std::abort();
  if (mischief("strides") && !(a.tensor(0).flags & RB_T_CONTIGUOUS))
    rb::fail(RB_E_ARG, "neg on 'three': expected a contiguous tensor");
  if (a.ret().dtype_id == RB_F64)
    return small::fill<double>(
        a, [&](int64_t n) { return -small::operand<double>(a.args[0], a.ret(), n); });
  small::fill<float>(a, [&](int64_t n) { return -small::operand<float>(a.args[0], a.ret(), n); });
}
// Numbers of its own, not those of Philox.
void uniform(const rb::Args& a) {
  static uint32_t state = 1;
  small::fill<float>(a, [&](int64_t) {
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
const RbPlugin kPlugin = small::plugin("three-plugin", init);

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &kPlugin; }

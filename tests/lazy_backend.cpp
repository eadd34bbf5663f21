// The backend `lazy`, with streams: work runs only when something waits for it, so that a wait
// which is missing always shows. LAZY_MISCHIEF makes it wrong in one way. Its memory comes and goes
// as NaN.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "rabbet/plugin.hpp"

namespace {

bool mischief(const char* name) {
  static const char* const chosen = std::getenv("LAZY_MISCHIEF");
  return chosen && !std::strcmp(chosen, name);
}

struct Stream {
  std::deque<std::function<void()>> work;
  uint64_t done = 0;
  void add(std::function<void()> f) { work.push_back(std::move(f)); }
  uint64_t end() const { return done + work.size(); }
  void advance(uint64_t to) {
    while (done < to && !work.empty()) {
      const auto next = std::move(work.front());
      work.pop_front();
      next();
      ++done;
    }
  }
};
using Time = std::chrono::steady_clock::time_point;
struct Event {
  Stream* stream = nullptr;
  uint64_t at = 0;
  std::shared_ptr<Time> passed;  // shared with the work that is to set it
};

constexpr int kDeviceCount = 2;
std::recursive_mutex mutex;
Stream defaults[kDeviceCount];
std::vector<Stream*> made[kDeviceCount];
int32_t backend_id;

struct Locked {
  std::lock_guard<std::recursive_mutex> lock{mutex};
};
Stream& queue(int device, void* stream) {
  return stream ? *static_cast<Stream*>(stream) : defaults[device];
}

// ---- memory

void spoil(void* data, uint64_t nbytes) { std::memset(data, 0xff, nbytes); }
int32_t allocate(void*, int32_t, uint64_t nbytes, void*, RbBuffer* out) {
  out->data = nbytes < uint64_t{1} << 40 ? std::malloc(nbytes) : nullptr;
  if (!out->data) return rb::set_error(RB_E_OOM, "lazy: no memory");
  spoil(out->data, nbytes);
  return RB_OK;
}
void release(void*, RbBuffer* buffer, void* stream) {
  const Locked locked;
  Stream& s = queue(buffer->device_index, stream);
  if (!mischief("free")) s.advance(s.end());
  spoil(buffer->data, buffer->nbytes);
  if (!std::getenv("LAZY_MISCHIEF")) std::free(buffer->data);  // else work is still to come
}
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};

// ---- devices

int32_t count(void*, int32_t* n) { return *n = kDeviceCount, RB_OK; }
int32_t sync_device(void*, int32_t device) {
  const Locked locked;
  defaults[device].advance(defaults[device].end());
  for (Stream* s : made[device]) {
    if (!mischief("device sync")) s->advance(s->end());
  }
  return RB_OK;
}
int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void* stream, uint32_t) {
  const Locked locked;
  const size_t nbytes = static_cast<size_t>(src->numel) * src->dtype.bits / 8;
  void *from = src->data, *to = dst->data;
  if (src->backend == backend_id && dst->backend == backend_id) {
    void* other = nullptr;
    if (rb::host->stream_get(backend_id, src->device.id, &other) != RB_OK) return RB_E_STATE;
    Stream& giver = queue(src->device.id, other);
    Stream& taker = queue(dst->device.id, stream);
    giver.advance(giver.end());
    taker.add([=] { std::memcpy(to, from, nbytes); });
    taker.advance(taker.end());
  } else if (dst->backend == backend_id) {
    const std::vector<char> kept(static_cast<char*>(from), static_cast<char*>(from) + nbytes);
    queue(dst->device.id, stream).add([=] { std::memcpy(to, kept.data(), nbytes); });
  } else {
    Stream& s = queue(src->device.id, stream);
    s.add([=] { std::memcpy(to, from, nbytes); });
    s.advance(s.end());
  }
  return RB_OK;
}
const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync_device, copy, nullptr};

// ---- streams

int32_t create(void*, int32_t device, int32_t, void** out) {
  const Locked locked;
  made[device].push_back(new Stream);
  *out = made[device].back();
  return RB_OK;
}
int32_t sync(void*, int32_t device, void* stream) {
  const Locked locked;
  Stream& s = queue(device, stream);
  s.advance(s.end());
  return RB_OK;
}
int32_t query(void*, int32_t device, void* stream, int32_t* done) {
  const Locked locked;
  Stream& s = queue(device, stream);
  *done = s.work.empty();
  s.advance(s.done + 1);  // asking brings it on, or nobody who asks again and again would get there
  return RB_OK;
}
int32_t event_create(void*, int32_t, uint32_t, void** out) {
  *out = new Event;
  return RB_OK;
}
void event_destroy(void*, int32_t, void* event) { delete static_cast<Event*>(event); }
int32_t event_record(void*, int32_t device, void* stream, void* event) {
  const Locked locked;
  Stream& s = queue(device, stream);
  auto* e = static_cast<Event*>(event);
  const auto passed = std::make_shared<Time>();
  e->passed = passed;
  s.add([passed] { *passed = std::chrono::steady_clock::now(); });
  e->stream = &s;
  e->at = s.end();
  return RB_OK;
}
int32_t event_wait(void*, int32_t device, void* stream, void* event) {
  const Locked locked;
  const auto* e = static_cast<Event*>(event);
  Stream* other = e->stream;
  const uint64_t at = e->at;
  if (!mischief("wait")) queue(device, stream).add([=] { other->advance(at); });
  return RB_OK;
}
int32_t event_sync(void*, int32_t, void* event) {
  const Locked locked;
  const auto* e = static_cast<Event*>(event);
  if (!mischief("event sync")) e->stream->advance(e->at);
  return RB_OK;
}
int32_t event_query(void*, int32_t, void* event, int32_t* done) {
  const Locked locked;
  const auto* e = static_cast<Event*>(event);
  *done = e->stream->done >= e->at || mischief("event query");
  if (!*done) e->stream->advance(e->stream->done + 1);
  return RB_OK;
}
int32_t event_elapsed(void*, int32_t, void* start, void* end, double* milliseconds) {
  const auto &a = *static_cast<Event*>(start)->passed, &b = *static_cast<Event*>(end)->passed;
  *milliseconds = std::chrono::duration<double, std::milli>(b - a).count();
  if (mischief("time")) *milliseconds = NAN;
  return RB_OK;
}
const RbStreams kStreams = {RB_SIZE(RbStreams, event_elapsed),
                            0,
                            nullptr,
                            create,
                            sync,
                            query,
                            event_create,
                            event_destroy,
                            event_record,
                            event_wait,
                            event_sync,
                            event_query,
                            event_elapsed};
const RbBackend kBackend = {
    RB_SIZE(RbBackend, streams), 0, "lazy", 12, 0, &kDevices, &kAllocator, &kStreams};

// ---- operators, in float32; what they need of their tensors is copied, as those may be gone

struct Operand {
  float* data = nullptr;
  float number = 0;
  std::vector<int64_t> shape, strides;  // of the result, 0 where it is broadcast

  Operand(const RbValue& v, const RbTensor& out) : shape(out.shape, out.shape + out.ndim) {
    if (v.tag != RB_TENSOR) {
      number = static_cast<float>(v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i));
      return;
    }
    const RbTensor& t = *v.v.t;
    data = static_cast<float*>(t.data);
    strides.assign(out.ndim, 0);
    for (int d = 0; d < t.ndim; ++d)
      if (t.shape[d] > 1) strides[out.ndim - t.ndim + d] = t.strides[d];
  }
  float* at(int64_t n) const {
    int64_t offset = 0;
    for (size_t d = shape.size(); d-- > 0; n /= shape[d]) offset += n % shape[d] * strides[d];
    return data + offset;
  }
  float operator[](int64_t n) const { return data ? *at(n) : number; }
};

template <class F>
void enqueue(const rb::Args& a, F f) {
  const Locked locked;
  const RbTensor& out = a.ret();
  const Operand to(rb::tensor_value(const_cast<RbTensor*>(&out)), out);
  const int64_t numel = out.numel;
  void* stream = mischief("kernel stream") ? nullptr : a.call->stream;
  queue(out.device.id, stream).add([=] {
    for (int64_t n = 0; n < numel; ++n) *to.at(n) = f(n);
  });
}
void add(const rb::Args& a) {
  const Operand x(a.args[0], a.ret()), y(a.args[1], a.ret()), alpha(a.args[2], a.ret());
  enqueue(a, [=](int64_t n) { return x[n] + alpha[n] * y[n]; });
}
void mul(const rb::Args& a) {
  const Operand x(a.args[0], a.ret()), y(a.args[1], a.ret());
  enqueue(a, [=](int64_t n) { return x[n] * y[n]; });
}
void clone(const rb::Args& a) {
  const Operand x(a.args[0], a.ret());
  enqueue(a, [=](int64_t n) { return x[n]; });
}
void copy_into(const rb::Args& a) {
  const Operand x(a.args[1], a.ret());
  enqueue(a, [=](int64_t n) { return x[n]; });
}
template <int number>
void constant(const rb::Args& a) {
  enqueue(a, [](int64_t) { return static_cast<float>(number); });
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  if (int32_t code = host->add_backend(txn, &kBackend, &backend_id)) return code;
  const uint64_t f32 = 1ull << RB_F32;
  const rb::KernelSpec kernels[] = {
      {"add", rb::wrap<add>, 0, f32},          {"mul", rb::wrap<mul>, 0, f32},
      {"clone", rb::wrap<clone>, 0, f32},      {"copy", rb::wrap<copy_into>, 0, f32},
      {"fill", rb::wrap<copy_into>, 0, f32},   {"ones_like", rb::wrap<constant<1>>, 0, f32},
      {"zeros", rb::wrap<constant<0>>, 0, f32}};
  return rb::add_kernels(host, txn, "lazy", kernels);
}
const RbPlugin kPlugin = {RB_SIZE(RbPlugin, retire),
                          RB_ABI_MAJOR,
                          RB_ABI_MINOR,
                          3,
                          0,
                          0,
                          "lazy-plugin",
                          "1.0",
                          init,
                          nullptr};

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &kPlugin; }

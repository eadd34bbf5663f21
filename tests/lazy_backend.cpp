// The backend `lazy`, with streams: work runs only when something waits for it, so that a wait
// which is missing always shows. LAZY_MISCHIEF makes it wrong in one way. Its memory comes and goes
// as NaN.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rabbet/capture.h"
#include "rabbet/device.h"
#include "rabbet/philox.h"
#include "rabbet/plugin.hpp"

namespace {

bool mischief(const char* name) {
  static const char* const chosen = std::getenv("LAZY_MISCHIEF");
  return chosen && !std::strcmp(chosen, name);
}

using Work = std::function<void()>;
struct Stream {
  std::deque<Work> work;
  uint64_t done = 0;
  std::vector<Work>* recording = nullptr;  // of a capture, instead of `work`
  void add(Work f) {
    if (recording) {
      recording->push_back(std::move(f));
    } else {
      work.push_back(std::move(f));
    }
  }
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

constexpr uint64_t kTotal = uint64_t{64} << 20;  // of each device
uint64_t in_use[kDeviceCount];
std::atomic<int> slow{0};  // allocations take so many milliseconds

// With LAZY_GROWS segments lie in ranges of addresses, in which they grow.
constexpr uint64_t kRange = 128u << 20, kPiece = 1u << 20;
bool grows() {
  static const bool chosen = std::getenv("LAZY_GROWS");
  return chosen;
}
void* reserve() {
  return mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void spoil(void* data, uint64_t nbytes) { std::memset(data, 0xff, nbytes); }
int32_t allocate(void*, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(slow));
  const Locked locked;
  if (nbytes > kTotal - in_use[device]) return rb::set_error(RB_E_OOM, "lazy: no memory");
  out->data = grows() ? reserve() : std::malloc(nbytes);
  if (grows()) mprotect(out->data, nbytes, PROT_READ | PROT_WRITE);
  in_use[device] += nbytes;
  spoil(out->data, nbytes);
  return RB_OK;
}
void release(void*, RbBuffer* buffer, void* stream) {
  const Locked locked;
  in_use[buffer->device_index] -= buffer->nbytes;
  Stream& s = queue(buffer->device_index, stream);
  if (!mischief("free")) s.advance(s.end());
  spoil(buffer->data, buffer->nbytes);
  if (grows()) return static_cast<void>(munmap(buffer->data, kRange));
  if (!std::getenv("LAZY_MISCHIEF")) std::free(buffer->data);  // else work is still to come
}
int32_t segment_grow(void*, RbBuffer* segment, uint64_t nbytes) {
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(slow));
  const Locked locked;
  if (!grows() || segment->nbytes + nbytes > kRange)
    return rb::set_error(RB_E_NOTIMPL, "lazy: it cannot grow");
  if (nbytes > kTotal - in_use[segment->device_index])
    return rb::set_error(RB_E_OOM, "lazy: no memory");
  if (mischief("grow")) nbytes /= 2;
  in_use[segment->device_index] += nbytes;
  char* end = static_cast<char*>(segment->data) + segment->nbytes;
  mprotect(end, nbytes, PROT_READ | PROT_WRITE);
  spoil(end, nbytes);
  segment->nbytes += nbytes;
  return RB_OK;
}
// What it keeps is a multiple of kPiece.
int32_t segment_shrink(void*, RbBuffer* segment, uint64_t nbytes, void* stream) {
  if (!grows()) return RB_OK;
  const Locked locked;
  nbytes = std::min((nbytes + kPiece - 1) / kPiece * kPiece, segment->nbytes);
  Stream& s = queue(segment->device_index, stream);
  s.advance(s.end());
  in_use[segment->device_index] -= segment->nbytes - nbytes;
  char* end = static_cast<char*>(segment->data) + nbytes;
  madvise(end, segment->nbytes - nbytes, MADV_DONTNEED);
  mprotect(end, segment->nbytes - nbytes, PROT_NONE);
  segment->nbytes = nbytes;
  return RB_OK;
}
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free),
                                std::getenv("LAZY_EXACT") ? +RB_ALLOC_EXACT : 0u, nullptr, allocate,
                                release};

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
int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void* stream, uint32_t nonblocking) {
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
  } else if (nonblocking) {
    Stream& s = queue(dst->backend == backend_id ? dst->device.id : src->device.id, stream);
    s.add([=] { std::memcpy(to, from, nbytes); });
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
#ifndef LAZY_FLAGS
#define LAZY_FLAGS 0
#endif
const RbBackend kBackend = {
    RB_SIZE(RbBackend, streams), LAZY_FLAGS, "lazy", 12, 0, &kDevices, &kAllocator, &kStreams};

// ---- what it tells of its devices

int32_t allocate_kind(void* self, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  out->data = std::aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
  out->ctx = self;
  return out->data ? +RB_OK : rb::set_error(RB_E_OOM, "lazy: no host memory");
}
void release_kind(void*, RbBuffer* buffer, void*) { std::free(buffer->data); }
const RbAllocator kOtherMemory = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate_kind,
                                  release_kind};

int32_t memory_info(void*, int32_t device, uint64_t* free, uint64_t* total) {
  const Locked locked;
  *total = kTotal;
  *free = kTotal - in_use[device];
  return RB_OK;
}
int32_t properties(void*, int32_t device, void* ctx,
                   int32_t (*add)(void* ctx, const char* name, const RbValue* value)) {
  RbValue v{};
  v.tag = RB_STR;
  const std::string name = "Lazy " + std::to_string(device);
  v.v.s = name.c_str();
  v.len = static_cast<uint32_t>(name.size());
  if (int32_t rc = add(ctx, "name", &v)) return rc;
  v = rb::int_value(static_cast<int64_t>(kTotal));
  if (int32_t rc = add(ctx, "total_memory", &v)) return rc;
  v.tag = RB_BOOL;
  v.v.i = 0;
  if (int32_t rc = add(ctx, "hurries", &v)) return rc;
  v.tag = mischief("property") ? +RB_INTS : +RB_FLOAT;
  v.v.f = 0.5;
  return add(ctx, "speed", &v);
}
int32_t can_access_peer(void*, int32_t device, int32_t peer, int32_t* can) {
  *can = device == 0 && peer == 1;
  return RB_OK;
}
// Handles are good in the process that made them.
int segments_open = 0;
int32_t ipc_export(void*, const RbBuffer* segment, RbIpcHandle* out) {
  std::memcpy(out->bytes, segment, sizeof *segment);
  out->nbytes = mischief("handle") ? 300 : sizeof *segment;
  return RB_OK;
}
int32_t ipc_open(void*, int32_t, const RbIpcHandle* handle, RbBuffer* out) {
  if (handle->nbytes != sizeof *out) return rb::set_error(RB_E_ARG, "lazy: no such handle");
  std::memcpy(out, handle->bytes, sizeof *out);
  ++segments_open;
  return RB_OK;
}
void ipc_close(void*, RbBuffer*) { --segments_open; }
int32_t host_call(void*, int32_t device, void* stream, void (*fn)(void*), void* ctx) {
  const Locked locked;
  queue(device, stream).add([=] { fn(ctx); });
  return RB_OK;
}
std::atomic<int> broken{-1};  // the device that is
int32_t poll_error(void*, int32_t device) {
  return broken == device ? rb::set_error(RB_E_DEVICE, "lazy: it fell asleep") : +RB_OK;
}
const RbDeviceTable kDeviceTable = {RB_SIZE(RbDeviceTable, segment_shrink),
                                    0,
                                    nullptr,
                                    &kOtherMemory,
                                    &kOtherMemory,
                                    memory_info,
                                    properties,
                                    can_access_peer,
                                    ipc_export,
                                    ipc_open,
                                    ipc_close,
                                    host_call,
                                    poll_error,
                                    segment_grow,
                                    segment_shrink};

// ---- graphs: lists of work

using Recorded = std::vector<Work>;

int32_t capture_begin(void*, int32_t device, void* stream) {
  const Locked locked;
  if (!stream) return rb::set_error(RB_E_STATE, "lazy: the default stream cannot be captured");
  queue(device, stream).recording = new Recorded;
  return RB_OK;
}
int32_t capture_end(void*, int32_t device, void* stream, void** graph) {
  const Locked locked;
  Stream& s = queue(device, stream);
  *graph = s.recording;
  s.recording = nullptr;
  return RB_OK;
}
int32_t graph_instantiate(void*, int32_t, void* graph, void** executable) {
  *executable = new Recorded(*static_cast<Recorded*>(graph));
  return RB_OK;
}
int32_t graph_launch(void*, int32_t device, void* executable, void* stream) {
  const Locked locked;
  auto& recorded = *static_cast<Recorded*>(executable);
  for (const Work& work : recorded) queue(device, stream).add(work);
  if (mischief("replay")) recorded.clear();
  return RB_OK;
}
void graph_destroy(void*, int32_t, void* graph, void* executable) {
  delete static_cast<Recorded*>(graph);
  delete static_cast<Recorded*>(executable);
}
const RbCapture kCapture = {RB_SIZE(RbCapture, graph_destroy),
                            0,
                            nullptr,
                            capture_begin,
                            capture_end,
                            graph_instantiate,
                            graph_launch,
                            graph_destroy};

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
void sub(const rb::Args& a) {
  const Operand x(a.args[0], a.ret()), y(a.args[1], a.ret()), alpha(a.args[2], a.ret());
  enqueue(a, [=](int64_t n) { return x[n] - alpha[n] * y[n]; });
}
// The result's zero, then each element added where its dimensions are, 0 for those summed over.
void sum(const rb::Args& a) {
  const RbTensor &in = a.tensor(0), &out = a.ret();
  std::vector<bool> summed(in.ndim, !a.has(1));
  if (a.has(1)) {
    for (int64_t d : a.ints(1)) summed[d] = true;
  }
  Operand to(a.args[0], in);
  to.data = static_cast<float*>(out.data);
  const bool keep = a.nargs > 2 && a.args[2].tag == RB_BOOL && a.args[2].v.i;
  for (int d = 0, k = 0; d < in.ndim; ++d) {
    to.strides[d] = summed[d] ? 0 : out.strides[keep ? d : k];
    k += !summed[d];
  }
  const Operand x(a.args[0], in), all(rb::tensor_value(const_cast<RbTensor*>(&out)), out);
  const int64_t count = in.numel, results = out.numel;
  const Locked locked;
  queue(out.device.id, a.call->stream).add([=] {
    for (int64_t n = 0; n < results; ++n) *all.at(n) = 0;
    for (int64_t n = 0; n < count; ++n) *to.at(n) += x[n];
  });
}
// Its counters come from device memory in a capture, see RbCaptureSlice.
void bernoulli(const rb::Args& a) {
  const auto* rng = static_cast<const RbCaptureRng*>(
      rb::host->get_ext(RB_CAPTURE_RNG_EXT, RB_CAPTURE_RNG_VERSION));
  const RbTensor& out = a.ret();
  const float p = static_cast<float>(a.has(1) ? a.real(1) : 0.5);
  RbCaptureSlice slice{RB_SIZE(RbCaptureSlice, base), 0, 0, 0, nullptr};
  rb::check(rng->reserve(a.generator(2), backend_id, out.device.id,
                         rb_philox_counters(static_cast<uint64_t>(out.numel), 32), &slice));
  enqueue(a, [=](int64_t n) {
    const uint64_t seed = slice.base ? slice.base[0] : slice.seed;
    const uint64_t offset = slice.offset + (slice.base ? slice.base[1] : 0);
    const RbPhilox r = rb_philox(seed, offset + static_cast<uint64_t>(n) / 4);
    return rb_uniform_f32(r.w[n % 4]) < p ? 1.0f : 0.0f;
  });
}
// Takes its counters from the host, as a backend does that knows no capture.
void uniform(const rb::Args& a) {
  RbRngSlice slice{RB_SIZE(RbRngSlice, offset), 0, 0, 0};
  const RbTensor& out = a.ret();
  rb::check(rb::host->rng_reserve(a.generator(3), backend_id, out.device.id,
                                  rb_philox_counters(static_cast<uint64_t>(out.numel), 32),
                                  &slice));
  enqueue(a, [=](int64_t n) {
    return rb_uniform_f32(
        rb_philox(slice.seed, slice.offset + static_cast<uint64_t>(n) / 4).w[n % 4]);
  });
}
void exponential(const rb::Args&) { rb::fail(RB_E_INTERNAL, "lazy: exponential ran"); }
// Declines all but matrices, and says nothing.
int32_t rsub(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
             int32_t nrets) {
  const rb::Args a{nullptr, call, args, nargs, rets, nrets};
  if (a.ret().ndim != 2) return RB_E_NOTIMPL;
  return rb::guarded([&] { enqueue(a, [](int64_t) { return 77.0f; }); });
}
int32_t declines(void*, const RbCall*, const RbValue*, int32_t, RbValue*, int32_t) {
  return RB_E_NOTIMPL;
}
void lacks_a_library(const rb::Args&) { rb::fail(RB_E_NOTIMPL, "its library was not found"); }
void breaks(const rb::Args& a) {
  broken = a.ret().device.id;
  rb::fail(RB_E_DEVICE, "lazy: a kernel failed");
}

void mul(const rb::Args& a) {
  const Operand x(a.args[0], a.ret()), y(a.args[1], a.ret());
  enqueue(a, [=](int64_t n) { return x[n] * y[n]; });
}
void neg(const rb::Args& a) {
  const Operand x(a.args[0], a.ret());
  enqueue(a, [=](int64_t n) { return -x[n]; });
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
  const rb::KernelSpec kernels[] = {{"add", rb::wrap<add>, 0, f32},
                                    {"mul", rb::wrap<mul>, 0, f32},
                                    {"clone", rb::wrap<clone>, 0, f32},
                                    {"copy", rb::wrap<copy_into>, 0, f32},
                                    {"fill", rb::wrap<copy_into>, 0, f32},
                                    {"ones_like", rb::wrap<constant<1>>, 0, f32},
                                    {"zeros", rb::wrap<constant<0>>, 0, f32},
                                    {"sub", rb::wrap<sub>, 0, f32},
                                    {"sum", rb::wrap<sum>, 0, f32},
                                    {"bernoulli", rb::wrap<bernoulli>, 0, f32},
                                    {"uniform", rb::wrap<uniform>, 0, f32},
                                    {"exponential", rb::wrap<exponential>, RB_K_NO_CAPTURE, f32},
                                    {"rsub", rsub, 0, f32},
                                    {"sin", declines, 0, f32},
                                    {"cos", rb::wrap<lacks_a_library>, 0, f32},
                                    {"neg", rb::wrap<neg>, 0, f32},
                                    {"exp", rb::wrap<breaks>, 0, f32}};
  if (int32_t code = host->publish("lazy." RB_DEVICE_EXT, RB_DEVICE_VERSION, &kDeviceTable))
    return code;
  if (int32_t code = host->publish("lazy." RB_CAPTURE_EXT, RB_CAPTURE_VERSION, &kCapture))
    return code;
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

extern "C" RB_EXPORT int lazy_segments_open() { return segments_open; }
extern "C" RB_EXPORT void lazy_be_slow(int milliseconds) { slow = milliseconds; }
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &kPlugin; }

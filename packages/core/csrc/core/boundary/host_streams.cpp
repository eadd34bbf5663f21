#include "boundary/host_streams.h"

#include "boundary/host_checks.h"
#include "device/backends.h"
#include "device/capture.h"
#include "device/generator.h"
#include "device/memory.h"
#include "device/streams.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/thread_state.h"
#include "thread/wait.h"

namespace rabbet {

namespace {

void check_place(const char* what, int32_t backend, int32_t device) {
  check_backend_id(what, backend);
  check_device(backend, device);
}

}  // namespace

// ---- backends

int32_t host_find_backend(const char* name, int32_t* backend) {
  return guarded([&] {
    need(backend, "find_backend: where the backend's id goes");
    *backend = require_backend(need(name, "find_backend: the name"));
  });
}
const char* host_backend_name(int32_t backend) {
  return backend >= 0 && backend < backend_count() ? backend_name(backend) : nullptr;
}
int32_t host_device_count(int32_t backend, int32_t* count) {
  return guarded([&] {
    need(count, "device_count: where the count goes");
    check_backend_id("device_count", backend);
    *count = device_count(backend);
  });
}

// ---- streams and events

int32_t host_stream_get(int32_t backend, int32_t device, void** stream) {
  return guarded([&] {
    need(stream, "stream_get: where the stream goes");
    check_place("stream_get", backend, device);
    *stream = current_stream(thread_state(), backend, device);
  });
}
int32_t host_stream_set(int32_t backend, int32_t device, void* stream) {
  return guarded([&] {
    check_backend_id("stream_set", backend);
    set_current_stream(backend, device, stream);
  });
}
int32_t host_stream_wait(int32_t backend, int32_t device, void* stream, void* other) {
  return guarded([&] {
    check_backend_id("stream_wait", backend);
    stream_wait(backend, device, stream, other);
  });
}
int32_t host_stream_new(int32_t backend, int32_t device, int32_t priority, void** stream) {
  return guarded([&] {
    need(stream, "stream_new: where the stream goes");
    check_place("stream_new", backend, device);
    *stream = stream_from_pool(backend, device, priority);
  });
}
int32_t host_stream_sync(int32_t backend, int32_t device, void* stream) {
  return guarded([&] {
    check_place("stream_sync", backend, device);
    stream_synchronize(backend, device, stream);
  });
}
int32_t host_event_new(int32_t backend, int32_t device, uint32_t flags, void** event) {
  return guarded([&] {
    need(event, "event_new: where the event goes");
    check_place("event_new", backend, device);
    if (flags & ~uint32_t{RB_EVENT_TIMING})
      fail(RB_E_ARG, "event_new: the flags %u are not known", flags);
    *event = event_create(backend, device, (flags & RB_EVENT_TIMING) != 0);
  });
}
int32_t host_event_free(int32_t backend, int32_t device, void* event) {
  return guarded([&] {
    check_place("event_free", backend, device);
    if (event) event_destroy(backend, device, event);
  });
}
int32_t host_event_record(int32_t backend, int32_t device, void* stream, void* event) {
  return guarded([&] {
    need(event, "event_record: the event");
    check_place("event_record", backend, device);
    event_record(backend, device, stream, event);
  });
}
int32_t host_event_wait(int32_t backend, int32_t device, void* stream, void* event) {
  return guarded([&] {
    need(event, "event_wait: the event");
    check_place("event_wait", backend, device);
    event_wait(backend, device, stream, event);
  });
}
int32_t host_event_query(int32_t backend, int32_t device, void* event, int32_t* done) {
  return guarded([&] {
    need(event, "event_query: the event");
    need(done, "event_query: where the answer goes");
    check_place("event_query", backend, device);
    *done = event_query(backend, device, event);
  });
}
int32_t host_record_stream(RbTensor* t, void* stream) {
  return guarded([&] { record_stream(impl(need(t, "record_stream: the tensor")), stream); });
}
int32_t host_wait(int32_t (*ready)(void* ctx), void* ctx, double seconds, int32_t* done) {
  return guarded([&] {
    need(reinterpret_cast<const void*>(ready), "wait: the function");
    need(done, "wait: where the answer goes");
    *done = wait_until(ready, ctx, seconds);
  });
}

// ---- generators

int32_t host_rng_reserve(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                         RbRngSlice* out) {
  return guarded([&] {
    need(out, "rng_reserve: where the slice goes");
    if (!generator) check_backend_id("rng_reserve", backend);
    check_not_capturing(backend, device,
                        "a random operator whose kernel takes its counters from the host");
    fill_struct("rng_reserve",
                reserve(generator ? *generator : current_generator(backend, device), counters), out,
                RB_SIZE(RbRngSlice, offset));
  });
}
int32_t host_generator_at(uint64_t seed, uint64_t offset, RbGenerator** out) {
  return guarded([&] {
    need(out, "generator_at: where the generator goes");
    *out = new RbGenerator;
    (*out)->seed = seed;
    (*out)->offset = offset;
  });
}
void host_generator_free(RbGenerator* generator) {
  if (generator && thread_state().generator == generator) thread_state().generator = nullptr;
  delete generator;
}
int32_t host_generator_state(const RbGenerator* generator, int32_t backend, int32_t device,
                             RbRngSlice* out) {
  return guarded([&] {
    need(out, "generator_state: where the state goes");
    if (!generator) check_place("generator_state", backend, device);
    const RbGenerator& at = generator ? *generator : current_generator(backend, device);
    ask_generator_gates(&at, "generator_state()");
    const RbRngSlice state{sizeof state, 0, at.seed.load(), at.offset.load()};
    fill_struct("generator_state", state, out, RB_SIZE(RbRngSlice, offset));
  });
}
int32_t host_generator_set(RbGenerator* generator) {
  thread_state().generator = generator;
  return RB_OK;
}

}  // namespace rabbet

// Streams and events, as core asks for them. They are the driver's own.
#include <algorithm>
#include <cstring>

#include "device/device.h"
#include "device/report.h"

namespace rbcuda {
namespace {

struct Event {
  CuEvent handle;
  int device;
  bool timing;
  bool recorded;
};

Event& event_at(void* handle, const char* call) {
  if (!handle) rb::fail(RB_E_ARG, "cuda: %s: the event is null", call);
  return *static_cast<Event*>(handle);
}
Event& recorded(void* handle, const char* call) {
  Event& event = event_at(handle, call);
  if (!event.recorded)
    rb::fail(RB_E_STATE, "cuda:%d: %s: the event was not recorded", event.device, call);
  return event;
}
// Whether it is over; throws what else the driver says.
bool passed(CuResult status, int index, const char* what) {
  if (status != kNotReady) check_cuda(status, index, what);
  return status != kNotReady;
}

// Priorities beyond the device's range are its ends.
int32_t create(void*, int32_t index, int32_t priority, void** stream) {
  return rb::guarded([&] {
    device(index).enter();
    const Driver& d = driver();
    CuStream made = nullptr;
    if (priority && d.priorities && d.stream_create_priority) {
      int least = 0, greatest = 0;
      check_cuda(d.priorities(&least, &greatest), index, "cuCtxGetStreamPriorityRange");
      priority = std::max(greatest, std::min(priority, least));
      check_cuda(d.stream_create_priority(&made, kStreamNonBlocking, priority), index,
                 "cuStreamCreateWithPriority");
    } else {
      check_cuda(d.stream_create(&made, kStreamNonBlocking), index, "cuStreamCreate");
    }
    *stream = made;
  });
}
int32_t sync(void*, int32_t index, void* stream) {
  return rb::guarded([&] { device(index).synchronize(as_stream(stream)); });
}
int32_t query(void*, int32_t index, void* stream, int32_t* done) {
  return rb::guarded([&] {
    device(index).enter();
    *done = passed(driver().stream_query(as_stream(stream)), index, "cuStreamQuery");
  });
}
int32_t event_create(void*, int32_t index, uint32_t flags, void** event) {
  return rb::guarded([&] {
    device(index).enter();
    const bool timing = (flags & RB_EVENT_TIMING) != 0;
    const bool interprocess = (flags & RB_EVENT_INTERPROCESS) != 0;
    if (timing && interprocess)
      rb::fail(RB_E_ARG, "cuda:%d: an event that other processes open tells no times", index);
    CuEvent made = nullptr;
    check_cuda(driver().event_create(
                   &made, (timing ? 0 : kEventNoTiming) | (interprocess ? kEventInterprocess : 0)),
               index, "cuEventCreate");
    *event = new Event{made, index, timing, false};
  });
}
void event_destroy(void*, int32_t index, void* event) {
  if (forked()) return;
  rb::guarded([&] { device(index).enter(); });  // it may be a thread that has no context
  driver().event_destroy(static_cast<Event*>(event)->handle);
  delete static_cast<Event*>(event);
}
int32_t event_record(void*, int32_t index, void* stream, void* event) {
  return rb::guarded([&] {
    Event& e = event_at(event, "event_record");
    if (e.device != index)
      rb::fail(RB_E_ARG, "cuda:%d: event_record: the event is of cuda:%d", index, e.device);
    device(index).enter();
    check_cuda(driver().event_record(e.handle, as_stream(stream)), index, "cuEventRecord");
    e.recorded = true;
  });
}
int32_t event_wait(void*, int32_t index, void* stream, void* event) {
  return rb::guarded([&] {
    device(index).enter();
    const Event& e = recorded(event, "event_wait");
    check_cuda(driver().stream_wait(as_stream(stream), e.handle, 0), index, "cuStreamWaitEvent");
  });
}
int32_t event_sync(void*, int32_t index, void* event) {
  return rb::guarded([&] {
    device(index).enter();
    check_cuda(driver().event_synchronize(recorded(event, "event_sync").handle), index,
               "cuEventSynchronize");
    check_report(index);
  });
}
int32_t event_query(void*, int32_t index, void* event, int32_t* done) {
  return rb::guarded([&] {
    device(index).enter();
    *done =
        passed(driver().event_query(recorded(event, "event_query").handle), index, "cuEventQuery");
  });
}
int32_t event_elapsed(void*, int32_t index, void* start, void* end, double* milliseconds) {
  return rb::guarded([&] {
    constexpr const char* kCall = "event_elapsed";
    const Event &from = recorded(start, kCall), &to = recorded(end, kCall);
    if (!from.timing || !to.timing)
      rb::fail(RB_E_ARG, "cuda:%d: event_elapsed: both events must have been made with timing",
               index);
    float time = 0;
    const CuResult status = driver().event_elapsed(&time, from.handle, to.handle);
    if (status == kNotReady)
      rb::fail(RB_E_STATE, "cuda:%d: event_elapsed: an event has not passed yet", index);
    check_cuda(status, index, "cuEventElapsedTime");
    *milliseconds = time;
  });
}

}  // namespace

int32_t event_export(void*, int32_t index, void* event, RbIpcHandle* out) {
  return rb::guarded([&] {
    device(index).enter();
    CuIpcHandle handle = {};
    check_cuda(need(driver().event_export, "cuIpcGetEventHandle")(
                   &handle, event_at(event, "event_export").handle),
               index, "cuIpcGetEventHandle");
    std::memcpy(out->bytes, handle.bytes, sizeof handle.bytes);
    out->nbytes = sizeof handle.bytes;
  });
}
int32_t event_open(void*, int32_t index, const RbIpcHandle* given, void** event) {
  return rb::guarded([&] {
    CuIpcHandle handle = {};
    if (given->nbytes != sizeof handle.bytes)
      rb::fail(RB_E_ARG, "cuda:%d: this is no handle of an event of a CUDA device", index);
    std::memcpy(handle.bytes, given->bytes, sizeof handle.bytes);
    device(index).enter();
    CuEvent made = nullptr;
    check_cuda(need(driver().event_open, "cuIpcOpenEventHandle")(&made, handle), index,
               "cuIpcOpenEventHandle");
    *event = new Event{made, index, false, true};
  });
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

}  // namespace rbcuda

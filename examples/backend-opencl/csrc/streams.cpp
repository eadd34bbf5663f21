// Streams and events, as core asks for them. A stream is one of its device's queues; an event is a
// marker in one, which is a command like others: those before it are over when it is.
#include "device.h"

namespace rbcl {
namespace {

class Event {
 public:
  Event(Device& device, bool timing) : device_(device), timing_(timing) {}

  Device& device() const { return device_; }

  void record(void* stream) {
    Mark mark = device_.enqueue(stream, "clEnqueueMarkerWithWaitList",
                                [](cl_command_queue queue, cl_event* event) {
                                  return cl().EnqueueMarkerWithWaitList(queue, 0, nullptr, event);
                                });
    std::lock_guard<std::mutex> lock(mutex_);
    mark_ = std::move(mark);  // who waits for the one before holds it
  }
  Mark mark(const char* call) const {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!mark_) fail(RB_E_STATE, call, "the event was not recorded");
    return mark_;
  }
  double milliseconds_to(const Event& end) const {
    constexpr const char* kCall = "event_elapsed";
    if (!timing_ || !end.timing_)
      fail(RB_E_ARG, kCall, "both events must have been made with RB_EVENT_TIMING");
    const int index = device_.index();
    const Mark from = mark(kCall), to = end.mark(kCall);
    if (!passed(from, index) || !passed(to, index))
      fail(RB_E_STATE, kCall, "an event has not passed yet");
    // Signed: `end` may be the earlier one.
    return 1e-6 *
           static_cast<double>(static_cast<cl_long>(end_of(to, index) - end_of(from, index)));
  }
  [[noreturn]] void fail(int32_t code, const char* call, const char* what) const {
    rb::fail(code, "opencl:%d: %s: %s", device_.index(), call, what);
  }

 private:
  Device& device_;
  const bool timing_;
  mutable std::mutex mutex_;
  Mark mark_;  // of the last record
};

void need(const void* pointer, const char* call, const char* what) {
  if (!pointer) rb::fail(RB_E_ARG, "opencl: %s: %s is null", call, what);
}
Event& event_at(void* handle, const char* call) {
  need(handle, call, "the event");
  return *static_cast<Event*>(handle);
}
Event& event_of(int32_t index, void* handle, const char* call) {
  Event& event = event_at(handle, call);
  if (&event.device() != &device(index))
    rb::fail(RB_E_ARG, "opencl:%d: %s: the event is of opencl:%d", index, call,
             event.device().index());
  return event;
}

// A priority would be a hint that few drivers take (cl_khr_priority_hints).
int32_t create(void*, int32_t index, int32_t, void** stream) {
  return rb::guarded([&] {
    need(stream, "create", "where the stream goes");
    *stream = device(index).new_stream();
  });
}
int32_t sync(void*, int32_t index, void* stream) {
  return rb::guarded([&] { device(index).synchronize(stream); });
}
int32_t query(void*, int32_t index, void* stream, int32_t* done) {
  return rb::guarded([&] {
    need(done, "query", "where the answer goes");
    *done = passed(device(index).last(stream), index);
  });
}

int32_t event_create(void*, int32_t index, uint32_t flags, void** event) {
  return rb::guarded([&] {
    need(event, "event_create", "where the event goes");
    *event = std::make_unique<Event>(device(index), (flags & RB_EVENT_TIMING) != 0).release();
  });
}
// Queues that wait for the event hold their mark; in a child the driver must not be called.
void event_destroy(void*, int32_t, void* event) {
  if (!forked()) delete static_cast<Event*>(event);
}
int32_t event_record(void*, int32_t index, void* stream, void* event) {
  return rb::guarded([&] { event_of(index, event, "event_record").record(stream); });
}
int32_t event_wait(void*, int32_t index, void* stream, void* event) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.last(stream);  // throws where there is no such stream
    const Event& other = event_at(event, "event_wait");
    const Mark mark = other.mark("event_wait");
    if (&other.device() != &here) {
      // It has a context of its own, whose events no queue of this one can wait for. The host can:
      // that is slower than the order that was asked for, but it is that order.
      return wait(mark, other.device().index());
    }
    here.enqueue(stream, "clEnqueueBarrierWithWaitList",
                 [&](cl_command_queue queue, cl_event* out) {
                   cl_event first = mark.get();
                   return cl().EnqueueBarrierWithWaitList(queue, 1, &first, out);
                 });
  });
}
int32_t event_sync(void*, int32_t index, void* event) {
  return rb::guarded(
      [&] { device(index).synchronize(event_of(index, event, "event_sync").mark("event_sync")); });
}
int32_t event_query(void*, int32_t index, void* event, int32_t* done) {
  return rb::guarded([&] {
    need(done, "event_query", "where the answer goes");
    *done = passed(event_of(index, event, "event_query").mark("event_query"), index);
  });
}
int32_t event_elapsed(void*, int32_t index, void* start, void* end, double* milliseconds) {
  return rb::guarded([&] {
    constexpr const char* kCall = "event_elapsed";
    need(milliseconds, kCall, "where the time goes");
    *milliseconds = event_of(index, start, kCall).milliseconds_to(event_of(index, end, kCall));
  });
}

}  // namespace

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

}  // namespace rbcl

#include "device/streams.h"

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "device/backends.h"
#include "device/capture.h"
#include "device/deleters.h"
#include "thread/error.h"
#include "thread/fork.h"

namespace rabbet {

namespace {

constexpr size_t kPoolSize = 32;  // of each priority, as in PyTorch

struct Pools {
  struct Pool {
    std::vector<void*> streams;
    size_t next = 0;
  };
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, Pool> of;  // backend, device, priority
};
Pools& pools() {
  static Pools* instance = [] {
    auto* made = new Pools;  // never destroyed, as the streams are not
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}

const RbStreams& streams_of(int backend, int device) {
  check_device(backend, device);
  const RbStreams* streams = backend_entry(backend).desc.streams;
  if (!streams)
    fail(RB_E_NOTIMPL, "the backend '%s' has no streams besides the default one, and no events",
         backend_name(backend));
  return *streams;
}

RbDeviceTable interprocess_table(int backend) {
  const RbDeviceTable table = device_table(backend);
  if (!table.event_export || !table.event_open)
    fail(RB_E_NOTIMPL, "the backend '%s' cannot share its events with other processes",
         backend_name(backend));
  return table;
}

}  // namespace

void* find_stream(const ThreadState& state, int backend, int device) {
  for (const CurrentStream& s : state.streams) {
    if (s.backend == backend && s.device == device) return s.stream;
  }
  return nullptr;
}

void set_current_stream(int backend, int device, void* stream) {
  check_device(backend, device);
  if (stream) streams_of(backend, device);
  ThreadState& state = thread_state();
  std::vector<CurrentStream>& all = state.streams;
  for (auto s = all.begin(); s != all.end(); ++s) {
    if (s->backend != backend || s->device != device) continue;
    all.erase(s);
    break;
  }
  if (stream) all.push_back({backend, device, stream});
  state.has_streams = !all.empty();
}

void* stream_from_pool(int backend, int device, int priority) {
  const RbStreams& streams = streams_of(backend, device);
  std::unique_lock<std::mutex> lock(pools().mutex);
  Pools::Pool& pool = pools().of[{backend, device, priority}];
  if (pool.streams.size() >= kPoolSize) return pool.streams[pool.next++ % pool.streams.size()];
  lock.unlock();
  void* made = nullptr;
  check_backend_code(backend, "create",
                     [&] { return streams.create(streams.self, device, priority, &made); });
  if (!made)
    fail(RB_E_INTERNAL, "the backend '%s' made a stream that is null, the default one",
         backend_name(backend));
  lock.lock();
  pool.streams.push_back(made);
  return made;
}

void stream_synchronize(int backend, int device, void* stream) {
  check_not_capturing(backend, device, "Stream.synchronize");
  if (!stream && !backend_traits[backend].streams) return synchronize(backend, device);
  const RbStreams& streams = streams_of(backend, device);
  const int32_t rc =
      call_backend(backend, "sync", [&] { return streams.sync(streams.self, device, stream); });
  poll_error(backend, device);
  check(rc);
  run_due_deleters();
}

bool stream_query(int backend, int device, void* stream) {
  check_not_capturing(backend, device, "Stream.query");
  const RbStreams& streams = streams_of(backend, device);
  int32_t done = 0;
  check_backend_code(backend, "query",
                     [&] { return streams.query(streams.self, device, stream, &done); });
  return done != 0;
}

void stream_wait(int backend, int device, void* stream, void* other) {
  if (stream == other) return;
  struct Mark {
    int backend, device;
    void* event;
    ~Mark() { event_destroy(backend, device, event); }
  } const mark{backend, device, event_create(backend, device, false)};
  event_record(backend, device, other, mark.event);
  event_wait(backend, device, stream, mark.event);
}

void* event_create(int backend, int device, bool timing, bool interprocess) {
  const RbStreams& streams = streams_of(backend, device);
  if (timing && !streams.event_elapsed)
    fail(RB_E_NOTIMPL, "the events of the backend '%s' do not tell times", backend_name(backend));
  if (interprocess) interprocess_table(backend);
  const uint32_t flags =
      (timing ? +RB_EVENT_TIMING : 0u) | (interprocess ? +RB_EVENT_INTERPROCESS : 0u);
  void* event = nullptr;
  check_backend_code(backend, "event_create",
                     [&] { return streams.event_create(streams.self, device, flags, &event); });
  return event;
}

std::string event_export(int backend, int device, void* event) {
  const RbDeviceTable table = interprocess_table(backend);
  RbIpcHandle handle{RB_SIZE(RbIpcHandle, bytes), 0, {}};
  check_backend_code(backend, "event_export",
                     [&] { return table.event_export(table.self, device, event, &handle); });
  if (!handle.nbytes || handle.nbytes > sizeof handle.bytes)
    fail(RB_E_PLUGIN, "event_export of the backend '%s': a handle has 1 to %zu bytes, got %u",
         backend_name(backend), sizeof handle.bytes, handle.nbytes);
  return {reinterpret_cast<const char*>(handle.bytes), handle.nbytes};
}

void* event_open(int backend, int device, const std::string& handle) {
  streams_of(backend, device);
  const RbDeviceTable table = interprocess_table(backend);
  RbIpcHandle given{RB_SIZE(RbIpcHandle, bytes), static_cast<uint32_t>(handle.size()), {}};
  if (handle.empty() || handle.size() > sizeof given.bytes)
    fail(RB_E_ARG, "a handle of an event has 1 to %zu bytes, got %zu", sizeof given.bytes,
         handle.size());
  std::memcpy(given.bytes, handle.data(), handle.size());
  void* event = nullptr;
  check_backend_code(backend, "event_open",
                     [&] { return table.event_open(table.self, device, &given, &event); });
  if (!event)
    fail(RB_E_PLUGIN, "event_open of the backend '%s' returned RB_OK without an event",
         backend_name(backend));
  return event;
}

// Also of a device that has failed.
void event_destroy(int backend, int device, void* event) {
  const RbStreams& streams = *backend_entry(backend).desc.streams;
  try {
    streams.event_destroy(streams.self, device, event);
  } catch (...) {
    log_thrown(backend_function(backend, "event_destroy"));
  }
}

void event_record(int backend, int device, void* stream, void* event) {
  const RbStreams& streams = streams_of(backend, device);
  check_backend_code(backend, "event_record",
                     [&] { return streams.event_record(streams.self, device, stream, event); });
}

void event_wait(int backend, int device, void* stream, void* event) {
  const RbStreams& streams = streams_of(backend, device);
  check_backend_code(backend, "event_wait",
                     [&] { return streams.event_wait(streams.self, device, stream, event); });
}

void event_synchronize(int backend, int device, void* event) {
  check_not_capturing(backend, device, "Event.synchronize");
  const RbStreams& streams = streams_of(backend, device);
  check_backend_code(backend, "event_sync",
                     [&] { return streams.event_sync(streams.self, device, event); });
  run_due_deleters();
}

bool event_query(int backend, int device, void* event) {
  check_not_capturing(backend, device, "Event.query");
  const RbStreams& streams = streams_of(backend, device);
  int32_t done = 0;
  check_backend_code(backend, "event_query",
                     [&] { return streams.event_query(streams.self, device, event, &done); });
  return done != 0;
}

double event_elapsed(int backend, int device, void* start, void* end) {
  const RbStreams& streams = streams_of(backend, device);
  double milliseconds = 0;
  check_backend_code(backend, "event_elapsed", [&] {
    return streams.event_elapsed(streams.self, device, start, end, &milliseconds);
  });
  return milliseconds;
}

}  // namespace rabbet

#include "thread/events.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "thread/error.h"

struct RbEvents {
  uint32_t kinds;
  uint64_t next;  // number of the first event that was not read
};

namespace rabbet {

std::atomic<uint32_t> read_kinds{0}, observed_kinds{0}, watched_kinds{0};

namespace {

constexpr uint32_t kInRing = RB_EVENT_OP_BEGIN | RB_EVENT_OP_END | RB_EVENT_ALLOC | RB_EVENT_FREE;

// Observers stay in their places, so that a thread that is about to call one finds it whole.
struct Observer {
  std::atomic<uint32_t> kinds{0};
  std::atomic<RbObserveFn> fn{nullptr};
  std::atomic<void*> self{nullptr};
};
constexpr int kObservers = 8;
Observer observers[kObservers];
std::mutex observers_mutex;

void set_kinds(std::atomic<uint32_t>& kinds, uint32_t value) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  kinds.store(value);
  watched_kinds.store(read_kinds.load() | observed_kinds.load());
}

}  // namespace

namespace {

constexpr uint64_t kCapacity = 1 << 15;

// Events are numbered; number n lies at n % kCapacity until kCapacity others have come.
struct Ring {
  std::mutex mutex;
  std::unique_ptr<RbEvent[]> events;  // as long as there are readers
  uint64_t end = 0;
  std::vector<std::unique_ptr<RbEvents>> readers;

  void update_kinds() {
    uint32_t kinds = 0;
    for (const auto& reader : readers) kinds |= reader->kinds;
    set_kinds(read_kinds, kinds);
  }
};
Ring& ring() {
  static Ring* instance = new Ring;
  return *instance;
}

uint32_t thread_number() {
  static std::atomic<uint32_t> next{0};
  static thread_local const uint32_t own = next.fetch_add(1);
  return own;
}
void put(const RbEvent& event) {
  Ring& all = ring();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.events) return;  // the last reader has gone
  all.events[all.end++ % kCapacity] = event;
}

}  // namespace

void record_event(RbEvent& event) {
  event.thread = thread_number();
  event.time = std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
                   .count();
  put(event);
}

void notify(const RbObserved& event) {
  for (const Observer& o : observers) {
    if (!is_among(event.kind, o.kinds)) continue;
    const RbObserveFn fn = o.fn.load(std::memory_order_acquire);
    if (fn) fn(o.self.load(std::memory_order_relaxed), &event);
  }
}

void record_memory_event(uint32_t kind, int backend, int device, const void* data,
                         uint64_t nbytes) {
  if (is_among(kind, observed_kinds)) {
    RbObserved seen = observed_event(kind);
    seen.backend = backend;
    seen.device = device;
    seen.data = data;
    seen.nbytes = nbytes;
    notify(seen);
  }
  if (!is_among(kind, read_kinds)) return;
  RbEvent event{};
  event.kind = kind;
  event.backend = backend;
  event.device = device;
  event.data = data;
  event.nbytes = nbytes;
  record_event(event);
}

RbEvents* open_events(uint32_t kinds) {
  if (!kinds || kinds & ~kInRing) {
    fail(RB_E_ARG,
         "events_open: expected a mask of RB_EVENT_* of calls and memory (at most %u), got %u",
         kInRing, kinds);
  }
  Ring& all = ring();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (!all.events) all.events = std::make_unique<RbEvent[]>(kCapacity);
  all.readers.push_back(std::make_unique<RbEvents>(RbEvents{kinds, all.end}));
  all.update_kinds();
  return all.readers.back().get();
}

RbEvents& need_open(RbEvents* reader, const char* what) {
  Ring& all = ring();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& open : all.readers) {
    if (open.get() == reader) return *reader;
  }
  fail(RB_E_ARG, "%s: the reader is not open", what);
}

uint32_t read_events(RbEvents& reader, void* out, uint32_t size, uint32_t max, uint64_t* lost) {
  Ring& all = ring();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const uint64_t oldest = all.end > kCapacity ? all.end - kCapacity : 0;
  *lost = oldest > reader.next ? oldest - reader.next : 0;
  reader.next = std::max(reader.next, oldest);
  uint32_t count = 0;
  for (; count < max && reader.next < all.end; ++reader.next) {
    const RbEvent& event = all.events[reader.next % kCapacity];
    if (!(event.kind & reader.kinds)) continue;
    char* const to = static_cast<char*>(out) + uint64_t{count} * size;
    std::memcpy(to, &event, std::min<size_t>(size, sizeof event));
    if (size > sizeof event) std::memset(to + sizeof event, 0, size - sizeof event);
    ++count;
  }
  return count;
}

void close_events(RbEvents& reader) {
  Ring& all = ring();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto own = std::find_if(all.readers.begin(), all.readers.end(),
                                [&](const auto& open) { return open.get() == &reader; });
  all.readers.erase(own);
  all.update_kinds();
  if (all.readers.empty()) all.events.reset();
}

// A pair of fn and self keeps its place when it ends: a thread may be about to call it.
void observe(uint32_t kinds, RbObserveFn fn, void* self) {
  constexpr uint32_t kAll =
      kInRing | RB_EVENT_RANGE_BEGIN | RB_EVENT_RANGE_END | RB_EVENT_NODE | RB_EVENT_LAUNCH;
  if (kinds & ~kAll) {
    fail(RB_E_ARG, "observe: expected a mask of RB_EVENT_* (at most %u), got %u", kAll, kinds);
  }
  const std::lock_guard<std::mutex> lock(observers_mutex);
  Observer* place = nullptr;
  for (Observer& o : observers) {
    if (o.fn.load() == fn && o.self.load() == self) place = &o;
  }
  for (Observer& o : observers) {
    if (!place && kinds && !o.fn.load()) place = &o;
  }
  if (!place) {
    if (!kinds) return;
    fail(RB_E_STATE, "observe: this process has had %d observers, the most it can have",
         kObservers);
  }
  place->self.store(self);
  place->fn.store(fn, std::memory_order_release);
  place->kinds.store(kinds);
  uint32_t all = 0;
  for (const Observer& o : observers) all |= o.kinds.load();
  set_kinds(observed_kinds, all);
}

}  // namespace rabbet

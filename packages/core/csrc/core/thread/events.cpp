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

std::atomic<uint32_t> read_kinds{0};

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
    read_kinds.store(kinds, std::memory_order_relaxed);
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

void record_memory_event(uint32_t kind, int backend, int device, const void* data,
                         uint64_t nbytes) {
  RbEvent event{};
  event.kind = kind;
  event.backend = backend;
  event.device = device;
  event.data = data;
  event.nbytes = nbytes;
  record_event(event);
}

RbEvents* open_events(uint32_t kinds) {
  constexpr uint32_t kAll = RB_EVENT_OP_BEGIN | RB_EVENT_OP_END | RB_EVENT_ALLOC | RB_EVENT_FREE;
  if (!kinds || kinds & ~kAll)
    fail(RB_E_ARG, "events_open: expected a mask of RB_EVENT_*, got %u", kinds);
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

}  // namespace rabbet

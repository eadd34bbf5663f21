#include "recorder.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <new>

#include "log.h"
#include "signature.h"
#include "stacks.h"

namespace profiler {

namespace {

constexpr uint32_t kKinds =
    RB_EVENT_OP_BEGIN | RB_EVENT_OP_END | RB_EVENT_RANGE_BEGIN | RB_EVENT_RANGE_END | RB_EVENT_NODE;

const RbTrace* table = nullptr;
std::atomic<bool> recording{false};
std::atomic<bool> has_room{true};
std::atomic<uint64_t> session{0};
std::atomic<uint32_t> wanted{0};

uint64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// An entry being written. Times are read outside of the work of recording where possible: after it
// at a begin, before it at an end.
class Writer {
 public:
  Writer(Log& log, Kind kind, const RbObserved& event, size_t most)
      : log_(log), entry_(reinterpret_cast<Entry*>(log.room(most))), at_(words()) {
    entry_->id = event.id;
    entry_->op = event.op;
    entry_->kind = kind;
    entry_->has = 0;
    entry_->flags = static_cast<uint8_t>(event.flags);
    entry_->failed = event.status != RB_OK;
  }
  void add_memory() {
    entry_->has |= kHasMemory;
    int64_t host = 0, devices = 0;
    table->thread_bytes(&host, &devices);
    *at_++ = static_cast<uint64_t>(host);
    *at_++ = static_cast<uint64_t>(devices);
  }
  void add_stack(uint64_t stack) {
    entry_->has |= kHasStack;
    *at_++ = stack;
  }
  void add_text(const char* text, size_t length) {
    entry_->has |= kHasText;
    *at_++ = length;
    std::memcpy(at_, text, length);
    at_ += (length + 7) / 8;
  }
  void add_shapes(const RbValue* values, int32_t n, size_t length) {
    entry_->has |= kHasShapes;
    write_signature(values, n, at_);
    at_ += length;
  }
  void add_place(const RbObserved& event) {
    entry_->has |= kHasShapes;
    *at_++ = static_cast<uint64_t>(event.backend);
    *at_++ = static_cast<uint64_t>(event.device);
    *at_++ = reinterpret_cast<uintptr_t>(event.data);
  }
  void set_id(const void* id) { entry_->id = reinterpret_cast<uintptr_t>(id); }
  void publish(uint64_t time) {
    entry_->time = time;
    entry_->words = static_cast<uint32_t>(at_ - words());
    log_.publish(entry_->words);
  }

 private:
  uint64_t* words() const { return reinterpret_cast<uint64_t*>(entry_) + kEntryWords; }

  Log& log_;
  Entry* const entry_;
  uint64_t* at_;
};

constexpr size_t kFixedParts = 3;  // words of memory and stack

const void* first_tensor(const RbObserved& event) {
  return event.nvalues && event.values[0].tag == RB_TENSOR ? event.values[0].v.t : nullptr;
}

void count_depth(Log& log, bool begins) {
  if (begins) {
    ++log.depth;
  } else if (log.depth) {
    --log.depth;
  }
}

void write_call(Log& log, const RbObserved& event, uint32_t parts, bool begins) {
  const uint64_t ended = begins ? 0 : now();
  const uint64_t stack = begins && (parts & kStacks) && !log.depth ? current_stack() : 0;
  count_depth(log, begins);
  const bool has_shapes = parts & (begins ? kShapes : kResults);
  const size_t shapes = has_shapes ? signature_words(event.values, event.nvalues) : 0;
  Writer entry(log, begins ? Kind::kCallBegin : Kind::kCallEnd, event, kFixedParts + shapes);
  if (event.flags & RB_CALL_OUT) entry.set_id(first_tensor(event));
  if (parts & kMemory) entry.add_memory();
  if (stack) entry.add_stack(stack);
  if (has_shapes) entry.add_shapes(event.values, event.nvalues, shapes);
  entry.publish(begins ? now() : ended);
}

void write_range(Log& log, const RbObserved& event, uint32_t parts, bool begins) {
  const uint64_t ended = begins ? 0 : now();
  const size_t length = begins && event.text ? std::strlen(event.text) : 0;
  const bool by_user = event.flags == RB_RANGE_USER || event.flags == RB_RANGE_FRAMEWORK;
  const uint64_t stack = begins && (parts & kStacks) && by_user ? current_stack() : 0;
  if (event.flags == RB_RANGE_NODE) count_depth(log, begins);  // calls inside have the node's stack
  Writer entry(log, begins ? Kind::kRangeBegin : Kind::kRangeEnd, event,
               kFixedParts + 1 + (length + 7) / 8);
  if (parts & kMemory) entry.add_memory();
  if (stack) entry.add_stack(stack);
  if (begins) entry.add_text(event.text, length);
  entry.publish(begins ? now() : ended);
}

void write_launch(Log& log, const RbObserved& event) {
  const size_t length = std::strlen(event.text);
  Writer entry(log, Kind::kLaunch, event, 1 + (length + 7) / 8 + kLaunchWords);
  entry.add_text(event.text, length);
  entry.add_place(event);
  entry.publish(now());
}

// Bytes that the thread has freed since its last event.
void read_memory() {
  Writer entry(own_log(session.load()), Kind::kReading, RbObserved{}, kFixedParts);
  entry.add_memory();
  entry.publish(now());
}

void write(const RbObserved* event) {
  Log& log = own_log(session.load(std::memory_order_relaxed));
  // Once for an entry: another recording may begin meanwhile.
  const uint32_t parts = wanted.load(std::memory_order_relaxed);
  switch (event->kind) {
    case RB_EVENT_OP_BEGIN:
    case RB_EVENT_OP_END:
      return write_call(log, *event, parts, event->kind == RB_EVENT_OP_BEGIN);
    case RB_EVENT_RANGE_BEGIN:
    case RB_EVENT_RANGE_END:
      return write_range(log, *event, parts, event->kind == RB_EVENT_RANGE_BEGIN);
    case RB_EVENT_NODE:
      return Writer(log, Kind::kNode, *event, 0).publish(0);
    case RB_EVENT_LAUNCH:
      return write_launch(log, *event);
    default:
      return;
  }
}

void observe(void*, const RbObserved* event) {
  if (!recording.load(std::memory_order_relaxed)) return;
  try {
    write(event);
  } catch (const std::bad_alloc&) {
    has_room.store(false);
    recording.store(false);
  }
}

void in_child() { recording.store(false); }

}  // namespace

void start(const RbTrace* trace, uint32_t parts) {
  static const int once = pthread_atfork(nullptr, nullptr, in_child);
  static_cast<void>(once);
  table = trace;
  wanted.store(parts);
  has_room.store(true);
  session.fetch_add(1);
  resume();
}

void resume() {
  recording.store(true);
  table->observe(kKinds | (wanted.load() & kDevices ? +RB_EVENT_LAUNCH : 0u), observe, &session);
}

void pause() {
  table->observe(0, observe, &session);
  recording.store(false);
}

bool is_recording() { return recording.load(); }

uint64_t stop(bool* complete) {
  if (is_recording() && (wanted.load() & kMemory)) read_memory();
  pause();
  *complete = has_room.load();
  return session.load();
}

}  // namespace profiler

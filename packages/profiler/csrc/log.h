// The log of a thread: entries in chunks that only their thread appends to, without a lock.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace profiler {

enum class Kind : uint8_t {
  kCallBegin,
  kCallEnd,
  kRangeBegin,
  kRangeEnd,
  kNode,
  kReading,
  kLaunch
};

enum Has : uint8_t {  // which parts follow an entry, in this order
  kHasMemory = 1,     // 2 words: bytes on the host and on devices
  kHasStack = 2,      // 1 word: the number of a Python stack
  kHasText = 4,       // 1 word for the length, and the characters
  kHasShapes = 8      // the rest: see signature.h; of a launch see kLaunchWords
};

struct Entry {
  uint64_t time;  // nanoseconds of the monotonic clock
  uint64_t
      id;  // of ranges, nodes, launches; of a call's begin the first tensor, of its end the result
  const void* op;
  uint32_t words;  // 8 bytes each, the entry itself not counted
  Kind kind;
  uint8_t has;    // Has
  uint8_t flags;  // RB_RANGE_* or RB_CALL_*
  uint8_t failed;
};
static_assert(sizeof(Entry) == 32);
constexpr size_t kEntryWords = sizeof(Entry) / 8;
constexpr size_t kLaunchWords = 3;  // backend, device, stream

class Log {
 public:
  explicit Log(uint64_t session);
  ~Log() { clear(); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  /// Room for an entry with at most `words` more; only the log's thread.
  inline uint64_t* room(size_t words) {
    const size_t needed = kEntryWords + words;
    if (__builtin_expect(!last_ || last_->capacity - end_ < needed, 0)) grow(needed);
    return last_->words + end_;
  }
  /// Make the words written into the room visible to readers.
  inline void publish(size_t words) {
    end_ += kEntryWords + words;
    last_->used.store(end_, std::memory_order_release);
  }
  /// Call fn(entry, words that follow it) for all published entries; any thread.
  template <class Fn>
  void each(Fn&& fn) const {
    for (const Chunk* c = first_.load(std::memory_order_acquire); c;
         c = c->next.load(std::memory_order_acquire)) {
      const size_t used = c->used.load(std::memory_order_acquire);
      for (size_t at = 0; at < used;) {
        const auto& entry = *reinterpret_cast<const Entry*>(c->words + at);
        fn(entry, c->words + at + kEntryWords);
        at += kEntryWords + entry.words;
      }
    }
  }
  /// Drop all entries; only the log's thread, or when it has ended.
  void clear();

  uint64_t session;               // the recording that the entries belong to
  const int64_t thread;           // the system's number
  int depth = 0;                  // open calls and backward nodes
  std::atomic<bool> dead{false};  // its thread has ended

 private:
  struct Chunk {
    std::atomic<Chunk*> next{nullptr};
    std::atomic<size_t> used{0};
    size_t capacity = 0;
    uint64_t words[];
  };
  void grow(size_t needed);

  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;
  size_t end_ = 0;
};

/// The log of this thread, empty at its first use in a recording.
Log& own_log(uint64_t session);
/// All logs with entries of a recording.
std::vector<Log*> logs_of(uint64_t session);
/// Free the logs of ended threads, and empty the one of this thread.
void drop_logs();

}  // namespace profiler

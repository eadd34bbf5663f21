#include "log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

namespace profiler {

namespace {

constexpr size_t kChunkWords = 1 << 13;

std::mutex mutex;
std::vector<Log*>& all_logs() {
  static auto& logs = *new std::vector<Log*>;
  return logs;
}

thread_local Log* own __attribute__((tls_model("initial-exec"))) = nullptr;

struct AtThreadEnd {
  ~AtThreadEnd() {
    if (own) own->dead.store(true);
    own = nullptr;
  }
};

[[gnu::noinline]] Log& begin_log(uint64_t session) {
  if (!own) {
    static thread_local AtThreadEnd at_end;
    static_cast<void>(at_end);
    own = new Log(session);
    const std::lock_guard<std::mutex> lock(mutex);
    all_logs().push_back(own);
    return *own;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  own->clear();
  own->session = session;
  return *own;
}

}  // namespace

Log::Log(uint64_t session) : session(session), thread(syscall(SYS_gettid)) {}

void Log::grow(size_t needed) {
  const size_t capacity = std::max(kChunkWords, needed);
  auto* chunk = static_cast<Chunk*>(std::malloc(sizeof(Chunk) + capacity * 8));
  if (!chunk) throw std::bad_alloc();
  new (chunk) Chunk;
  chunk->capacity = capacity;
  if (last_) {
    last_->next.store(chunk, std::memory_order_release);
  } else {
    first_.store(chunk, std::memory_order_release);
  }
  last_ = chunk;
  end_ = 0;
}

void Log::clear() {
  Chunk* chunk = first_.exchange(nullptr);
  while (chunk) {
    Chunk* const next = chunk->next.load();
    std::free(chunk);
    chunk = next;
  }
  last_ = nullptr;
  end_ = 0;
  depth = 0;
}

Log& own_log(uint64_t session) {
  if (__builtin_expect(!own || own->session != session, 0)) return begin_log(session);
  return *own;
}

std::vector<Log*> logs_of(uint64_t session) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Log*> found;
  for (Log* log : all_logs()) {
    if (log->session == session) found.push_back(log);
  }
  return found;
}

void drop_logs() {
  const std::lock_guard<std::mutex> lock(mutex);
  auto& logs = all_logs();
  const auto dead = std::partition(logs.begin(), logs.end(), [](Log* log) { return !log->dead; });
  for (auto at = dead; at != logs.end(); ++at) delete *at;
  logs.erase(dead, logs.end());
  if (own) own->clear();
}

}  // namespace profiler

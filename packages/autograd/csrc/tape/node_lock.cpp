#include "node_lock.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <new>

namespace tape {

std::atomic<int32_t> waiting_threads{0};
thread_local uint64_t own_user __attribute__((tls_model("initial-exec"))) = 0;

namespace {

std::mutex mutex;
std::condition_variable freed;
std::atomic<uint32_t> next_thread{1};
std::atomic<uint64_t> forks{0};

// A forked child has only the thread that forked: nobody waits in it, and nobody else holds a node.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
  new (&mutex) std::mutex;
  new (&freed) std::condition_variable;
  waiting_threads.store(0);
  forks.fetch_add(1);
  own_user = 0;
});

bool left_by_a_fork(uint64_t user) { return user >> 32 != forks.load(std::memory_order_relaxed); }

}  // namespace

uint64_t new_user() { return own_user = forks.load() << 32 | next_thread++; }

void wait_for(Node* n, uint64_t me) {
  std::unique_lock<std::mutex> lock(mutex);
  waiting_threads.fetch_add(1);
  for (;;) {
    uint64_t user = 0;
    if (n->user.compare_exchange_strong(user, me, std::memory_order_acquire)) break;
    if (left_by_a_fork(user) &&
        n->user.compare_exchange_strong(user, me, std::memory_order_acquire))
      break;
    freed.wait_for(lock, std::chrono::milliseconds(1));
  }
  waiting_threads.fetch_sub(1);
}

void wake_waiting() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
  }
  freed.notify_all();
}

}  // namespace tape

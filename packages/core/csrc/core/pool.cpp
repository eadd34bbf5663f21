// One claim-based thread pool. The caller and the workers claim chunks; the caller never waits for
// a worker that has not claimed anything, so a busy machine cannot stall it. Inner regions run
// inline.
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "error.h"
#include "runtime.h"
#include "thread_state.h"

namespace rabbet {

namespace {

constexpr int kMaxThreads = 256;
constexpr int kChunksPerThread = 4;
constexpr int kSpins = 2000;  // about 50 us, with a yield every 64

using Body = void (*)(int64_t, int64_t, void*);

struct Job {
  // High half: number of the region; low half: next chunk to claim. A claim by compare-and-swap
  // fails when the region it was read for is over, so a late worker can never run an old body.
  std::atomic<uint64_t> claim{0};
  std::atomic<int64_t> n{0};
  std::atomic<uint32_t> chunks{0}, done{0};
  std::atomic<Body> body{nullptr};
  std::atomic<void*> ctx{nullptr};
};

struct Pool {
  Job job;
  std::atomic<uint32_t> epoch{0};  // futex word: changes when there is work
  std::atomic<int> sleeping{0};
  std::atomic<bool> busy{false};
  std::atomic<int> threads{0};  // wanted, callers included
  int workers = 0;              // started; guarded by mutex
  std::mutex mutex;
};

Pool* pool = new Pool;  // replaced in a forked child, whose workers are gone

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void pause_once(int i) {
  if (i % 64 == 63) {
    sched_yield();
  } else {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

// Claim and run chunks of the present region until none is left.
void work(Job& job) {
  for (;;) {
    uint64_t claim = job.claim.load(std::memory_order_acquire);
    const uint32_t chunk = static_cast<uint32_t>(claim),
                   chunks = job.chunks.load(std::memory_order_relaxed);
    if (chunk >= chunks) return;
    const int64_t n = job.n.load(std::memory_order_relaxed);
    const Body body = job.body.load(std::memory_order_relaxed);
    void* ctx = job.ctx.load(std::memory_order_relaxed);
    if (!job.claim.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) continue;
    const int64_t begin = n / chunks * chunk + std::min<int64_t>(chunk, n % chunks);
    const int64_t end = begin + n / chunks + (chunk < n % chunks ? 1 : 0);
    body(begin, end, ctx);
    job.done.fetch_add(1, std::memory_order_acq_rel);
  }
}

void worker_main(Pool* p) {
  thread_state().in_parallel = 1;
  uint32_t seen = p->epoch.load(std::memory_order_acquire);
  for (;;) {
    work(p->job);
    uint32_t now = seen;
    for (int i = 0; i < kSpins && now == seen; ++i) {
      pause_once(i);
      now = p->epoch.load(std::memory_order_acquire);
    }
    if (now == seen) {
      p->sleeping.fetch_add(1);
      futex_wait(&p->epoch, seen);
      p->sleeping.fetch_sub(1);
      now = p->epoch.load(std::memory_order_acquire);
    }
    seen = now;
  }
}

int default_threads() {
  for (const char* name : {"RABBET_NUM_THREADS", "OMP_NUM_THREADS"}) {
    if (const char* text = std::getenv(name)) {
      const int n = std::atoi(text);
      if (n > 0) return std::min(n, kMaxThreads);
    }
  }
  cpu_set_t set;
  const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::clamp(n, 1, kMaxThreads);
}

void reset_in_child() { pool = new Pool; }

void start_workers(Pool* p, int wanted) {
  std::lock_guard<std::mutex> lock(p->mutex);
  static const int registered = pthread_atfork(nullptr, nullptr, reset_in_child);
  (void)registered;
  while (p->workers < wanted - 1) {
    std::thread(worker_main, p).detach();
    ++p->workers;
  }
}

}  // namespace

int num_threads() {
  int n = pool->threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    pool->threads.store(n);
  }
  return n;
}

void set_num_threads(int n) {
  if (n < 1 || n > kMaxThreads)
    fail(RB_E_ARG, "set_num_threads: expected 1 to %d, got %d", kMaxThreads, n);
  pool->threads.store(n);
}

void parallel_for(int64_t n, int64_t grain, Body body, void* ctx) {
  if (n <= 0) return;
  const int64_t pieces = grain > 0 ? (n + grain - 1) / grain : n;
  ThreadState& state = thread_state();
  Pool* p = pool;
  const int threads = pieces > 1 && !state.in_parallel ? num_threads() : 1;
  bool idle = false;
  if (threads == 1 || !p->busy.compare_exchange_strong(idle, true, std::memory_order_acquire)) {
    body(0, n, ctx);
    return;
  }
  if (p->workers < threads - 1) start_workers(p, threads);
  const uint32_t chunks =
      static_cast<uint32_t>(std::min<int64_t>(pieces, int64_t{threads} * kChunksPerThread));
  Job& job = p->job;
  // Close the old region (no chunk can be claimed), describe the new one, then open it.
  const uint64_t region = (job.claim.load(std::memory_order_relaxed) >> 32) + 1;
  job.claim.store(region << 32 | 0xffffffffu, std::memory_order_release);
  job.n.store(n, std::memory_order_relaxed);
  job.chunks.store(chunks, std::memory_order_relaxed);
  job.done.store(0, std::memory_order_relaxed);
  job.body.store(body, std::memory_order_relaxed);
  job.ctx.store(ctx, std::memory_order_relaxed);
  job.claim.store((region + 1) << 32, std::memory_order_release);
  p->epoch.fetch_add(1, std::memory_order_acq_rel);
  if (p->sleeping.load() > 0) futex_wake_all(&p->epoch);

  state.in_parallel = 1;
  work(job);
  for (int i = 0; job.done.load(std::memory_order_acquire) != chunks; ++i) pause_once(i);
  state.in_parallel = 0;
  p->busy.store(false, std::memory_order_release);
}

}  // namespace rabbet

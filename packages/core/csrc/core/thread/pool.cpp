// One claim-based thread pool. The caller and the workers claim chunks, each first those of its own
// part of the range, so that repeated regions find their memory in the same core's cache. The
// caller never waits for a worker that has not claimed anything, so a busy machine cannot stall it.
// Inner regions, and those of a thread that calls while another one's region runs, run inline.
#include "thread/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>

#include "thread/error.h"
#include "thread/plugin_names.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

constexpr int kMaxThreads = 256;
constexpr int kChunksPerThread = 4;
constexpr int kPausesPerYield = 64;
constexpr int64_t kAwakeNs = 100'000;  // how long a worker without work looks out for more
// To wake a sleeping worker costs the caller 6 us, and the worker comes 15 to 25 us later.
constexpr int64_t kWorthWakingNs = 50'000;
constexpr int64_t kWorthWakingPieces = 12;  // a piece of `grain` is 5 us or more
constexpr int64_t kAligned = 64;            // boundaries of long chunks: whole cache lines

using Body = void (*)(int64_t, int64_t, void*);

struct Job {
  // High half: number of the region; low half: next chunk of this part to claim. A claim by
  // compare-and-swap fails when the region it was read for is over, so a late worker can never run
  // an old body.
  struct alignas(64) Part {
    std::atomic<uint64_t> claim{0};
  } part[kMaxThreads];
  std::atomic<int64_t> n{0};
  std::atomic<uint32_t> parts{0}, chunks{0}, done{0};
  std::atomic<Body> body{nullptr};
  std::atomic<void*> ctx{nullptr};
  // The first exception that the body of the region let through.
  std::atomic<int32_t> code{RB_OK};
  std::string message;  // written by who has set `code`, read when all is done

  void store_claims(uint32_t region, uint32_t number, bool open) {
    for (uint32_t i = 0; i < number; ++i) {
      const uint64_t next = open ? first_chunk(i) : kNone;
      part[i].claim.store(uint64_t{region} << 32 | next, std::memory_order_release);
    }
  }
  uint32_t first_chunk(uint32_t of_part) const {
    const uint32_t number = parts.load(std::memory_order_relaxed);
    return static_cast<uint32_t>(uint64_t{chunks.load(std::memory_order_relaxed)} * of_part /
                                 number);
  }
  static constexpr uint32_t kNone = 0xffffffffu;
};

struct Pool {
  Job job;
  std::atomic<uint32_t> epoch{0};  // futex word: changes when there is something to see
  std::atomic<int> sleeping{0};
  std::atomic<bool> busy{false};
  std::atomic<int> threads{0};            // wanted, callers included
  std::atomic<int> workers{0};            // running
  std::atomic<bool> runs[kMaxThreads]{};  // which of them
  // Of the thread that has set `busy`:
  uint32_t region = 0;
  int64_t unhelped_ns = 0;  // work that the caller did alone while workers slept, since a pause
  int64_t last_end_ns = 0;
  // What bodies cost the last time: a few long pieces are then known to be worth a worker.
  struct Known {
    Body body = nullptr;
    double ns_per_item = 0;
  } known[64];
  Known& known_of(Body body) {
    return known[(reinterpret_cast<uintptr_t>(body) >> 4) * 0x9e3779b97f4a7c15ull >> 58];
  }
};

Pool* pool = new Pool;  // replaced in a forked child, whose workers are gone

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

// The yields let others have the processor: who waits here may wait for one of them.
void pause_once(int i) {
  if (i % kPausesPerYield == kPausesPerYield - 1) {
    sched_yield();
  } else {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }
}

int64_t chunk_begin(int64_t n, uint32_t chunks, uint32_t chunk) {
  if (chunk == chunks) return n;
  const int64_t begin = n / chunks * chunk + std::min<int64_t>(chunk, n % chunks);
  return n / chunks >= 16 * kAligned ? begin / kAligned * kAligned : begin;
}

[[gnu::cold]] int32_t store_body_error(Body body) {
  return store_thrown("a body of parallel_for of " + plugin_of(body));
}

// In a `catch` block: leave the error to the thread that began the region.
[[gnu::cold]] void keep_error(Job& job, Body body) {
  const int32_t code = store_body_error(body);
  int32_t none = RB_OK;
  if (job.code.compare_exchange_strong(none, code)) job.message = thread_state().message;
}

// Claim and run one chunk of a part; false if none is left.
bool run_chunk_of(Job& job, uint32_t part) {
  std::atomic<uint64_t>& next = job.part[part].claim;
  for (;;) {
    uint64_t claim = next.load(std::memory_order_acquire);
    const uint32_t chunk = static_cast<uint32_t>(claim);
    if (chunk >= job.first_chunk(part + 1)) return false;
    const uint32_t chunks = job.chunks.load(std::memory_order_relaxed);
    const int64_t n = job.n.load(std::memory_order_relaxed);
    const Body body = job.body.load(std::memory_order_relaxed);
    void* ctx = job.ctx.load(std::memory_order_relaxed);
    if (!next.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) continue;
    try {
      body(chunk_begin(n, chunks, chunk), chunk_begin(n, chunks, chunk + 1), ctx);
    } catch (...) {
      keep_error(job, body);
    }
    job.done.fetch_add(1, std::memory_order_acq_rel);
    return true;
  }
}

// Claim and run one chunk of the present region, of the own part while it has any; false if none
// is left.
bool run_chunk(Job& job, uint32_t own) {
  const uint32_t parts = job.parts.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < parts; ++i) {
    if (run_chunk_of(job, (own + i) % parts)) return true;
  }
  return false;
}

// Wait until the epoch is another one than `seen`: awake for a while, then asleep.
uint32_t await_epoch(Pool* p, uint32_t seen) {
  const int64_t asleep_from = now_ns() + kAwakeNs;
  for (int i = 0;; ++i) {
    const uint32_t now = p->epoch.load(std::memory_order_acquire);
    if (now != seen) return now;
    pause_once(i);
    if (i % kPausesPerYield == kPausesPerYield - 1 && now_ns() > asleep_from) break;
  }
  p->sleeping.fetch_add(1);
  futex_wait(&p->epoch, seen);
  p->sleeping.fetch_sub(1);
  return p->epoch.load(std::memory_order_acquire);
}

void worker_main(Pool* p, int index) {
  pthread_setname_np(pthread_self(), "rabbet");
  make_worker_state().in_parallel = 1;
  uint32_t seen = p->epoch.load(std::memory_order_acquire);
  while (index < p->threads.load(std::memory_order_relaxed) - 1) {
    while (run_chunk(p->job, static_cast<uint32_t>(index) + 1)) {
    }
    seen = await_epoch(p, seen);
  }
  // If more threads are wanted again by now, the next region sees that this one is gone.
  p->workers.fetch_sub(1);
  p->runs[index].store(false, std::memory_order_release);
}

// Processors that the process may use: by affinity and by the control group's quota.
int available_processors() {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    long long quota = 0, period = 0;
    if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
      n = static_cast<int>(std::min<long long>(n, (quota + period - 1) / period));
    std::fclose(file);
  }
  return n;
}

int default_threads() {
  for (const char* name : {"RABBET_NUM_THREADS", "OMP_NUM_THREADS"}) {
    if (const char* text = std::getenv(name)) {
      const int n = std::atoi(text);
      if (n > 0) return std::min(n, kMaxThreads);
    }
  }
  return std::clamp(available_processors(), 1, kMaxThreads);
}

// The child has only the thread that forked; whatever the old pool was doing is not its business.
void reset_in_child() {
  Pool* fresh = new Pool;
  fresh->threads.store(pool->threads.load());
  pool = fresh;
}

// Only the thread that has set `busy` calls this.
void start_workers(Pool* p, int wanted) {
  static const int registered = pthread_atfork(nullptr, nullptr, reset_in_child);
  (void)registered;
  // Signals are for the program's own threads: a handler that runs here would not interrupt them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < wanted - 1; ++i) {
    if (p->runs[i].load(std::memory_order_acquire)) continue;
    p->runs[i].store(true, std::memory_order_relaxed);
    p->workers.fetch_add(1);
    try {
      std::thread(worker_main, p, i).detach();
    } catch (const std::system_error&) {  // no more threads: those there are do the work
      p->runs[i].store(false, std::memory_order_relaxed);
      p->workers.fetch_sub(1);
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void wake(Pool* p, uint32_t chunks) {
  const int asleep = p->sleeping.load();
  if (asleep > 0) futex_wake(&p->epoch, std::min(asleep, static_cast<int>(chunks) - 1));
}

// The caller's share of a region. Where workers sleep and nothing tells that it is long enough to
// wake them, each chunk tells more. Short regions in quick succession count together.
void work(Pool* p, Body body, int64_t n, int64_t pieces, uint32_t chunks) {
  const int64_t began = now_ns();
  if (began - p->last_end_ns > kAwakeNs) p->unhelped_ns = 0;
  Pool::Known& known = p->known_of(body);
  const double expected = known.body == body ? known.ns_per_item * static_cast<double>(n) : 0;
  const bool asleep = p->sleeping.load() != 0;
  bool helped = !asleep || pieces >= kWorthWakingPieces ||
                static_cast<double>(p->unhelped_ns) + expected >= kWorthWakingNs;
  if (asleep && helped) wake(p, chunks);
  int64_t now = began;
  uint32_t mine = 0;
  while (run_chunk(p->job, 0)) {
    now = now_ns();
    ++mine;
    if (helped) continue;
    const int64_t left =
        (now - began) / mine * (chunks - p->job.done.load(std::memory_order_relaxed));
    if (left > 0 && p->unhelped_ns + (now - began) + left >= kWorthWakingNs) {
      wake(p, chunks);
      helped = true;
    }
  }
  p->unhelped_ns = helped ? 0 : p->unhelped_ns + (now - began);
  p->last_end_ns = now;
  if (mine)
    known = {body, static_cast<double>(now - began) * chunks / mine / static_cast<double>(n)};
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
  Pool* p = pool;
  p->threads.store(n);
  // Workers that are too many leave when they see this.
  p->epoch.fetch_add(1);
  if (p->sleeping.load() > 0) futex_wake(&p->epoch, kMaxThreads);
}

int32_t parallel_for(int64_t n, int64_t grain, Body body, void* ctx) {
  if (n <= 0) return RB_OK;
  const int64_t pieces = grain > 0 ? (n - 1) / grain + 1 : n;
  ThreadState& state = thread_state();
  Pool* p = pool;
  const int threads = pieces > 1 && !state.in_parallel ? num_threads() : 1;
  bool idle = false;
  if (threads == 1 || !p->busy.compare_exchange_strong(idle, true, std::memory_order_acquire)) {
    try {
      body(0, n, ctx);
    } catch (...) {
      return store_body_error(body);
    }
    return RB_OK;
  }
  if (p->workers.load(std::memory_order_relaxed) < threads - 1) start_workers(p, threads);
  const uint32_t chunks =
      static_cast<uint32_t>(std::min<int64_t>(pieces, int64_t{threads} * kChunksPerThread));
  Job& job = p->job;
  // Close the old region (no chunk can be claimed), describe the new one, then open it.
  const uint32_t region = p->region += 2, parts = static_cast<uint32_t>(threads);
  job.store_claims(region, std::max(parts, job.parts.load(std::memory_order_relaxed)), false);
  job.parts.store(parts, std::memory_order_relaxed);
  job.n.store(n, std::memory_order_relaxed);
  job.chunks.store(chunks, std::memory_order_relaxed);
  job.done.store(0, std::memory_order_relaxed);
  job.body.store(body, std::memory_order_relaxed);
  job.ctx.store(ctx, std::memory_order_relaxed);
  job.code.store(RB_OK, std::memory_order_relaxed);
  job.store_claims(region + 1, parts, true);
  p->epoch.fetch_add(1);

  state.in_parallel = 1;
  work(p, body, n, pieces, chunks);
  for (int i = 0; job.done.load(std::memory_order_acquire) != chunks; ++i) pause_once(i);
  state.in_parallel = 0;
  int32_t code = job.code.load(std::memory_order_relaxed);
  if (__builtin_expect(code != RB_OK, 0)) code = set_error(code, job.message);
  p->busy.store(false, std::memory_order_release);
  return code;
}

}  // namespace rabbet

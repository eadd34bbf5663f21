#include "thread/deferral.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <vector>

#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

std::atomic<const Deferral*> deferral{nullptr};

namespace {
std::atomic<int32_t> threads{0};

// One gate per key bit.
struct ReadGate {
  std::atomic<RbReadFn> fn{nullptr};
  std::atomic<void*> self{nullptr};
};
ReadGate gates[64];

void only_the_forking_thread() { threads.store(1); }
}  // namespace

std::atomic<int32_t> read_gates{0};

void set_read_gate(uint64_t layer, RbReadFn fn, void* self) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ReadGate& gate = gates[__builtin_ctzll(layer)];
  const bool was_set = gate.fn.exchange(nullptr) != nullptr;
  gate.self.store(self);
  gate.fn.store(fn);
  read_gates.fetch_add((fn != nullptr) - was_set);
}

void ask_read_gates(const RbTensor* t, const char* what) {
  const ThreadState& thread = thread_state();
  for (uint64_t on = thread.include & ~thread.exclude; on; on &= on - 1) {
    const ReadGate& gate = gates[__builtin_ctzll(on)];
    if (const RbReadFn fn = gate.fn.load(std::memory_order_acquire))
      check(fn(gate.self.load(), t, what));
  }
}

void make_ready_slow(const Deferral& d, const RbTensor* t, const char* what) {
  check(d.table.ready(d.table.self, t, what));
}

void set_deferral(uint64_t layer, const RbDeferral* table) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<const Deferral>> kept;  // a thread may be reading an old one
  const std::lock_guard lock(mutex);
  const Deferral* now = deferral.load();
  if (now && now->layer != layer)
    fail(RB_E_STATE, "defer: another layer defers calls, and only one can");
  if (!table) return deferral.store(nullptr);
  kept.push_back(std::make_unique<const Deferral>(Deferral{layer, *table}));
  deferral.store(kept.back().get());
}

int32_t using_threads() { return threads.load(); }

void thread_begins() {
  static const int registered = pthread_atfork(nullptr, nullptr, only_the_forking_thread);
  (void)registered;
  threads.fetch_add(1);
  if (const Deferral* d = deferral.load(); d && d->table.thread_begins)
    d->table.thread_begins(d->table.self);
}

void thread_ends() { threads.fetch_sub(1); }

}  // namespace rabbet

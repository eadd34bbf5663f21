#include "thread/thread_state.h"

#include <cstdlib>

#include "thread/deferral.h"
#include "thread/error.h"

namespace rabbet {

__thread ThreadState* thread_state_ __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

std::atomic<LiveCounts*> all_counts{nullptr};

void free_list(FreeBlock*& head) {
  while (head) {
    FreeBlock* next = head->next;
    std::free(head);
    head = next;
  }
}
void free_all(ThreadState& state) {
  free_list(state.free_tensors);
  for (FreeBlock*& head : state.free_blocks) free_list(head);
}

struct Cleaner {
  ThreadState* state = nullptr;
  bool worker = false;
  ~Cleaner() {
    if (!state) return;
    if (!worker) thread_ends();
    free_all(*state);
    if (state->foreign_del && state->error.foreign) state->foreign_del(state->error.foreign);
    delete state;
    thread_state_ = nullptr;
  }
};
thread_local Cleaner cleaner;

}  // namespace

namespace {
ThreadState* make_state() {
  auto* state = new ThreadState;
  state->error.struct_size = sizeof(RbError);
  state->live = new LiveCounts;
  state->live->next = all_counts.load();
  while (!all_counts.compare_exchange_weak(state->live->next, state->live)) {
  }
  thread_state_ = state;
  cleaner.state = state;
  return state;
}
}  // namespace

ThreadState* make_thread_state() {
  ThreadState* state = make_state();
  thread_begins();
  return state;
}

ThreadState& make_worker_state() {
  cleaner.worker = true;
  return *make_state();
}

LiveCounts* live_counts() { return all_counts.load(); }

}  // namespace rabbet

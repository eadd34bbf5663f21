#include "device/deleters.h"

#include <atomic>

#include "device/backends.h"
#include "thread/error.h"
#include "thread/plugin_names.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

struct Deletion {
  void (*del)(void*);
  void* ctx;
  Deletion* next;
};
std::atomic<Deletion*> due{nullptr};

void note_due(void* ctx) {
  auto* deletion = static_cast<Deletion*>(ctx);
  deletion->next = due.load(std::memory_order_relaxed);
  while (!due.compare_exchange_weak(deletion->next, deletion, std::memory_order_release,
                                    std::memory_order_relaxed)) {
  }
}

}  // namespace

void run_deleter(void (*del)(void*), void* ctx) noexcept {
  try {
    del(ctx);
  } catch (...) {
    log_thrown("the deleter of memory that " + plugin_of(del) + " gave to tensor_adopt");
  }
}

void delete_behind(int backend, int device, void* stream, void (*del)(void*), void* ctx) {
  auto* deletion = new Deletion{del, ctx, nullptr};
  if (!call_on_stream(backend, device, stream, note_due, deletion)) note_due(deletion);
  run_due_deleters();
}

void run_due_deleters() {
  // While the thread captures, what a deleter gives the device would be recorded.
  if (!due.load(std::memory_order_relaxed) || thread_state().capture) return;
  Deletion* next = due.exchange(nullptr, std::memory_order_acquire);
  while (Deletion* deletion = next) {
    next = deletion->next;
    run_deleter(deletion->del, deletion->ctx);
    delete deletion;
  }
}

}  // namespace rabbet

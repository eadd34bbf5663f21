// What a node saved, and a leaf's gradient, are used by one run at a time.
#pragma once
#include "node.h"

namespace tape {

/// Names this thread, in this process: a forked child's threads are others. 0: not yet asked for.
extern thread_local uint64_t own_user __attribute__((tls_model("initial-exec")));
uint64_t new_user();
inline uint64_t current_user() { return own_user ? own_user : new_user(); }

/// Wait until `n` is nobody's, or was that of a thread that a fork left behind; then it is `me`'s.
void wait_for(Node* n, uint64_t me);
void wake_waiting();
extern std::atomic<int32_t> waiting_threads;

/// Holds a node. A thread that holds it already takes it again: see is_nested. Nobody waits for
/// Python's lock with a thread that waits here: bindings give it up before a run.
class NodeLock {
 public:
  explicit NodeLock(Node* n) : n_(n), me_(current_user()) {
    nested_ = n->user.load(std::memory_order_relaxed) == me_;
    if (!nested_) close();
  }
  ~NodeLock() { open(); }
  NodeLock(const NodeLock&) = delete;
  NodeLock& operator=(const NodeLock&) = delete;

  /// Whether this thread is inside of another use of the node.
  bool is_nested() const { return nested_; }
  void open() {
    if (!closed_) return;
    closed_ = false;
    n_->user.store(0, std::memory_order_release);
    // One that began to wait just now may not be seen: it looks again by itself.
    if (__builtin_expect(waiting_threads.load(std::memory_order_relaxed), 0)) wake_waiting();
  }
  void close() {
    if (closed_ || nested_) return;
    uint64_t nobody = 0;
    if (!n_->user.compare_exchange_strong(nobody, me_, std::memory_order_acquire))
      wait_for(n_, me_);
    closed_ = true;
  }

 private:
  Node* const n_;
  const uint64_t me_;
  bool nested_ = false, closed_ = false;
};

}  // namespace tape

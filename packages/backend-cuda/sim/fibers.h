// Stacks that take turns on one thread.
#pragma once
#include <cstddef>
#include <vector>

namespace cusim {

/// A stack that runs a function, until it or the function switches elsewhere. Never destroyed.
class Fiber {
 public:
  Fiber(char* stack, size_t size, void (*entry)());
  /// Run this fiber from its beginning at the next switch; what it was doing is forgotten.
  void restart();

 private:
  friend class Fibers;
  char* stack_;
  size_t size_;
  void (*entry_)();
  void* state_ = nullptr;  // the stack pointer, or a ucontext_t
};

/// The fibers of one thread, and the thread's own stack.
class Fibers {
 public:
  explicit Fibers(void (*entry)());
  /// From the thread's own stack to a fiber, until one leaves.
  void enter(Fiber& fiber);
  /// From the running fiber to another.
  void jump(Fiber& fiber);
  /// From the running fiber back to the thread's own stack.
  void leave();
  Fiber& running() const { return *running_; }
  /// One that does nothing.
  Fiber& take();
  void give(Fiber& fiber) { idle_.push_back(&fiber); }
  /// All begin anew.
  void restart();
  const char* stacks() const { return stacks_; }
  size_t stacks_size() const;

 private:
  void (*entry_)();
  char* stacks_;
  std::vector<Fiber*> all_, idle_;
  Fiber* running_ = nullptr;
  void* own_ = nullptr;
};

}  // namespace cusim

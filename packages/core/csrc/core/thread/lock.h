// A lock for a few instructions at a time: taking and leaving it costs one atomic operation each.
#pragma once
#include <atomic>

namespace rabbet {

/// As std::mutex, for sections that never wait for anything. Who finds it taken tries again, and
/// lets other threads run meanwhile.
class Lock {
 public:
  void lock() {
    if (__builtin_expect(taken_.exchange(true, std::memory_order_acquire), 0)) wait();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  void wait();

  std::atomic<bool> taken_{false};
};

}  // namespace rabbet

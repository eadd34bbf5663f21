#include "thread/lock.h"

#include <chrono>
#include <thread>

namespace rabbet {

// Sleeps in the end: the thread that has it may be of a lower priority.
void Lock::wait() {
  constexpr int kTries = 200;
  int tries = 0;
  do {
    while (taken_.load(std::memory_order_relaxed)) {
      if (++tries < kTries) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  } while (taken_.exchange(true, std::memory_order_acquire));
}

}  // namespace rabbet

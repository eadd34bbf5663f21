// What is left open on a device, and chosen here: when streams run, and in which order blocks and
// threads do.
//
// CUSIM_SCHEDULE: lazy (streams run when something waits for them; what came first in a stream
// runs first), eager (at the call), or random:SEED. CUSIM_ORDER of blocks and threads: forward,
// reverse or random:SEED; of a random schedule it is random, too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>

namespace cusim {

class Schedule {
 public:
  Schedule();
  bool eager() const { return eager_; }
  bool random() const { return random_; }
  uint64_t below(uint64_t n) { return generator_() % n; }
  /// The i-th of n.
  uint64_t block(uint64_t i, uint64_t n) { return place(i, n, blocks_); }
  uint64_t thread(uint64_t i, uint64_t n) { return place(i, n, threads_); }
  /// Whether threads that have not begun run before those that may go on.
  bool starts_first() { return order_ == kRandom && generator_() % 2; }
  /// Whether threads take turns at their volatile accesses.
  bool interleaves() const { return order_ == kRandom; }
  /// Put the one of `n` that goes on first in front.
  void choose(uint32_t* first, size_t n) {
    if (order_ == kRandom) std::swap(first[0], first[below(n)]);
  }

 private:
  enum Order { kForward, kReverse, kRandom };
  struct Permutation {
    uint64_t start = 0, step = 1;
  };
  uint64_t place(uint64_t i, uint64_t n, Permutation& p);

  bool eager_ = false, random_ = false;
  Order order_ = kForward;
  std::mt19937_64 generator_;
  Permutation blocks_, threads_;
};

Schedule& schedule();

}  // namespace cusim

// The launches of a device that may not be done yet, for the text of errors that come later.
#pragma once
#include <atomic>
#include <string>

#include "driver/libraries.h"

namespace rbcuda {

/// The last launches; who is older counts as done. Threads may overwrite each other's entries: the
/// text of an error then lacks one.
class InFlight {
 public:
  /// `op` lives as long as the process.
  void add(CuStream stream, const char* op) {
    const unsigned at = next_.load(std::memory_order_relaxed);
    next_.store(at + 1, std::memory_order_relaxed);
    Launch& launch = ring_[at % kCount];
    launch.stream.store(stream, std::memory_order_relaxed);
    launch.op.store(op, std::memory_order_relaxed);
  }
  /// The stream, or all of the device, has done its work.
  void finish(CuStream stream);
  void finish_all();
  /// Names of operators, each once, oldest first: "exp, add".
  std::string names() const;

 private:
  static constexpr unsigned kCount = 64;
  struct Launch {
    std::atomic<CuStream> stream{nullptr};
    std::atomic<const char*> op{nullptr};
  };
  Launch ring_[kCount];
  std::atomic<unsigned> next_{0};
};

}  // namespace rbcuda

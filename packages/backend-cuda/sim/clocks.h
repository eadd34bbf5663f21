// Which work comes before which, by vector clocks: of each stream the number of its last command
// that is known to have come before. The host has one, too: what it enqueues comes after all work
// that it has waited for. Clocks follow from the calls alone, not from when streams run.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace cusim {

class Clock {
 public:
  uint32_t of(uint32_t stream) const { return stream < seen_.size() ? seen_[stream] : 0; }
  void set(uint32_t stream, uint32_t number);
  void join(const Clock& other);

 private:
  std::vector<uint32_t> seen_;
};

/// Something that a stream does: a kernel, a copy, a fill.
struct Command {
  uint32_t stream, number;  // the number-th of the stream
  Clock before;
  std::string what;
};

/// All of them, by number; the first is the host's own doings.
class Commands {
 public:
  Commands() { add({0, 0, {}, "the host"}); }
  uint32_t add(Command command);
  const Command& at(uint32_t command) const { return all_[command]; }
  /// Whether `first` is over before `second` begins.
  bool ordered(uint32_t first, uint32_t second) const {
    const Command& a = all_[first];
    return a.number <= all_[second].before.of(a.stream);
  }
  uint32_t new_stream() { return streams_++; }

 private:
  std::deque<Command> all_;
  uint32_t streams_ = 1;
};

Commands& commands();

}  // namespace cusim

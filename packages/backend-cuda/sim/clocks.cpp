#include "clocks.h"

#include <algorithm>

namespace cusim {

void Clock::set(uint32_t stream, uint32_t number) {
  if (stream >= seen_.size()) seen_.resize(stream + 1);
  seen_[stream] = number;
}

void Clock::join(const Clock& other) {
  if (other.seen_.size() > seen_.size()) seen_.resize(other.seen_.size());
  for (size_t i = 0; i < other.seen_.size(); ++i) seen_[i] = std::max(seen_[i], other.seen_[i]);
}

uint32_t Commands::add(Command command) {
  all_.push_back(std::move(command));
  return static_cast<uint32_t>(all_.size() - 1);
}

Commands& commands() {
  static auto* instance = new Commands;
  return *instance;
}

}  // namespace cusim

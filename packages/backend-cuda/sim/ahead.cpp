#include "ahead.h"

#include <cstring>
#include <deque>
#include <vector>

#include "check.h"
#include "launch.h"
#include "status.h"

namespace cusim {
namespace {

constexpr size_t kSize = 16;
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
struct Ahead {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> steps;
};
Ahead threads[1024];

// It may read and write at any time between the call and the wait: both are looked at twice.
void look_at(const Copy& copy, const void* site) {
  if (copy.bytes) access(copy.from, copy.bytes, kCusimRead, 0, site);
  access(copy.to, kSize, kCusimWrite, 1, site);
}

}  // namespace

void copy_ahead(void* shared, const void* from, int bytes) {
  if (bytes < 0 || bytes > static_cast<int>(kSize))
    stop(kLaunchFailed, "a copy ahead of " + std::to_string(bytes) + " bytes");
  if (reinterpret_cast<uintptr_t>(from) % kSize)
    stop(kMisaligned, "a copy ahead from an address that 16 does not divide");
  const Copy copy = {shared, from, static_cast<size_t>(bytes)};
  look_at(copy, __builtin_return_address(0));
  std::memset(shared, 0xff, kSize);
  threads[running.thread].open.push_back(copy);
}

void end_of_step() {
  Ahead& own = threads[running.thread];
  own.steps.push_back(std::move(own.open));
  own.open.clear();
}

void wait_for_steps(int left) {
  auto& steps = threads[running.thread].steps;
  for (; steps.size() > static_cast<size_t>(left); steps.pop_front()) {
    for (const Copy& copy : steps.front()) {
      look_at(copy, nullptr);
      std::memset(copy.to, 0, kSize);
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }
}

void forget_copies(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    threads[i].open.clear();
    threads[i].steps.clear();
  }
}

}  // namespace cusim

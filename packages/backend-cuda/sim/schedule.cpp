#include "schedule.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace cusim {
namespace {

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

[[noreturn]] void refuse(const char* name, const char* value) {
  std::fprintf(stderr, "cusim: %s=%s is not known\n", name, value);
  std::abort();
}

uint64_t seed_of(const char* value) {
  const char* colon = std::strchr(value, ':');
  return colon ? std::strtoull(colon + 1, nullptr, 10) : 0;
}

}  // namespace

Schedule::Schedule() {
  const char* streams = variable("CUSIM_SCHEDULE", "lazy");
  eager_ = !std::strcmp(streams, "eager");
  random_ = !std::strncmp(streams, "random", 6);
  if (!eager_ && !random_ && std::strcmp(streams, "lazy")) refuse("CUSIM_SCHEDULE", streams);
  const char* order = variable("CUSIM_ORDER", random_ ? streams : "forward");
  order_ = !std::strncmp(order, "random", 6) ? kRandom
           : !std::strcmp(order, "reverse")  ? kReverse
                                             : kForward;
  if (order_ == kForward && std::strcmp(order, "forward")) refuse("CUSIM_ORDER", order);
  generator_.seed(seed_of(random_ ? streams : order));
}

// Of a random order: steps that have no factor in common with n reach each of them once.
uint64_t Schedule::place(uint64_t i, uint64_t n, Permutation& p) {
  if (order_ == kForward) return i;
  if (order_ == kReverse) return n - 1 - i;
  if (i == 0) {
    p.start = below(n);
    do {
      p.step = 1 + below(n);
    } while (std::gcd(p.step, n) != 1);
  }
  return static_cast<uint64_t>((static_cast<unsigned __int128>(i) * p.step + p.start) % n);
}

Schedule& schedule() {
  static auto* instance = new Schedule;
  return *instance;
}

}  // namespace cusim

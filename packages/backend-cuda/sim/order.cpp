#include "order.h"

#include <unordered_map>
#include <vector>

#include "launch.h"

namespace cusim {
namespace {

// By a fence and an atomic operation of a thread: its own accesses up to the fence, and those of
// its block up to the last barrier, may be seen by who does an atomic operation there later.
struct Release {
  uint32_t block, who, own, others, tick;
};
std::unordered_map<const void*, std::vector<Release>> releases;
// Atomic operations of the running block where there are releases.
struct Acquire {
  const void* at;
  uint32_t who, tick;
};
std::vector<Acquire> acquires;
uint32_t block_begun = 0;  // the tick

constexpr uint32_t kWarp = 32;

// Whether something that thread `who` did at `tick` is over for the running thread of its block.
bool ordered_in_block(uint32_t who, uint32_t tick) {
  if (tick < running.block_tick) return true;
  const uint32_t thread = who % threads_of_block();
  if (thread / kWarp != running.thread / kWarp) return false;
  const WarpTick& last = running.warps[thread / kWarp];
  const uint32_t lanes = 1u << thread % kWarp | 1u << running.thread % kWarp;
  return tick < last.whole || (tick < last.part && (last.lanes & lanes) == lanes);
}

}  // namespace

uint32_t threads_of_block() {
  const CusimIndex& size = running.launch->block;
  return size.x * size.y * size.z;
}

bool ordered_in_launch(const Access& before, const Access& now) {
  const uint32_t block = before.who / threads_of_block();
  if (block == running.block) return ordered_in_block(before.who, before.tick);
  for (const Acquire& acquire : acquires) {
    if (acquire.who != now.who && !ordered_in_block(acquire.who, acquire.tick)) continue;
    for (const Release& release : releases[acquire.at]) {
      if (release.block == block && release.tick < acquire.tick &&
          before.tick < (release.who == before.who ? release.own : release.others))
        return true;
    }
  }
  return false;
}

void atomic_orders(const void* p) {
  const uint32_t who = running.block * threads_of_block() + running.thread;
  const uint32_t fence = running.fence_ticks[running.thread];
  const auto known = releases.find(p);
  if (known != releases.end()) acquires.push_back({p, who, ++running.tick});
  if (fence > block_begun)
    releases[p].push_back({running.block, who, fence, running.block_tick, ++running.tick});
  ++running.tick;
}

void begin_block_orders() {
  acquires.clear();
  block_begun = ++running.tick;
}

void forget_orders() { releases.clear(); }

}  // namespace cusim

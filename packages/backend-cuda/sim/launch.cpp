#include "launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ahead.h"
#include "check.h"
#include "fibers.h"
#include "modules.h"
#include "schedule.h"
#include "status.h"
#include "traffic.h"

namespace cusim {

Running running;

namespace {

constexpr unsigned kMostThreads = 1024, kWarp = 32;
constexpr size_t kMostShared = 227 << 10;

enum class State { kReady, kAtBarrier, kInWarp, kEnded };
struct Thread {
  Fiber* fiber;
  State state;
  CusimLane* lane;
};
struct Warp {
  uint32_t waiting, ended;  // lanes
};
// Where the threads of a block meet, as the first who came there says.
struct Meeting {
  unsigned arrived = 0, total = 0;
  CusimBarrier what;
  int line, result;
  uint32_t first;
};

void fiber_main();

// The block whose threads run.
struct Block {
  Fibers fibers{fiber_main};
  Thread threads[kMostThreads];
  Warp warps[kMostThreads / kWarp];
  std::vector<uint32_t> ready;
  size_t first_ready = 0;
  unsigned count = 0, next = 0, ended = 0;
  Meeting meeting;
  CusimIndex places[kMostThreads];  // of threads
  void** arguments = nullptr;
  const Function* function = nullptr;
  Fault fault;
  alignas(128) char dynamic[kMostShared];
};
Block& block() {
  static auto* instance = new Block;
  return *instance;
}

// $CUSIM_BLOCKS: of each launch that many of the first and of the last blocks run, so that a test
// of positions that are far away need not visit all.
uint64_t sampled() {
  static const uint64_t count = [] {
    const char* given = std::getenv("CUSIM_BLOCKS");
    return given && *given ? std::strtoull(given, nullptr, 10) : UINT64_MAX / 2;
  }();
  return count;
}

CusimIndex at(const CusimIndex& size, uint32_t i) {
  return {i % size.x, i / size.x % size.y, i / size.x / size.y};
}
std::string text_of(const CusimIndex& i) {
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

void make_running(uint32_t thread) {
  running.thread = thread;
  *block().function->module->symbols->thread = block().places[thread];
}

// The fiber that runs next; null: none can.
Fiber* next_fiber() {
  Block& b = block();
  const bool more = b.next < b.count;
  if (b.first_ready == b.ready.size() || (more && schedule().starts_first()))
    return more ? &b.fibers.take() : nullptr;
  schedule().choose(&b.ready[b.first_ready], b.ready.size() - b.first_ready);
  const uint32_t thread = b.ready[b.first_ready++];
  if (b.first_ready == b.ready.size()) b.ready.clear(), b.first_ready = 0;
  return b.threads[thread].fiber;
}
void switch_away() {
  Block& b = block();
  Fiber* next = next_fiber();
  if (!next) {
    b.fibers.leave();
  } else if (next != &b.fibers.running()) {
    b.fibers.jump(*next);
  }
}

// The running thread waits; returns when it goes on.
void suspend(State state) {
  Block& b = block();
  const uint32_t me = running.thread;
  b.threads[me].state = state;
  b.threads[me].fiber = &b.fibers.running();
  running.thread = kNoThread;
  switch_away();
  make_running(me);
}
void wake(uint32_t thread) {
  Block& b = block();
  b.threads[thread].state = State::kReady;
  b.ready.push_back(thread);
}

void end_thread(uint32_t thread) {
  Block& b = block();
  b.threads[thread].state = State::kEnded;
  ++b.ended;
  Warp& warp = b.warps[thread / kWarp];
  const uint32_t bit = 1u << thread % kWarp;
  warp.ended |= bit;
  for (uint32_t lanes = warp.waiting; lanes; lanes &= lanes - 1) {
    const uint32_t other = thread / kWarp * kWarp + __builtin_ctz(lanes);
    if (b.threads[other].lane->mask & bit)
      stop(kLaunchFailed, "lane " + std::to_string(thread % kWarp) +
                              " has ended, and other lanes of its warp wait for it at line " +
                              std::to_string(b.threads[other].lane->line));
  }
}

// What each fiber does: start threads until there are none, then rest.
void fiber_main() {
  Block& b = block();
  for (;;) {
    while (b.next < b.count) {
      const uint32_t thread = static_cast<uint32_t>(schedule().thread(b.next++, b.count));
      make_running(thread);
      b.function->kernel->call(b.arguments);
      end_thread(running.thread);
    }
    running.thread = kNoThread;
    b.fibers.give(b.fibers.running());
    switch_away();
  }
}

// ---- barriers

int result_of(CusimBarrier what, unsigned total, unsigned count) {
  if (what == kCusimAny) return total > 0;
  if (what == kCusimEvery) return total == count;
  return static_cast<int>(total);
}

int barrier(CusimBarrier what, int value, int line) {
  Block& b = block();
  Meeting& m = b.meeting;
  if (m.arrived++ == 0) {
    m.what = what;
    m.line = line;
    m.first = running.thread;
    m.total = 0;
  } else if (m.what != what || m.line != line) {
    stop(kLaunchFailed,
         "threads of a block wait at different barriers: " + place_of(running.block, m.first) +
             " at line " + std::to_string(m.line) + ", " + place_of(running.block, running.thread) +
             " at line " + std::to_string(line));
  }
  m.total += value != 0;
  if (m.arrived < b.count) {
    suspend(State::kAtBarrier);
    return m.result;
  }
  m.arrived = 0;
  m.result = result_of(what, m.total, b.count);
  running.block_tick = ++running.tick;
  for (unsigned i = 0; i < b.count; ++i) {
    if (i != running.thread) wake(i);
  }
  return m.result;
}

// ---- what lanes of a warp do together

// The lane whose value `lane` gets, as the CUDA C++ guide defines the shuffles.
int source_of(const CusimLane& call, int lane) {
  const int first = lane & ~(call.width - 1), last = first + call.width - 1;
  int from = lane;
  switch (call.what) {
    case kCusimShuffle:
      return first | (call.argument & (call.width - 1));
    case kCusimShuffleXor:
      from = lane ^ call.argument;
      return from > last ? lane : from;
    case kCusimShuffleDown:
      from = lane + call.argument;
      return from > last ? lane : from;
    case kCusimShuffleUp:
      from = lane - call.argument;
      return from < first ? lane : from;
    default:
      return lane;
  }
}

void finish(uint32_t mask, uint32_t first) {
  Block& b = block();
  auto call = [&](int lane) -> CusimLane& { return *b.threads[first + lane].lane; };
  const CusimLane& any = call(__builtin_ctz(mask));
  uint64_t ballot = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    if (call(lane).what != any.what || call(lane).mask != mask)
      stop(kLaunchFailed, "lanes of a warp do different things at lines " +
                              std::to_string(any.line) + " and " + std::to_string(call(lane).line));
    ballot |= static_cast<uint64_t>(call(lane).value != 0) << lane;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    CusimLane& own = call(lane);
    const int from = source_of(own, lane);
    if (!(mask >> from & 1))
      stop(kLaunchFailed, "lane " + std::to_string(lane) + " reads from lane " +
                              std::to_string(from) + ", which does not take part, at line " +
                              std::to_string(own.line));
    own.result = own.what == kCusimBallot ? ballot : call(from).value;
    if (own.what != kCusimMatch) continue;
    own.result = 0;
    for (int other = 0; other < 32; ++other)
      if (mask >> other & 1 && call(other).value == own.value) own.result |= 1ull << other;
  }
}

void warp(CusimLane* lane) {
  Block& b = block();
  const uint32_t me = running.thread, index = me / kWarp, first = index * kWarp;
  Warp& w = b.warps[index];
  const uint32_t bit = 1u << me % kWarp, mask = lane->mask;
  const uint32_t there = b.count - first >= kWarp ? ~0u : (1u << (b.count - first)) - 1;
  const std::string line = " at line " + std::to_string(lane->line);
  if (!(mask & bit)) stop(kLaunchFailed, "a lane that is not in its own mask" + line);
  if (mask & ~there) stop(kLaunchFailed, "the mask has lanes that the block does not have" + line);
  if (mask & w.ended) stop(kLaunchFailed, "the mask has lanes that have ended" + line);
  if (lane->width < 1 || lane->width > 32 || (lane->width & (lane->width - 1)))
    stop(kLaunchFailed, "the width must be a power of two up to 32" + line);
  b.threads[me].lane = lane;
  w.waiting |= bit;
  if ((w.waiting & mask) != mask) return suspend(State::kInWarp);
  finish(mask, first);
  w.waiting &= ~mask;
  WarpTick& tick = running.warps[index];
  ++running.tick;
  if (mask == there) {
    tick.whole = running.tick;
  } else {
    tick.part = running.tick;
    tick.lanes = mask;
  }
  for (uint32_t lanes = mask & ~bit; lanes; lanes &= lanes - 1) wake(first + __builtin_ctz(lanes));
}

void fence(CusimScope scope) {
  running.fence_ticks[running.thread] = ++running.tick;
  if (scope == kCusimSystem) running.told_host[running.thread] = false;
}
void kernel_fault(const char* what) { stop(kLaunchFailed, what); }
void* dynamic() { return block().dynamic; }

// ---- a block from its beginning to its end

// Threads wait for what cannot come.
std::string deadlock(const Block& b) {
  unsigned at_barrier = 0, line = 0, in_warp = 0;
  for (unsigned i = 0; i < b.count; ++i) {
    if (b.threads[i].state == State::kAtBarrier) ++at_barrier, line = b.meeting.line;
    if (b.threads[i].state == State::kInWarp) ++in_warp, line = b.threads[i].lane->line;
  }
  if (at_barrier)
    return "a barrier that not all threads of a block reach: " + std::to_string(at_barrier) +
           " of " + std::to_string(b.count) + " wait at line " + std::to_string(line) + ", " +
           std::to_string(b.ended) + " have ended";
  return std::to_string(in_warp) + " lanes wait at line " + std::to_string(line) +
         " for others that do not come";
}

void run_block() {
  Block& b = block();
  b.next = b.ended = 0;
  b.meeting.arrived = 0;
  b.ready.clear();
  b.first_ready = 0;
  std::memset(b.warps, 0, sizeof b.warps);
  std::memset(running.told_host, 0, sizeof running.told_host);
  forget_copies(b.count);
  running.block_tick = ++running.tick;
  b.fibers.enter(b.fibers.take());
  if (b.fault.status || b.ended == b.count) return;
  running.thread = kNoThread;
  b.fault = {kLaunchFailed, deadlock(b)};
}

}  // namespace

void give_way() {
  if (!schedule().interleaves() || running.thread == kNoThread) return;
  block().ready.push_back(running.thread);
  suspend(State::kReady);
}

void stop(int status, const std::string& words) {
  block().fault = {status, words};
  block().fibers.leave();
  __builtin_unreachable();
}

std::string place_of(uint32_t block, uint32_t thread) {
  const Launch& l = *running.launch;
  return "thread " + text_of(at(l.block, thread)) + " of block " + text_of(at(l.grid, block));
}

char* dynamic_shared() { return block().dynamic; }

CusimRuntime& runtime() {
  static CusimRuntime* instance = [] {
    const Fibers& f = block().fibers;
    return new CusimRuntime{
        access,         barrier,
        warp,           fence,
        kernel_fault,   dynamic,
        copy_ahead,     end_of_step,
        wait_for_steps, {reinterpret_cast<CusimSize>(f.stacks()), f.stacks_size()},
        {0, 0},         {0, 0}};
  }();
  return *instance;
}

Fault run(const Launch& launch, uint32_t command) {
  Block& b = block();
  const Module& module = *launch.function->module;
  std::vector<char> bytes = launch.bytes;
  std::vector<void*> arguments(launch.function->kernel->count + 1);
  for (size_t i = 0, offset = 0; i + 1 < arguments.size(); ++i) {
    arguments[i] = bytes.data() + offset;
    offset += (launch.function->kernel->sizes[i] + 15) / 16 * 16;
  }
  b.function = launch.function;
  b.arguments = arguments.data();
  b.count = launch.block.x * launch.block.y * launch.block.z;
  b.fault = {};
  for (unsigned i = 0; i < b.count; ++i) b.places[i] = at(launch.block, i);
  *module.symbols->block_size = launch.block;
  *module.symbols->grid_size = launch.grid;
  running.launch = &launch;
  running.command = command;
  begin_launch(launch);
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  for (uint64_t i = 0; i < blocks && !b.fault.status; ++i) {
    if (i == sampled() && blocks > 2 * sampled()) i = blocks - sampled();
    running.block = static_cast<uint32_t>(schedule().block(i, blocks));
    *module.symbols->block = at(launch.grid, running.block);
    begin_block(module.symbols->shared_begin,
                module.symbols->shared_end - module.symbols->shared_begin, b.dynamic,
                launch.dynamic_shared);
    run_block();
    if (counts_traffic()) count_block();
  }
  if (counts_traffic()) count_launch(launch.function->kernel->name);
  if (b.fault.status) {
    if (running.thread != kNoThread)
      b.fault.words += ", in " + place_of(running.block, running.thread);
    b.fibers.restart();
  }
  return b.fault;
}

}  // namespace cusim

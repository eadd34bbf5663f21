#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"
#include "clocks.h"
#include "order.h"
#include "status.h"

namespace cusim {
namespace {

constexpr size_t kGranule = 4;

struct Cell {
  Access write, reads[2];  // the last two readers that are not the same
  uint32_t block;          // of shared memory: the block that it is of, from 1
  uint8_t written;         // bytes
};

// A Cell for each 4 bytes of the driver's addresses; pages appear where they are used.
Cell* cells() {
  static Cell* const all = [] {
    void* range = mmap(nullptr, memory().size() / kGranule * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
      std::perror("cusim: no addresses for the checkers");
      std::abort();
    }
    return static_cast<Cell*>(range);
  }();
  return all;
}
size_t offset_of(const void* p) {
  return static_cast<size_t>(static_cast<const char*>(p) - memory().begin());
}

// The cells of shared memory: of the module's variables and of the dynamic part.
struct Shared {
  const char* begin = nullptr;
  size_t size = 0;
  std::vector<Cell> cells;
  void start(const char* at, size_t n) {
    begin = at;
    size = n;
    cells.resize(std::max(cells.size(), n / kGranule + 1));
  }
  bool holds(const char* p) const { return p >= begin && p < begin + size; }
};
Shared fixed_shared, dynamic_shared_cells;
uint32_t blocks_begun = 0;

std::string at_address(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", p);
  return text;
}

// ---- words

std::string verb(const Access& a) {
  return a.kind & kCusimAtomic  ? "an atomic operation"
         : a.kind & kCusimWrite ? "a write"
                                : "a read";
}
std::string of_thread(const Access& a, const char* where, const void* p) {
  const uint32_t threads = threads_of_block();
  return verb(a) + " of " + where + " memory at " + at_address(p) + " by " +
         place_of(a.who / threads, a.who % threads);
}
std::string race(const Access& first, const Access& second, const char* where, const void* p) {
  const uint32_t threads = threads_of_block();
  const bool one_block = first.who / threads == second.who / threads;
  return "race: " + of_thread(first, where, p) + ", and " + verb(second) + " by " +
         place_of(second.who / threads, second.who % threads) +
         (one_block ? ", with no barrier between" : ", and nothing orders the two blocks");
}
std::string unordered(const Access& first, const Access& second, const void* p) {
  const Command &a = commands().at(first.command), &b = commands().at(second.command);
  return "work of two streams without order: " + verb(first) + " by " + a.what + " (stream " +
         std::to_string(a.stream) + ", number " + std::to_string(a.number) + "), then " +
         verb(second) + " by " + b.what + " (stream " + std::to_string(b.stream) + ", number " +
         std::to_string(b.number) + ") of memory at " + at_address(p) + ", " +
         memory().describe(p) + ": no event, no record_stream";
}
std::string unwritten(const char* where, const void* p) {
  return std::string("read of ") + where + " memory at " + at_address(p) +
         " that was never written" + (where[0] == 'g' ? ", " + memory().describe(p) : "");
}

// ---- the rules

// What is wrong with `b` behind `a`; nothing if `a` is none, or of other bytes.
std::string conflict(const Access& a, const Access& b, const char* where, const void* p) {
  constexpr int kStrong = kCusimAtomic | kCusimVolatile;
  if (!a.command || !(a.bytes & b.bytes)) return {};
  if (a.kind & kStrong && b.kind & kStrong) return {};
  if (a.command != b.command) {
    const bool ordered = !checks().streams || commands().ordered(a.command, b.command);
    return ordered ? std::string() : unordered(a, b, p);
  }
  if (!checks().races || a.who == b.who || ordered_in_launch(a, b)) return {};
  return race(a, b, where, p);
}

std::string read_cell(Cell& cell, const Access& me, const char* where, const void* p) {
  std::string wrong = conflict(cell.write, me, where, p);
  if (!wrong.empty()) return wrong;
  Access& last = cell.reads[0];
  if (last.who != me.who || last.command != me.command || !(last.bytes & me.bytes))
    cell.reads[1] = last;
  last = me;
  return {};
}

std::string write_cell(Cell& cell, const Access& me, const char* where, const void* p) {
  for (const Access* before : {&cell.write, &cell.reads[0], &cell.reads[1]}) {
    std::string wrong = conflict(*before, me, where, p);
    if (!wrong.empty()) return wrong;
  }
  cell.write = me;
  cell.written |= me.bytes;
  cell.reads[0] = cell.reads[1] = {};
  return {};
}

// An access in parts of 4 bytes: `cell` for the part at an address.
template <class F>
void each_part(const void* pointer, size_t size, F&& f) {
  const size_t begin = reinterpret_cast<size_t>(pointer), end = begin + size;
  for (size_t at = begin; at < end;) {
    const size_t next = std::min(end, (at / kGranule + 1) * kGranule);
    const unsigned bytes = ((1u << (next - at)) - 1) << at % kGranule;
    f(reinterpret_cast<const char*>(at), static_cast<uint8_t>(bytes));
    at = next;
  }
}

std::string check_part(Cell& cell, const Access& me, bool initial, const char* where,
                       const void* p) {
  if (initial && (me.kind & kCusimWrite) == 0 && (me.bytes & ~cell.written))
    return unwritten(where, p);
  return me.kind & kCusimWrite ? write_cell(cell, me, where, p) : read_cell(cell, me, where, p);
}

Access running_access(int kind) {
  return {running.command, running.block * threads_of_block() + running.thread, running.tick, 0,
          static_cast<uint8_t>(kind)};
}

}  // namespace

void shadow_global(const void* p, size_t size, int kind, bool initial) {
  Access me = running_access(kind);
  std::string wrong;
  each_part(p, size, [&](const char* at, uint8_t bytes) {
    if (!wrong.empty()) return;
    me.bytes = bytes;
    Cell& cell = cells()[offset_of(at) / kGranule];
    // An atomic operation reads, too.
    if (initial && kind & kCusimAtomic && bytes & ~cell.written) wrong = unwritten("global", at);
    if (wrong.empty()) wrong = check_part(cell, me, initial, "global", at);
  });
  if (!wrong.empty()) stop(kLaunchFailed, wrong);
  if (kind & kCusimAtomic) atomic_orders(p);
}

void shadow_shared(const void* p, size_t size, int kind) {
  Access me = running_access(kind);
  std::string wrong;
  Shared& shared =
      fixed_shared.holds(static_cast<const char*>(p)) ? fixed_shared : dynamic_shared_cells;
  each_part(p, size, [&](const char* at, uint8_t bytes) {
    if (!wrong.empty()) return;
    me.bytes = bytes;
    Cell& cell = shared.cells[static_cast<size_t>(at - shared.begin) / kGranule];
    if (cell.block != blocks_begun) cell = {};
    cell.block = blocks_begun;
    const bool initial = checks().initial;
    if (initial && kind & kCusimAtomic && bytes & ~cell.written) wrong = unwritten("shared", at);
    if (wrong.empty()) wrong = check_part(cell, me, initial, "shared", at);
  });
  if (!wrong.empty()) stop(kLaunchFailed, wrong);
}

std::string shadow_copy(uint32_t command, const void* p, size_t size, int kind) {
  Access me = {command, 0, 0, 0, static_cast<uint8_t>(kind)};
  std::string wrong;
  each_part(p, size, [&](const char* at, uint8_t bytes) {
    me.bytes = bytes;
    if (wrong.empty())
      wrong = check_part(cells()[offset_of(at) / kGranule], me, false, "global", at);
  });
  return wrong;
}

void shadow_copied(const void* to, const void* from, size_t size) {
  const auto *target = static_cast<const char*>(to), *source = static_cast<const char*>(from);
  for (size_t i = 0; i < size; ++i) {
    const size_t at = offset_of(source + i), into = offset_of(target + i);
    const bool written = cells()[at / kGranule].written >> at % kGranule & 1;
    uint8_t& bits = cells()[into / kGranule].written;
    bits = static_cast<uint8_t>((bits & ~(1u << into % kGranule)) |
                                (unsigned{written} << into % kGranule));
  }
}

void shadow_launch() { forget_orders(); }

void shadow_block(const char* shared, size_t size, const char* dynamic, size_t dynamic_size) {
  ++blocks_begun;
  fixed_shared.start(shared, size);
  dynamic_shared_cells.start(dynamic, dynamic_size);
  begin_block_orders();
}

void shadow_forget(const void* p, size_t size) {
  if (!checks().shadow() || size == 0) return;
  constexpr size_t kPage = 4096;
  Cell* const all = cells();
  char* begin = reinterpret_cast<char*>(all + offset_of(p) / kGranule);
  char* end = reinterpret_cast<char*>(all + (offset_of(p) + size + kGranule - 1) / kGranule);
  const auto up = [](char* at) {
    return reinterpret_cast<char*>((reinterpret_cast<size_t>(at) + kPage - 1) / kPage * kPage);
  };
  char *first = std::min(up(begin), end), *last = std::max(first, up(end) - kPage);
  std::memset(begin, 0, static_cast<size_t>(first - begin));
  if (last > first) madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED);
  if (end > last) std::memset(last, 0, static_cast<size_t>(end - last));
}

}  // namespace cusim

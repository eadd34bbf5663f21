#include "traffic.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

#include "launch.h"

namespace cusim {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uint32_t kWarp = 32;

struct Moved {
  size_t whole = 0, read = 0, written = 0;
};
std::map<const char*, Moved> moved;  // by the allocations' addresses

// What a warp's lanes ask for by one instruction: lanes that execute it for the n-th time do so
// together.
std::unordered_map<uint64_t, std::vector<uintptr_t>> requests;
std::unordered_map<uint64_t, uint32_t> executions;  // of an instruction by a thread

uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a ^ b * 0xff51afd7ed558ccdu) * 0x9e3779b97f4a7c15u;
  return a ^ a >> 31;
}

const char* path() {
  static const char* given = std::getenv("CUSIM_TRAFFIC");
  return given && *given ? given : nullptr;
}

void write(const std::string& what, const char* begin, const Moved& m) {
  if (FILE* file = std::fopen(path(), "a")) {
    std::fprintf(file, "%s\t%p\t%zu\t%zu\t%zu\n", what.c_str(), static_cast<const void*>(begin),
                 m.whole, m.read, m.written);
    std::fclose(file);
  }
}

}  // namespace

bool counts_traffic() { return path() != nullptr; }

void count_access(const void* p, size_t size, int kind, const void* site, const char* begin,
                  size_t whole) {
  const auto where = reinterpret_cast<uint64_t>(site);
  const uint32_t execution = executions[mixed(where, running.thread)]++;
  const uint64_t warp = running.thread / kWarp;
  std::vector<uintptr_t>& sectors = requests[mixed(mixed(where, warp), execution)];
  Moved& m = moved[begin];
  m.whole = whole;
  const auto first = reinterpret_cast<uintptr_t>(p);
  for (uintptr_t at = first / kSector; at <= (first + size - 1) / kSector; ++at) {
    if (std::find(sectors.begin(), sectors.end(), at) != sectors.end()) continue;
    sectors.push_back(at);
    (kind & kCusimWrite ? m.written : m.read) += kSector;
  }
}

void count_block() {
  requests.clear();
  executions.clear();
}

void count_launch(const std::string& kernel) {
  for (const auto& [begin, m] : moved) write(kernel, begin, m);
  moved.clear();
}

void count_copy(const std::string& what, size_t size, int kind, const char* begin, size_t whole) {
  Moved m = {whole};
  (kind & kCusimWrite ? m.written : m.read) = size;
  write(what, begin, m);
}

}  // namespace cusim

// Which versions of the boundary header core serves (docs/decisions/0012).
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "boundary/plugin.h"
#include "thread/error.h"
#include "thread/host_table.h"

namespace rabbet {

namespace {

constexpr int kOldestMinor = 6;
// The header of each minor version, from the oldest on.
struct Header {
  uint32_t host_size;  // bytes of the host table
  int dtypes;          // RB_DTYPE_COUNT
};
constexpr Header kHeaders[] = {{RB_SIZE(RbHost, record_stream), 15},
                               {RB_SIZE(RbHost, decompose_below), 15}};
static_assert(sizeof kHeaders / sizeof *kHeaders == RB_ABI_MINOR - kOldestMinor + 1,
              "a minor version needs a line in kHeaders");
static_assert(kHeaders[RB_ABI_MINOR - kOldestMinor].dtypes == RB_DTYPE_COUNT);
static_assert(kHeaders[RB_ABI_MINOR - kOldestMinor].host_size == sizeof(RbHost),
              "what RbHost gains needs a new minor version");

int wanted_minor() {
  const char* text = std::getenv("RABBET_ABI_MINOR");
  if (!text || !*text) return RB_ABI_MINOR;
  char* end = nullptr;
  const long minor = std::strtol(text, &end, 10);
  if (*end || minor < kOldestMinor || minor > RB_ABI_MINOR) {
    fail(RB_E_ARG, "RABBET_ABI_MINOR: expected a plugin ABI from %d to %d, got '%s'", kOldestMinor,
         RB_ABI_MINOR, text);
  }
  return static_cast<int>(minor);
}

// Core's table as a core of the older version had it.
int restrict_host(int minor) {
  const uint32_t size = host_size(minor);
  std::memset(reinterpret_cast<char*>(&kHost) + size, 0, sizeof kHost - size);
  kHost.struct_size = size;
  kHost.minor = static_cast<uint16_t>(minor);
  return minor;
}

}  // namespace

int oldest_minor() { return kOldestMinor; }
uint32_t host_size(int minor) { return kHeaders[minor - kOldestMinor].host_size; }
uint64_t dtypes_of(int minor) {
  const Header& header = kHeaders[std::min(minor, RB_ABI_MINOR) - kOldestMinor];
  return (uint64_t{1} << header.dtypes) - 1;
}

int offered_minor() {
  static const int minor = restrict_host(wanted_minor());
  return minor;
}

void check_abi(const char* who, int major, int needed) {
  if (major == RB_ABI_MAJOR && needed <= offered_minor()) return;
  fail(RB_E_PLUGIN, "%s was built for plugin ABI %d.%d, this core offers %d.%d: %s", who, major,
       needed, RB_ABI_MAJOR, offered_minor(),
       major >= RB_ABI_MAJOR ? "upgrade rabbet-core" : "install a newer build of the plugin");
}

}  // namespace rabbet

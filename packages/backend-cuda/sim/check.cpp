#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "shadow.h"
#include "status.h"
#include "traffic.h"

namespace cusim {
namespace {

struct Range {
  const char* begin = nullptr;
  size_t size = 0;
  bool holds(const void* p, size_t n) const {
    const size_t offset = static_cast<size_t>(static_cast<const char*>(p) - begin);
    return offset < size && n <= size - offset;
  }
};
Range shared, dynamic_memory;
const Module* module;
Range last;                 // the allocation that was accessed last
bool last_initial = false;  // it is not written by the host
bool last_pinned = false;   // the host reads it while kernels run

Checks parse(const char* text) {
  Checks c;
  const std::string names = std::string(",") + (text ? text : "fast") + ",";
  const bool all = names == ",all,";
  for (auto [name, on] : {std::pair{",initial,", &c.initial}, std::pair{",races,", &c.races},
                          std::pair{",streams,", &c.streams}, std::pair{",host,", &c.host}})
    *on = all || names.find(name) != std::string::npos;
  return c;
}

std::string verb(int kind) {
  return kind & kCusimAtomic ? "atomic operation" : kind & kCusimWrite ? "write" : "read";
}
std::string bytes(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

[[noreturn]] void illegal(const void* p, size_t size, int kind, const std::string& why) {
  char address[32];
  std::snprintf(address, sizeof address, "%p", p);
  stop(kIllegalAddress, verb(kind) + " of " + bytes(size) + " at " + address + ": " + why);
}

// Memory of a device or of the host that the driver gave out.
void find_allocation(const void* p, size_t size, int kind) {
  const Allocation* a = memory().find(p);
  if (!a || !memory().holds(p, size)) illegal(p, size, kind, memory().describe(p));
  if (!a->accessible) illegal(p, size, kind, "mapped memory without access (cuMemSetAccess)");
  const int device = running.launch->device;
  if (a->device != device && a->kind != Kind::kPinned && a->kind != Kind::kManaged &&
      !devices[device]->peers.count(a->device))
    illegal(p, size, kind,
            "memory of device " + std::to_string(a->device) + ", and the kernel runs on " +
                std::to_string(device));
  last = {a->begin, a->size};
  last_initial =
      checks().initial && a->shared < 0 && (a->kind == Kind::kDevice || a->kind == Kind::kMapped);
  last_pinned = a->kind == Kind::kPinned;
  if (!checks().shadow() && !last_pinned && !counts_traffic()) {
    runtime().memory = {reinterpret_cast<CusimSize>(a->begin), a->size};
  }
}

// The host looks at pinned memory while the kernel runs. What tells it that something is there, an
// atomic operation or a volatile write, must come behind a fence of the system.
void tell_host(int kind) {
  if (!(kind & kCusimWrite)) return;
  bool& told = running.told_host[running.thread];
  if (kind & (kCusimAtomic | kCusimVolatile)) {
    if (told)
      stop(kLaunchFailed, verb(kind) +
                              " of pinned memory behind writes of it, with no __threadfence_system "
                              "between: the host may see it before them");
  } else {
    told = true;
  }
}

}  // namespace

const Checks& checks() {
  static const Checks instance = parse(std::getenv("CUSIM_CHECK"));
  return instance;
}

void access(const void* p, CusimSize size, int kind, int aligned, const void* site) {
  if (aligned && reinterpret_cast<CusimSize>(p) % size != 0) {
    char address[32];
    std::snprintf(address, sizeof address, "%p", p);
    stop(kMisaligned,
         verb(kind) + " of " + bytes(size) + " at " + address + ", which they do not divide");
  }
  if (shared.holds(p, size) || dynamic_memory.holds(p, size))
    return checks().shadow() ? shadow_shared(p, size, kind) : void();
  if (!memory().in_range(p)) {
    if (p >= module->begin && p < module->end) return;  // a variable of the module
    illegal(p, size, kind, "this is memory of the host, not of a device");
  }
  if (!last.holds(p, size)) find_allocation(p, size, kind);
  if (site && counts_traffic()) count_access(p, size, kind, site, last.begin, last.size);
  if (checks().shadow()) shadow_global(p, size, kind, last_initial);
  if (last_pinned) tell_host(kind);
  if (kind & kCusimVolatile) give_way();
}

bool check_copy(int device, uint32_t command, const void* p, size_t size, CusimAccess kind) {
  const Allocation* a = memory().find(p);
  const std::string what = commands().at(command).what + ": ";
  if (!a || !a->accessible || !memory().holds(p, size)) {
    report(*devices[device], kIllegalAddress,
           what + verb(kind) + " of " + bytes(size) + ": " + memory().describe(p));
    return false;
  }
  if (counts_traffic()) count_copy(commands().at(command).what, size, kind, a->begin, a->size);
  if (!checks().shadow()) return true;
  const std::string wrong = shadow_copy(command, p, size, kind);
  if (!wrong.empty()) report(*devices[device], kLaunchFailed, what + wrong);
  return wrong.empty();
}

void begin_launch(const Launch& launch) {
  module = launch.function->module;
  last = {};
  runtime().memory = {0, 0};
  if (checks().shadow()) shadow_launch();
}

void begin_block(char* begin, size_t size, char* dynamic, size_t dynamic_size) {
  shared = {begin, size};
  dynamic_memory = {dynamic, dynamic_size};
  std::memset(begin, 0xff, size);
  std::memset(dynamic, 0xff, dynamic_size);
  if (checks().shadow()) return shadow_block(begin, size, dynamic, dynamic_size);
  runtime().shared = {reinterpret_cast<CusimSize>(begin), size};
}

}  // namespace cusim

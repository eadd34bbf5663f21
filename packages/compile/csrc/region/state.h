// State that the whole plugin shares: core's tables, the layer, and the settings.
#pragma once
#include <atomic>
#include <cstdint>

#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace compile {

using rb::host;

extern const RbTrace* trace;
extern int32_t layer;  // key bit of the layer
extern int32_t cpu;    // id of the backend; -1: not loaded yet

/// Of the process. Changed while no region is open.
struct Settings {
  std::atomic<int64_t> least_bytes{4 << 20};  // tensors below this are computed at once
  std::atomic<int64_t> tile{4096};            // elements that a kernel gets at a time
  std::atomic<bool> check{false};             // run every flush eagerly, too, and compare
  std::atomic<bool> report{false};            // keep a line for each flush
};
extern Settings settings;

/// The layer is off for the calling thread in its scope, and with it all others.
class OnlyBackends {
 public:
  OnlyBackends() : was_(rb::thread_get()) {
    RbThread now = was_;
    now.include = 0;
    now.exclude = ~uint64_t{0xffff};
    host->thread_set(&now);
  }
  ~OnlyBackends() { host->thread_set(&was_); }
  OnlyBackends(const OnlyBackends&) = delete;
  OnlyBackends& operator=(const OnlyBackends&) = delete;

 private:
  RbThread was_;
};

}  // namespace compile

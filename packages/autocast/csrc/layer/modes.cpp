#include "modes.h"

#include <atomic>

namespace autocast {

namespace {
std::atomic<uint8_t> default_dtypes[kBackends];  // 0: float16
}

Modes& modes() {
  static thread_local Modes instance;
  return instance;
}

void set_default_dtype(int32_t backend, int32_t dtype) {
  default_dtypes[backend].store(static_cast<uint8_t>(dtype), std::memory_order_relaxed);
}

bool Modes::is_included() { return rb::thread_get().include >> layer & 1; }

void Modes::resume() {
  enabled_ = suspended_.back();
  suspended_.pop_back();
}

void Modes::set_enabled(int32_t backend, bool on) {
  if (is_included()) {
    enabled_in_call();
  } else if (enabled_) {
    suspended_.push_back(enabled_);
    enabled_ = 0;
  }
  const uint64_t bit = 1ull << backend;
  enabled_ = on ? enabled_ | bit : enabled_ & ~bit;
  host->layer_mode(layer, enabled_ != 0, -1);
}

int32_t Modes::dtype(int32_t backend) const {
  if (dtypes_[backend]) return dtypes_[backend];
  const int32_t standard = default_dtypes[backend].load(std::memory_order_relaxed);
  return standard ? standard : RB_F16;
}

}  // namespace autocast

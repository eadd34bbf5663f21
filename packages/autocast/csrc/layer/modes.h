// What a thread has switched on, and where.
#pragma once
#include <vector>

#include "rabbet/values.hpp"

namespace autocast {

using rb::host;
extern int32_t layer;

constexpr int kBackends = 64;

/// The thread's modes. The layer's key is included while a backend is enabled, so that calls
/// elsewhere cost nothing.
class Modes {
 public:
  /// Bits of the enabled backends, for a call that has reached the layer.
  uint64_t enabled_in_call() {
    if (__builtin_expect(!enabled_ && !suspended_.empty(), 0)) resume();
    return enabled_;
  }
  uint64_t enabled() { return is_included() ? enabled_in_call() : 0; }
  void set_enabled(int32_t backend, bool on);

  int32_t dtype(int32_t backend) const;
  void set_dtype(int32_t backend, int32_t dtype) { dtypes_[backend] = static_cast<uint8_t>(dtype); }

  bool cache_enabled = true;
  int32_t nesting = 0;

 private:
  static bool is_included();
  void resume();

  uint64_t enabled_ = 0;
  // A backward pass takes the key away and gives it back at its end. What is switched on meanwhile,
  // by a user's function, is kept apart; what was on before waits here.
  std::vector<uint64_t> suspended_;
  uint8_t dtypes_[kBackends] = {};  // 0: the default
};

Modes& modes();
void set_default_dtype(int32_t backend, int32_t dtype);

/// The layer is off for the calls of the thread.
class LayerOff {
 public:
  LayerOff() { host->layer_mode(layer, -1, 1); }
  ~LayerOff() { host->layer_mode(layer, -1, 0); }
  LayerOff(const LayerOff&) = delete;
  LayerOff& operator=(const LayerOff&) = delete;
};

}  // namespace autocast

// Calls whose tensors are on different devices: what may be, and how it runs.
#pragma once
#include "record/op.h"
#include "thread/thread_state.h"

namespace rabbet {

// Below every layer: what core does on its own behalf is not recorded, cast or batched again.
class LayersOff {
 public:
  explicit LayersOff(uint64_t keep = 0) : state_(thread_state()), before_(state_.exclude) {
    state_.exclude |= ~(kBackendMask | uint64_t{1} << kCompositeSlot | keep);
  }
  ~LayersOff() { state_.exclude = before_; }
  LayersOff(const LayersOff&) = delete;
  LayersOff& operator=(const LayersOff&) = delete;

 private:
  ThreadState& state_;
  uint64_t before_;
};

[[noreturn]] void fail_no_kernel(const Op& op, int backend);

/// Run a call of tensors on several devices (a bit of `backends` each); throws RB_E_DEVICE naming
/// two of them unless it is one that may be.
void run_mixed(const RbCall* c, uint64_t backends, const RbValue* args, int nargs, RbValue* rets,
               int32_t nrets);

}  // namespace rabbet

// When devices do the work that they are given: pairs of events around it, while somebody observes
// RB_EVENT_LAUNCH (rabbet/trace.h).
#pragma once
#include "device/device.h"
#include "rabbet/trace.h"

namespace rbcuda {

/// Core's mask of observed events; of no event before the plugin is registered.
extern const uint32_t* observed_events;
void find_observed_events();

/// Lives while one piece of work is given to the stream of an entered device. Work of a stream that
/// is captured is not timed: its graph is, at each launch.
class Timed {
 public:
  /// `what` lives as long as the process.
  Timed(Device& device, CuStream stream, const char* what, uint32_t kind = RB_LAUNCH_KERNEL) {
    if (__builtin_expect(__atomic_load_n(observed_events, __ATOMIC_RELAXED) & RB_EVENT_LAUNCH, 0))
      begin(device, stream, what, kind);
  }
  ~Timed() {
    if (__builtin_expect(work_ != nullptr, 0)) end();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  struct Work;
  friend class Timings;
  void begin(Device& device, CuStream stream, const char* what, uint32_t kind);
  void end();

  Work* work_ = nullptr;
};

/// Names of copies as work.
constexpr const char *kCopyToHost = "copy to the host", *kCopyFromHost = "copy from the host";

/// A member of RbDeviceTable.
int32_t work_times(void*, void* ctx, int32_t (*add)(void* ctx, const RbWorkTime*));

}  // namespace rbcuda

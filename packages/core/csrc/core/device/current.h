// The device that a thread means where it names a backend without an index: the first one, until it
// says otherwise.
#pragma once
#include "device/backends.h"
#include "thread/thread_state.h"

namespace rabbet {

inline int current_device(int backend) { return thread_state().current_devices[backend]; }
/// Throws RB_E_DEVICE if there is no such device.
inline void set_current_device(int backend, int device) {
  check_device(backend, device);
  if (!has_host_memory(backend) && backend != kMeta)
    thread_state().current_devices[backend] = device;
}
/// `index`, or that of the current device where it is negative.
inline int index_or_current(int backend, int index) {
  return __builtin_expect(index < 0, 1) ? current_device(backend) : index;
}

}  // namespace rabbet

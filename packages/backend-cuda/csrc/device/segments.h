// Segments of device memory.
#pragma once
#include "device/device.h"

namespace rbcuda {

/// Throws RB_E_OOM, saying what is free.
[[noreturn]] void fail_segment(Device& device, uint64_t nbytes);

}  // namespace rbcuda

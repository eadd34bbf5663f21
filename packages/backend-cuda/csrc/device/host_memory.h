// Memory that the host and devices share: pinned and managed.
#pragma once
#include "device/device.h"

namespace rbcuda {

extern const RbAllocator kPinned, kManaged;
/// Whether core got this memory from kPinned.
bool is_pinned(const void* data, size_t nbytes);

}  // namespace rbcuda

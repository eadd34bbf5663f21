// Pinned buffers through which pageable memory goes to a device without waiting for its stream.
#pragma once
#include "device/device.h"

namespace rbcuda {

/// Copy on the stream; `source` is read when it returns. False: there is no pinned memory.
bool copy_staged(Device& device, const void* source, void* target, size_t nbytes, CuStream stream);

}  // namespace rbcuda

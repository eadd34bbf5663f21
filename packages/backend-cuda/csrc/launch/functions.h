// The functions of this process, by kernel and device.
#pragma once
#include "launch/jit.h"

namespace rbcuda {

/// Compiled and loaded at the first call. A later one takes no lock and no memory; only threads
/// that ask for the same new kernel wait for each other.
CuFunction function_of(Device& device, const Kernel& kernel);

}  // namespace rbcuda

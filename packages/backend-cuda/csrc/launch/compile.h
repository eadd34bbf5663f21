// NVRTC: text to cubin.
#pragma once
#include <string>
#include <vector>

#include "device/device.h"

namespace rbcuda {

/// Throws RB_E_DEVICE with the compiler's log. Several threads may compile at once.
std::vector<char> compile(Device& device, const char* op, const std::string& text);

}  // namespace rbcuda

// Text to cubin: from the seed pack, from the cache on disk, else by NVRTC.
#pragma once
#include <string>
#include <vector>

#include "launch/jit.h"

namespace rbcuda {

/// All that the compiler reads of a kernel.
std::string text_of(const Kernel& kernel);

/// The module of a text for a device. Throws RB_E_DEVICE with the compiler's log where the text
/// does not compile; the text is kept then.
std::vector<char> image_of(Device& device, const char* op, const std::string& text);

}  // namespace rbcuda

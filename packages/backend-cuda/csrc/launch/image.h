// Text to cubin: from the seed pack, from the cache on disk, else by NVRTC.
//
// RABBET_CUDA_KEEP_SOURCES=FOLDER keeps the text of each kernel that is asked for, as OP-KEY.cu.
#pragma once
#include <string>
#include <vector>

#include "launch/jit.h"

namespace rbcuda {

/// All that the compiler reads of a kernel.
std::string text_of(const Kernel& kernel);

/// The module of a text for a device; kCompiler where what was kept did not load. Throws
/// RB_E_DEVICE with the compiler's log where the text does not compile; text and log are kept then.
enum class Source { kAny, kCompiler };
std::vector<char> image_of(Device& device, const char* op, const std::string& text,
                           Source source = Source::kAny);

}  // namespace rbcuda

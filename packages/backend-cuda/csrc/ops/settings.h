// The user's switches (rabbet.backends.cuda) that kernels follow.
#pragma once
#include <cstdint>

namespace rbcuda {

/// `name` as core's table of settings has it, such as "cuda.matmul.allow_tf32"; `otherwise` where
/// nothing was set or core has no table.
int64_t setting(const char* name, int64_t otherwise);

}  // namespace rbcuda

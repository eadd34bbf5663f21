// The user's switches (rabbet.backends.cuda) that kernels follow.
#pragma once
#include <cstdint>

namespace rbcuda {

/// `name` as core's table of settings has it, such as "cuda.matmul.allow_tf32"; `otherwise` where
/// nothing was set or core has no table.
int64_t setting(const char* name, int64_t otherwise);

/// Whether convolutions of float32 may round their operands to TF32: by cudnn.allow_tf32 (on unless
/// it is set), and where cudnn.enabled is off by cuda.matmul.allow_tf32, as in PyTorch, whose own
/// convolutions are products of matrices. NVIDIA_TF32_OVERRIDE=0 forbids it.
bool convolution_tf32();

}  // namespace rbcuda

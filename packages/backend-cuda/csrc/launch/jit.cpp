#include "launch/jit.h"

#include <algorithm>

#include "launch/functions.h"

namespace rbcuda {

std::string TypeName::name() const {
  char letters[8] = {};
  std::memcpy(letters, &packed, 7);
  return letters;
}

Number number_of(const RbValue& value) {
  const double real = rb::to_double(value);
  const bool floating = value.tag == RB_FLOAT;
  return {real, floating ? static_cast<int64_t>(real) : rb::to_int(value)};
}

void launch(Device& device, const Kernel& kernel, Grid grid, void** arguments) {
  device.enter();
  const CuFunction function = function_of(device, kernel);
  const CuResult status = driver().launch(function, grid.x, grid.y, grid.z, grid.threads, 1, 1, 0,
                                          device.current_stream(), arguments, nullptr);
  if (__builtin_expect(status != kSuccess, 0))
    check_cuda(status, device.index(), (std::string("launch of ") + kernel.op).c_str());
}

void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments) {
  constexpr int64_t kBlock = 256, kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
  const int64_t blocks = std::min((positions + kBlock - 1) / kBlock, kMostBlocks);
  launch(device, kernel, Grid{static_cast<unsigned>(blocks), 1, 1, kBlock}, arguments);
}

}  // namespace rbcuda

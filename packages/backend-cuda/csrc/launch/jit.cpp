#include "launch/jit.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "launch/functions.h"

namespace rbcuda {

std::string TypeName::name() const {
  char letters[8] = {};
  std::memcpy(letters, &packed, 7);
  return letters;
}

Text::Text(const std::string& made) {
  static std::mutex mutex;
  static auto* texts = new std::unordered_set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  data_ = texts->insert(made).first->c_str();
}

Number number_of(const RbValue& value) {
  const double real = rb::to_double(value);
  if (value.tag == RB_COMPLEX) return {real, value.v.fs[1], static_cast<int64_t>(real)};
  if (value.tag != RB_FLOAT) return {real, 0, rb::to_int(value)};
  constexpr double kSigned = 9223372036854775808.0;  // 2**63
  const bool above = real >= kSigned && real < 2 * kSigned;
  return {real, 0,
          above ? static_cast<int64_t>(static_cast<uint64_t>(real)) : static_cast<int64_t>(real)};
}

void launch(Device& device, const Kernel& kernel, Grid grid, void** arguments) {
  device.enter();
  enqueue(device, device.current_stream(), kernel.op, function_of(device, kernel), grid, arguments);
}

void launch(Device& device, const Kernel& kernel, int64_t positions, void** arguments) {
  constexpr int64_t kBlock = 256, kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
  const int64_t blocks = std::min((positions + kBlock - 1) / kBlock, kMostBlocks);
  launch(device, kernel, Grid{static_cast<unsigned>(blocks), 1, 1, kBlock}, arguments);
}

}  // namespace rbcuda

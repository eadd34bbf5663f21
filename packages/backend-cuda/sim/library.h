// What the stand-ins of libraries share: questions to the simulated driver, and work for its
// streams.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "work.h"

extern "C" int cuCtxGetDevice(int* device);
extern "C" int cuStreamIsCapturing(void* stream, int* state);

namespace cusim {

/// The device of the thread's context; -1 if it has none.
inline int current_device() {
  int device = -1;
  return cuCtxGetDevice(&device) == 0 ? device : -1;
}

inline bool is_capturing(void* stream) {
  int state = 0;
  return cuStreamIsCapturing(stream, &state) == 0 && state != 0;
}

/// `count` contiguous numbers of `size` bytes.
inline CusimRegion line_of(const void* data, int64_t count, size_t size, bool written) {
  const auto bytes = static_cast<size_t>(count) * size;
  return {data, bytes, bytes, 1, 0, 1, written, size};
}

/// Enqueues `compute`, which finds its workspace overwritten. Returns the driver's status.
inline int enqueue(void* stream, const std::string& name, const std::vector<CusimRegion>& regions,
                   void* workspace, size_t workspace_size, std::function<void()> compute) {
  using Work = std::function<void()>;
  auto* const work = new Work([compute = std::move(compute), workspace, workspace_size] {
    if (workspace_size) std::memset(workspace, 0xee, workspace_size);
    compute();
  });
  return cusim_work(
      stream, name.c_str(), regions.data(), static_cast<int>(regions.size()),
      [](void* given) { (*static_cast<Work*>(given))(); },
      [](void* given) { delete static_cast<Work*>(given); }, work);
}

}  // namespace cusim

// Graphs: work of a device that was captured on a stream and is launched again as a whole.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "device/generator.h"
#include "device/memory.h"
#include "rabbet/capture.h"
#include "thread/thread_state.h"

namespace rabbet {

/// What a thread keeps while it captures.
struct Capture {
  int backend, device;
  void* stream;
  uint64_t counters;  // of the device's default generator, that the graph takes
  const uint64_t* base;
};

/// The thread's capture of this device, or null.
inline Capture* capture_of(int backend, int device) {
  Capture* c = thread_state().capture;
  return c && c->backend == backend && c->device == device ? c : nullptr;
}
/// Whether any thread captures, on any device.
bool captures_under_way();
/// Throws RB_E_STATE if the thread captures the device: `what` cannot be recorded.
void check_not_capturing(int backend, int device, const char* what);

/// Counters for a kernel that can take them from device memory, see RbCaptureSlice.
RbCaptureSlice reserve_captured(RbGenerator* generator, int backend, int device, uint64_t counters);

/// A captured graph with the memory pool and the random state that it works on.
class Graph {
 public:
  /// `keep`: the graph is kept after capture_end, and made executable at the first replay.
  Graph(bool keep, std::shared_ptr<MemoryPool> pool);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void capture_begin(int backend, int device);
  void capture_end();
  void instantiate();
  /// On the thread's stream of the device.
  void replay();
  void reset();
  /// Write the graph that was kept to a file, as the backend does that.
  void dump(const std::string& path) const;
  const void* graph() const { return graph_; }
  const void* executable() const { return executable_; }
  bool capturing() const { return capturing_; }
  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }

 private:
  RbCapture table() const;
  void write_base(const RbRngSlice& slice, void* stream);
  void check_given(const void* result, const char* function, const char* what) const;

  const bool keep_;
  std::shared_ptr<MemoryPool> pool_;
  int backend_ = -1, device_ = 0;
  bool capturing_ = false;
  Capture capture_{};
  void *graph_ = nullptr, *executable_ = nullptr;
  Block* base_ = nullptr;  // seed and offset of a launch
  bool launched_ = false;
  void* last_stream_ = nullptr;  // of the last launch
};

}  // namespace rabbet

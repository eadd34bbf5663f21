// Devices: discovery, memory, copies, the end of a fork. A device's context is its primary one,
// which other libraries of the process share. Everything is enqueued and returns; only copies to
// the host and from its pageable memory, and waits, wait.
#pragma once
#include <mutex>
#include <string>

#include "driver/libraries.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {

constexpr const char* kBackendName = "cuda";

class Device {
 public:
  Device(CuDevice handle, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  const std::string& architecture() const { return architecture_; }  // "sm_90"
  /// Make it the calling thread's device for the driver.
  void enter();
  /// The calling thread's stream; null: the default one.
  CuStream current_stream() const;
  void* allocate(uint64_t nbytes);
  void synchronize();

 private:
  const CuDevice handle_;
  const int index_;
  std::string name_, architecture_;
  CuContext context_ = nullptr;
  std::once_flag opened_;
};

/// Never fails; opens the driver at the first call.
int device_count();
/// Throws RB_E_DEVICE where there is none of this index, or after a fork.
Device& device(int index);
bool forked();
inline Device& device_of(const RbTensor& t) { return device(t.device.id); }

/// This backend's id, which core gave it.
extern int32_t backend_id;
inline bool is_here(const RbTensor& t) { return t.backend == backend_id; }

extern const RbDevices kDevices;
extern const RbAllocator kAllocator;
extern const RbStreams kStreams;  // streams.cpp

}  // namespace rbcuda

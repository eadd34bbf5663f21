// Devices: discovery and contexts. A device's context is its primary one, which other libraries of
// the process share. Everything is enqueued and returns; only copies to the host and waits wait.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "device/in_flight.h"
#include "rabbet/device.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {

constexpr const char* kBackendName = "cuda";

class Device;
// The thread's, see Device::enter. One pointer with the initial-exec model, as core's thread state.
extern __thread const Device* entered_device __attribute__((tls_model("initial-exec")));

class Device {
 public:
  Device(CuDevice handle, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  CuDevice handle() const { return handle_; }
  const std::string& name() const { return name_; }
  const std::string& architecture() const { return architecture_; }  // "sm_90"
  int attribute(int number) const;
  /// Make it the calling thread's device for the driver, where other libraries may have changed it.
  void enter() {
    CuContext now = nullptr;
    if (__builtin_expect(
            entered_device != this || driver().get_context(&now) != kSuccess || now != context_, 0))
      set_context();
  }
  /// After enter().
  CuContext context() const { return context_; }
  /// The calling thread's stream; null: the default one.
  CuStream current_stream() const;
  void synchronize();
  void synchronize(CuStream stream);

  /// The error that it does not recover from; empty: there is none.
  std::string failure() const;
  void set_failure(const std::string& text);

  InFlight in_flight;

 private:
  void set_context();

  const CuDevice handle_;
  const int index_;
  std::string name_, architecture_;
  CuContext context_ = nullptr;
  std::once_flag opened_;
  std::atomic<const std::string*> failure_{nullptr};
};

/// Never fails; opens the driver at the first call.
int device_count();
/// The first ones, once they are found; all null after a fork.
constexpr unsigned kQuickDevices = 16;
extern std::atomic<Device*> quick_devices[kQuickDevices];
Device& find_device(int index);
/// Throws RB_E_DEVICE where there is none of this index, or after a fork.
inline Device& device(int index) {
  const bool quick = static_cast<unsigned>(index) < kQuickDevices;
  Device* found = quick ? quick_devices[index].load(std::memory_order_acquire) : nullptr;
  return __builtin_expect(found != nullptr, 1) ? *found : find_device(index);
}
bool forked();
inline Device& device_of(const RbTensor& t) { return device(t.device.id); }

/// This backend's id, which core gave it.
extern int32_t backend_id;
inline bool is_here(const RbTensor& t) { return t.backend == backend_id; }

inline CuPointer address(const void* data) { return reinterpret_cast<CuPointer>(data); }
inline CuStream as_stream(void* stream) { return static_cast<CuStream>(stream); }

bool is_capturing(CuStream stream);
/// Whether the stream's capture has failed and can only be ended.
bool is_capture_invalid(CuStream stream);
/// While it lives the calling thread may ask for memory and load modules, though it captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange();
  int mode_ = kCaptureRelaxed;
};

extern const RbDevices kDevices;
extern const RbAllocator kAllocator;  // segments.cpp
extern const RbAllocator kShared;     // segments.cpp: memory that other processes can open
extern const RbStreams kStreams;      // streams.cpp
/// Members of RbDeviceTable, in streams.cpp.
int32_t event_export(void*, int32_t index, void* event, RbIpcHandle* out);
int32_t event_open(void*, int32_t index, const RbIpcHandle* given, void** event);
extern const RbDeviceTable kDeviceTable;  // table.cpp

}  // namespace rbcuda

#include "device/staging.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

namespace rbcuda {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;
constexpr int kCount = 4;

// Buffers are used in turn, each again when the device has read it.
class Staging {
 public:
  explicit Staging(Device& device) : device_(device) {}

  bool copy(const char* source, char* target, size_t nbytes, CuStream stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t done = 0; done < nbytes; done += kBuffer) {
      const size_t size = std::min(kBuffer, nbytes - done);
      Buffer& buffer = buffers_[next_++ % kCount];
      if (!ready(buffer)) return false;
      std::memcpy(buffer.data, source + done, size);
      check_cuda(driver().copy_in(address(target + done), buffer.data, size, stream),
                 device_.index(), "cuMemcpyHtoDAsync");
      check_cuda(driver().event_record(buffer.read, stream), device_.index(), "cuEventRecord");
      buffer.used = true;
    }
    return true;
  }

 private:
  struct Buffer {
    void* data = nullptr;
    CuEvent read = nullptr;
    bool used = false;
  };

  bool ready(Buffer& buffer) {
    const Driver& d = driver();
    if (buffer.used) {
      check_cuda(d.event_synchronize(buffer.read), device_.index(), "cuEventSynchronize");
      return true;
    }
    if (!d.host_allocate) return false;
    if (!buffer.data && d.host_allocate(&buffer.data, kBuffer, kPortable) != kSuccess) {
      buffer.data = nullptr;
      return false;
    }
    if (!buffer.read)
      check_cuda(d.event_create(&buffer.read, kEventNoTiming), device_.index(), "cuEventCreate");
    return true;
  }

  Device& device_;
  std::mutex mutex_;
  Buffer buffers_[kCount];
  unsigned next_ = 0;
};

// Never destroyed, as devices are not.
Staging& staging_of(Device& device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, std::unique_ptr<Staging>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Staging>& found = (*all)[device.index()];
  if (!found) found = std::make_unique<Staging>(device);
  return *found;
}

}  // namespace

bool copy_staged(Device& device, const void* source, void* target, size_t nbytes, CuStream stream) {
  return staging_of(device).copy(static_cast<const char*>(source), static_cast<char*>(target),
                                 nbytes, stream);
}

}  // namespace rbcuda

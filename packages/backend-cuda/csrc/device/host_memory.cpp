#include "device/host_memory.h"

#include <map>
#include <shared_mutex>

namespace rbcuda {
namespace {

struct PinnedRanges {
  std::shared_mutex mutex;
  std::map<const char*, size_t> sizes;  // by where they begin
};
PinnedRanges& ranges() {
  static auto* instance = new PinnedRanges;
  return *instance;
}

[[noreturn]] void fail_oom(Device& device, const char* kind, uint64_t nbytes) {
  rb::fail(RB_E_OOM, "cuda:%d: cannot allocate %llu bytes of %s memory", device.index(),
           static_cast<unsigned long long>(nbytes), kind);
}

int32_t allocate_pinned(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    const RelaxedCapture relaxed;
    const CuResult status =
        need(driver().host_allocate, "cuMemHostAlloc")(&out->data, nbytes, kPortable);
    if (status == kOutOfMemory) fail_oom(here, "pinned", nbytes);
    check_cuda(status, index, "cuMemHostAlloc");
    std::lock_guard<std::shared_mutex> lock(ranges().mutex);
    ranges().sizes[static_cast<const char*>(out->data)] = nbytes;
  });
}

void release_pinned(void*, RbBuffer* buffer, void*) {
  if (forked()) return;
  rb::guarded([&] {
    {
      std::lock_guard<std::shared_mutex> lock(ranges().mutex);
      ranges().sizes.erase(static_cast<const char*>(buffer->data));
    }
    device(buffer->device_index).enter();
    check_cuda(need(driver().host_release, "cuMemFreeHost")(buffer->data), buffer->device_index,
               "cuMemFreeHost");
  });
}

int32_t allocate_managed(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    const RelaxedCapture relaxed;
    CuPointer data = 0;
    const CuResult status =
        need(driver().managed_allocate, "cuMemAllocManaged")(&data, nbytes, kManagedGlobal);
    if (status == kOutOfMemory) fail_oom(here, "managed", nbytes);
    check_cuda(status, index, "cuMemAllocManaged");
    out->data = reinterpret_cast<void*>(data);
  });
}

// cuMemFree waits for the work that uses the memory.
void release_managed(void*, RbBuffer* buffer, void*) {
  if (forked()) return;
  rb::guarded([&] {
    device(buffer->device_index).enter();
    check_cuda(driver().release(address(buffer->data)), buffer->device_index, "cuMemFree");
  });
}

}  // namespace

bool is_pinned(const void* data, size_t nbytes) {
  const char* begin = static_cast<const char*>(data);
  std::shared_lock<std::shared_mutex> lock(ranges().mutex);
  auto range = ranges().sizes.upper_bound(begin);
  if (range == ranges().sizes.begin()) return false;
  --range;
  return begin + nbytes <= range->first + range->second;
}

const RbAllocator kPinned = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate_pinned,
                             release_pinned};
const RbAllocator kManaged = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate_managed,
                              release_managed};

}  // namespace rbcuda

// Segments of device memory, as core's allocator asks for them.
#include "device/segments.h"

namespace rbcuda {

void fail_segment(Device& device, uint64_t nbytes) {
  size_t free = 0, total = 0;
  driver().memory_info(&free, &total);
  rb::fail(RB_E_OOM, "cuda:%d (%s): cannot allocate %llu bytes: %zu of %zu are free",
           device.index(), device.name().c_str(), static_cast<unsigned long long>(nbytes), free,
           total);
}

namespace {

int32_t allocate(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    const RelaxedCapture relaxed;
    CuPointer data = 0;
    const CuResult status = driver().allocate(&data, nbytes);
    if (status == kOutOfMemory) fail_segment(here, nbytes);
    check_cuda(status, index, "cuMemAlloc");
    out->data = reinterpret_cast<void*>(data);
  });
}

// cuMemFree waits for the work that uses the memory.
void release(void*, RbBuffer* buffer, void*) {
  if (forked()) return;
  rb::guarded([&] {
    device(buffer->device_index).enter();
    check_cuda(driver().release(address(buffer->data)), buffer->device_index, "cuMemFree");
  });
}

}  // namespace

const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};

}  // namespace rbcuda

#include "device/device.h"

#include <atomic>
#include <memory>
#include <vector>

namespace rbcuda {

int32_t backend_id = -1;

namespace {

std::atomic<bool> in_child{false};

struct Found {
  std::vector<std::unique_ptr<Device>> devices;
  std::string why;  // there is none
};

Found discover() {
  Found found;
  try {
    const Driver& d = driver();
    const CuResult status = d.init(0);
    int version = 0, count = 0;
    d.driver_version(&version);
    if (status == kNoDevice) {
      found.why = "the driver sees no device: look at CUDA_VISIBLE_DEVICES and nvidia-smi";
      return found;
    }
    check_cuda(status, 0, "cuInit");
    if (version < 12000) {
      found.why = "the driver supports CUDA " + std::to_string(version / 1000) + "." +
                  std::to_string(version % 1000 / 10) + ", CUDA 12.0 or newer is needed";
      return found;
    }
    check_cuda(d.device_count(&count), 0, "cuDeviceGetCount");
    for (int i = 0; i < count; ++i) {
      CuDevice handle = 0;
      check_cuda(d.device_get(&handle, i), i, "cuDeviceGet");
      found.devices.push_back(std::make_unique<Device>(handle, i));
    }
    if (count == 0) found.why = "the driver sees no device: look at CUDA_VISIBLE_DEVICES";
  } catch (const rb::Error& error) {
    found.why = error.what();
  }
  return found;
}

Found& found() {
  static Found* instance = new Found(discover());  // never destroyed: tensors may outlive statics
  return *instance;
}

}  // namespace

bool forked() { return in_child.load(std::memory_order_relaxed); }
int device_count() { return static_cast<int>(found().devices.size()); }

Device& device(int index) {
  if (forked())
    rb::fail(RB_E_DEVICE,
             "cuda: this process was forked from one that had opened the driver, which does not "
             "work in the child; start processes by 'spawn' instead of 'fork'");
  const auto& devices = found().devices;
  if (devices.empty()) rb::fail(RB_E_DEVICE, "cuda: %s", found().why.c_str());
  if (index < 0 || index >= static_cast<int>(devices.size()))
    rb::fail(RB_E_DEVICE, "cuda: there is no device %d; there are %d", index,
             static_cast<int>(devices.size()));
  return *devices[index];
}

Device::Device(CuDevice handle, int index) : handle_(handle), index_(index) {
  char name[256] = "";
  int major = 0, minor = 0;
  check_cuda(driver().device_name(name, sizeof name, handle), index, "cuDeviceGetName");
  check_cuda(driver().device_attribute(&major, kMajor, handle), index, "cuDeviceGetAttribute");
  check_cuda(driver().device_attribute(&minor, kMinor, handle), index, "cuDeviceGetAttribute");
  name_ = name;
  architecture_ = "sm_" + std::to_string(10 * major + minor);
}

void Device::enter() {
  std::call_once(opened_, [&] {
    check_cuda(driver().primary_context(&context_, handle_), index_, "cuDevicePrimaryCtxRetain");
  });
  thread_local const Device* entered = nullptr;
  if (entered == this) return;
  check_cuda(driver().set_context(context_), index_, "cuCtxSetCurrent");
  entered = this;
}

CuStream Device::current_stream() const {
  void* stream = nullptr;
  rb::check(rb::host->stream_get(backend_id, index_, &stream));
  return static_cast<CuStream>(stream);
}

void* Device::allocate(uint64_t nbytes) {
  enter();
  CuPointer data = 0;
  const CuResult status = driver().allocate(&data, nbytes);
  if (status == kOutOfMemory) {
    size_t free = 0, total = 0;
    driver().memory_info(&free, &total);
    rb::fail(RB_E_OOM, "cuda:%d (%s): cannot allocate %llu bytes: %zu of %zu are free", index_,
             name_.c_str(), static_cast<unsigned long long>(nbytes), free, total);
  }
  check_cuda(status, index_, "cuMemAlloc");
  return reinterpret_cast<void*>(data);
}

void Device::synchronize() {
  enter();
  check_cuda(driver().synchronize(), index_, "cuCtxSynchronize");
}

// ---- what core calls

namespace {

CuPointer address(const void* data) { return reinterpret_cast<CuPointer>(data); }

int32_t count(void*, int32_t* n) {
  *n = device_count();
  return RB_OK;
}
int32_t sync(void*, int32_t index) {
  return rb::guarded([&] { device(index).synchronize(); });
}

void read(Device& from, void* to, const void* data, size_t nbytes, CuStream stream) {
  from.enter();
  check_cuda(driver().copy_out(to, address(data), nbytes, stream), from.index(), "cuMemcpyDtoH");
  check_cuda(driver().stream_synchronize(stream), from.index(), "cuStreamSynchronize");
}
void write(Device& to, void* data, const void* from, size_t nbytes, CuStream stream) {
  to.enter();
  check_cuda(driver().copy_in(address(data), from, nbytes, stream), to.index(), "cuMemcpyHtoD");
  check_cuda(driver().stream_synchronize(stream), to.index(), "cuStreamSynchronize");
}

// Rows without gaps of one dtype; core has seen to both.
int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void* stream, uint32_t) {
  return rb::guarded([&] {
    const size_t nbytes = static_cast<size_t>(src->numel) * (src->dtype.bits / 8);
    if (nbytes == 0) return;
    const CuStream here = static_cast<CuStream>(stream);
    if (is_here(*src) && is_here(*dst)) {
      std::vector<char> between(nbytes);
      Device& from = device_of(*src);
      read(from, between.data(), src->data, nbytes, from.current_stream());
      write(device_of(*dst), dst->data, between.data(), nbytes, here);
    } else if (is_here(*dst)) {
      write(device_of(*dst), dst->data, src->data, nbytes, here);
    } else {
      read(device_of(*src), dst->data, src->data, nbytes, here);
    }
  });
}

void fork_child(void*) { in_child.store(true); }

int32_t allocate(void*, int32_t index, uint64_t nbytes, void*, RbBuffer* out) {
  return rb::guarded([&] { out->data = device(index).allocate(nbytes); });
}
// cuMemFree waits for the work that uses the memory.
void release(void*, RbBuffer* buffer, void*) {
  if (forked()) return;
  rb::guarded([&] {
    Device& here = device(buffer->device_index);
    here.enter();
    check_cuda(driver().release(address(buffer->data)), here.index(), "cuMemFree");
  });
}

}  // namespace

const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync, copy, fork_child};
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};

}  // namespace rbcuda

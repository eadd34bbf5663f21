#include "device/device.h"

#include <atomic>
#include <memory>
#include <vector>

#include "device/copies.h"
#include "device/report.h"

namespace rbcuda {

int32_t backend_id = -1;
std::atomic<Device*> quick_devices[kQuickDevices];
__thread const Device* entered_device = nullptr;

namespace {

std::atomic<bool> opened{false}, in_child{false};  // the driver; after a fork of such a process

struct Found {
  std::vector<std::unique_ptr<Device>> devices;
  std::string why;  // there is none
};

Found discover() {
  Found found;
  try {
    const Driver& d = driver();
    opened = true;
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

Device& find_device(int index) {
  if (forked())
    rb::fail(RB_E_DEVICE,
             "cuda: this process was forked from one that had opened the driver, which does not "
             "work in the child; start processes by 'spawn' instead of 'fork'");
  const auto& devices = found().devices;
  if (devices.empty()) rb::fail(RB_E_DEVICE, "cuda: %s", found().why.c_str());
  if (index < 0 || index >= static_cast<int>(devices.size()))
    rb::fail(RB_E_DEVICE, "cuda: there is no device %d; there are %d", index,
             static_cast<int>(devices.size()));
  Device& here = *devices[index];
  if (index < static_cast<int>(kQuickDevices))
    quick_devices[index].store(&here, std::memory_order_release);
  return here;
}

Device::Device(CuDevice handle, int index) : handle_(handle), index_(index) {
  char name[256] = "";
  check_cuda(driver().device_name(name, sizeof name, handle), index, "cuDeviceGetName");
  name_ = name;
  architecture_ = "sm_" + std::to_string(10 * attribute(kMajor) + attribute(kMinor));
}

int Device::attribute(int number) const {
  int value = 0;
  check_cuda(driver().device_attribute(&value, number, handle_), index_, "cuDeviceGetAttribute");
  return value;
}

void Device::set_context() {
  std::call_once(opened_, [&] {
    check_cuda(driver().primary_context(&context_, handle_), index_, "cuDevicePrimaryCtxRetain");
  });
  check_cuda(driver().set_context(context_), index_, "cuCtxSetCurrent");
  entered_device = this;
}

CuStream Device::current_stream() const {
  void* stream = nullptr;
  rb::check(rb::host->stream_get(backend_id, index_, &stream));
  return as_stream(stream);
}

void Device::synchronize() {
  enter();
  check_cuda(driver().synchronize(), index_, "cuCtxSynchronize");
  in_flight.finish_all();
  check_report(index_);
}

void Device::synchronize(CuStream stream) {
  enter();
  check_cuda(driver().stream_synchronize(stream), index_, "cuStreamSynchronize");
  in_flight.finish(stream);
  check_report(index_);
}

std::string Device::failure() const {
  const std::string* text = failure_.load(std::memory_order_acquire);
  return text ? *text : "";
}

void Device::set_failure(const std::string& text) {
  const std::string* none = nullptr;
  auto* kept = new std::string(text);  // as the device, never destroyed
  if (!failure_.compare_exchange_strong(none, kept, std::memory_order_acq_rel)) delete kept;
}

namespace {

// CUstreamCaptureStatus
enum { kNoCapture = 0, kInvalidCapture = 2 };

int capture_state(CuStream stream) {
  int state = kNoCapture;
  const bool known = driver().is_capturing && driver().is_capturing(stream, &state) == kSuccess;
  return known ? state : +kNoCapture;
}

}  // namespace

bool is_capturing(CuStream stream) { return capture_state(stream) != kNoCapture; }
bool is_capture_invalid(CuStream stream) { return capture_state(stream) == kInvalidCapture; }

void RelaxedCapture::exchange() {
  if (driver().exchange_capture_mode) driver().exchange_capture_mode(&mode_);
}

// ---- what core calls

namespace {

int32_t count(void*, int32_t* n) {
  *n = device_count();
  return RB_OK;
}
int32_t sync(void*, int32_t index) {
  return rb::guarded([&] { device(index).synchronize(); });
}
void fork_child(void*) {
  if (!opened) return;
  in_child.store(true);
  for (std::atomic<Device*>& quick : quick_devices) quick.store(nullptr);
}

}  // namespace

const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync, copy_tensor, fork_child};

}  // namespace rbcuda

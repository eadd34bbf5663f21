#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "program.h"

namespace rbcl {

int32_t backend_id = -1;

namespace {

std::atomic<bool> in_child{false};

struct Found {
  std::vector<std::unique_ptr<Device>> devices;
  std::string why;  // there is none
};

template <class T>
T info(cl_device_id id, cl_device_info what, T otherwise = T()) {
  T value = otherwise;
  return cl().GetDeviceInfo(id, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value
                                                                                   : otherwise;
}

Found discover() {
  Found found;
  try {
    cl_uint platforms = 0;
    cl().GetPlatformIDs(0, nullptr, &platforms);
    std::vector<cl_platform_id> ids(platforms);
    if (platforms) cl().GetPlatformIDs(platforms, ids.data(), nullptr);
    cl_uint all = 0;
    for (cl_platform_id platform : ids) {
      cl_uint n = 0;
      if (cl().GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &n) != CL_SUCCESS) continue;
      std::vector<cl_device_id> devices(n);
      cl().GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, devices.data(), nullptr);
      all += n;
      for (cl_device_id id : devices) {
        const auto svm = info<cl_device_svm_capabilities>(id, CL_DEVICE_SVM_CAPABILITIES);
        if (svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)
          found.devices.push_back(
              std::make_unique<Device>(id, static_cast<int>(found.devices.size())));
      }
    }
    if (found.devices.empty()) {
      found.why = all ? "none of the " + std::to_string(all) +
                            " OpenCL devices has coarse-grained shared virtual memory (OpenCL 2.0)"
                      : "no OpenCL platform has a device: install a driver (Debian and Ubuntu: apt "
                        "install pocl-opencl-icd for the CPU)";
    }
  } catch (const rb::Error& error) {
    found.why = error.what();
  }
  return found;
}

Found& found() {
  static Found* instance = new Found(discover());  // never destroyed: tensors may outlive statics
  return *instance;
}

struct Operators {
  std::mutex mutex;
  std::vector<std::string> names;
};
Operators& operators() {
  static Operators* instance = new Operators;
  return *instance;
}

}  // namespace

bool forked() { return in_child.load(std::memory_order_relaxed); }

int device_count() { return static_cast<int>(found().devices.size()); }

Device& device(int index) {
  if (forked()) {
    rb::fail(
        RB_E_DEVICE,
        "opencl: this process was forked from one that had opened the devices, which do not work "
        "in the child; start processes by 'spawn' instead of 'fork'");
  }
  const auto& devices = found().devices;
  if (devices.empty()) rb::fail(RB_E_DEVICE, "opencl: %s", found().why.c_str());
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    rb::fail(RB_E_DEVICE, "opencl: there is no device %d; there are %d", index,
             static_cast<int>(devices.size()));
  }
  return *devices[index];
}

int32_t fault_number(const char* op) {
  Operators& o = operators();
  std::lock_guard<std::mutex> lock(o.mutex);
  const auto at = std::find(o.names.begin(), o.names.end(), op);
  if (at != o.names.end()) return static_cast<int32_t>(at - o.names.begin()) + 1;
  o.names.push_back(op);
  return static_cast<int32_t>(o.names.size());
}

Device::Device(cl_device_id id, int index) : id_(id), index_(index) {
  fp64_ = info<cl_device_fp_config>(id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  group_limit_ = info<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 256);
  memory_ = info<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  largest_ = info<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  char name[256] = "";
  cl().GetDeviceInfo(id, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  name_ = name;
}

void Device::open() {
  if (!queues_.empty()) return;
  cl_int status;
  context_ = cl().CreateContext(nullptr, 1, &id_, nullptr, nullptr, &status);
  check_cl(status, index_, "clCreateContext");
  auto queue = std::make_unique<Queue>(context_, id_, index_);
  fault_queue_ = std::make_unique<Queue>(context_, id_, index_);
  fault_ = static_cast<int32_t*>(cl().SVMAlloc(context_, CL_MEM_READ_WRITE, 64, 0));
  if (!fault_) rb::fail(RB_E_OOM, "opencl:%d: cannot allocate 64 bytes", index_);
  const int32_t none = 0;
  copy_fault(fault_, &none);
  queues_.push_back(std::move(queue));
}

void* Device::current_stream() const {
  void* stream = nullptr;  // an older core knows no other
  if (RB_HAS(rb::host, stream_get)) rb::check(rb::host->stream_get(backend_id, index_, &stream));
  return stream;
}

void* Device::new_stream() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  open();
  queues_.push_back(std::make_unique<Queue>(context_, id_, index_));
  return queues_.back().get();
}

Queue& Device::queue(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  open();
  if (!stream) return *queues_.front();
  for (const auto& queue : queues_) {
    if (queue.get() == stream) return *queue;
  }
  rb::fail(RB_E_ARG, "opencl:%d: %p is not a stream of this device", index_, stream);
}

Mark Device::last(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  return queue(stream).last();
}

void* Device::allocate(uint64_t nbytes, void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  queue(stream);  // `release` cannot say that there is none
  void* data = nullptr;
  if (nbytes <= largest_ && in_use_ + nbytes <= memory_)
    data = cl().SVMAlloc(context_, CL_MEM_READ_WRITE, nbytes, 0);
  if (!data) {
    rb::fail(RB_E_OOM,
             "opencl:%d (%s): cannot allocate %llu bytes: %llu of %llu are in use, one block holds "
             "at most %llu",
             index_, name_.c_str(), static_cast<unsigned long long>(nbytes),
             static_cast<unsigned long long>(in_use_), static_cast<unsigned long long>(memory_),
             static_cast<unsigned long long>(largest_));
  }
  in_use_ += nbytes;
  return data;
}

// clSVMFree does not wait for the commands that use the memory. Nor can it be left to the queue
// (clEnqueueSVMFree): core releases where memory is short, and asks again at once.
void Device::release(void* data, uint64_t nbytes, void* stream) {
  const Mark mark = last(stream);
  if (mark) {
    cl_event event = mark.get();
    cl().WaitForEvents(1, &event);  // that a command failed is told to who waits for the stream
  }
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  cl().SVMFree(context_, data);
  in_use_ -= nbytes;
}

void Device::synchronize() {
  std::vector<Mark> marks;
  {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    for (const auto& queue : queues_) marks.push_back(queue->last());
  }
  if (marks.empty()) return;  // never opened
  for (const Mark& mark : marks) wait(mark, index_);
  report_fault();
}

void Device::synchronize(const Mark& mark) {
  wait(mark, index_);
  report_fault();
}

void Device::copy_fault(int32_t* to, const int32_t* from) {
  const cl_int status = fault_queue_->add([&](cl_command_queue queue, cl_event* event) {
    return cl().EnqueueSVMMemcpy(queue, CL_TRUE, to, from, sizeof *to, 0, nullptr, event);
  });
  check_cl(status, index_, "clEnqueueSVMMemcpy");
}

void Device::report_fault() {
  int32_t number = 0;
  {
    std::lock_guard<std::mutex> lock(fault_mutex_);
    copy_fault(&number, fault_);
    if (number == 0) return;
    const int32_t none = 0;
    copy_fault(fault_, &none);
  }
  Operators& o = operators();
  std::lock_guard<std::mutex> names(o.mutex);
  rb::fail(RB_E_INDEX,
           "opencl:%d: an earlier call of %s had an index out of range; it read 0 there and wrote "
           "nothing",
           index_, o.names[number - 1].c_str());
}

Mark Device::copy(void* to, const void* from, uint64_t nbytes, void* stream) {
  return enqueue(stream, "clEnqueueSVMMemcpy", [&](cl_command_queue queue, cl_event* event) {
    return cl().EnqueueSVMMemcpy(queue, CL_FALSE, to, from, nbytes, 0, nullptr, event);
  });
}
void Device::write(void* to, const void* from, uint64_t nbytes, void* stream) {
  wait(copy(to, from, nbytes, stream), index_);
}
void Device::read(void* to, const void* from, uint64_t nbytes, void* stream) {
  synchronize(copy(to, from, nbytes, stream));
}
void Device::move(void* to, const void* from, uint64_t nbytes) {
  copy(to, from, nbytes, current_stream());
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

// Rows without gaps of one dtype; core has seen to both.
int32_t copy(void*, const RbTensor* src, const RbTensor* dst, void* stream, uint32_t) {
  return rb::guarded([&] {
    const uint64_t nbytes = static_cast<uint64_t>(src->numel) * (src->dtype.bits / 8);
    if (nbytes == 0) return;
    const bool from_here = is_here(*src), to_here = is_here(*dst);
    if (from_here && to_here) {
      // Two contexts: no memory is common to both. What waits for both streams is the host.
      std::vector<char> between(nbytes);
      Device& from = device_of(*src);
      from.read(between.data(), src->data, nbytes, from.current_stream());
      device_of(*dst).write(dst->data, between.data(), nbytes, stream);
    } else if (to_here) {
      device_of(*dst).write(dst->data, src->data, nbytes, stream);
    } else {
      device_of(*src).read(dst->data, src->data, nbytes, stream);
    }
  });
}

// A driver's threads begin with the search for devices, which `init` has made.
void fork_child(void*) { in_child.store(true); }

int32_t allocate(void*, int32_t index, uint64_t nbytes, void* stream, RbBuffer* out) {
  return rb::guarded([&] { out->data = device(index).allocate(nbytes, stream); });
}
void release(void*, RbBuffer* buffer, void* stream) {
  if (!forked()) device(buffer->device_index).release(buffer->data, buffer->nbytes, stream);
}

}  // namespace

const RbDevices kDevices = {
    RB_SIZE(RbDevices, fork_child), 0, nullptr, count, sync, copy, fork_child};
const RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};

}  // namespace rbcl

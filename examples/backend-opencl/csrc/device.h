// Devices: discovery, memory, one in-order queue each, copies, the end of a fork.
//
// Memory is coarse-grained shared virtual memory (OpenCL 2.0): `RbTensor.data` is an address that
// kernels take as it is, so a view with an offset is just another address. The host never reads
// through it.
//
// Everything is enqueued and returns. A queue is in order: memory that core hands out again is not
// touched before the kernels that used it are done. Only copies to the host and `sync` wait.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "library.h"
#include "rabbet/plugin.hpp"

namespace rbcl {

constexpr const char* kBackendName = "opencl";

/// Throw RB_E_DEVICE unless `status` is CL_SUCCESS.
void check_cl(cl_int status, int device, const char* what);

class Device {
 public:
  Device(cl_device_id id, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  bool has_fp64() const { return fp64_; }
  size_t group_limit() const { return group_limit_; }

  /// Raw memory; throws RB_E_OOM with sizes.
  void* allocate(uint64_t nbytes);
  void release(void* data, uint64_t nbytes);

  /// Wait for the queue, then report an index that a kernel found out of range (RB_E_INDEX).
  void synchronize();
  void write(void* to, const void* from, uint64_t nbytes);  // from host memory
  void read(void* to, const void* from, uint64_t nbytes);   // to host memory; synchronizes
  void move(void* to, const void* from, uint64_t nbytes);   // within the device
  void fill(void* to, const void* pattern, size_t size, uint64_t nbytes);

  /// Where kernels note the first index out of range: the operator's number.
  int32_t* fault() const { return fault_; }

 private:
  friend class Launch;

  void open();  // context and queue, at first use
  cl_kernel kernel(int dtype, const char* name);
  cl_program program(int dtype);

  cl_device_id id_;
  const int index_;
  bool open_ = false, fp64_ = false;
  size_t group_limit_ = 256;
  uint64_t memory_ = 0, largest_ = 0, in_use_ = 0;
  std::string name_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  int32_t* fault_ = nullptr;
  std::recursive_mutex
      mutex_;  // arguments of a kernel belong to its object: set and enqueued under it
  std::unordered_map<int, cl_program> programs_;
  std::unordered_map<std::string, cl_kernel> kernels_;
};

/// Devices of all platforms that offer coarse-grained shared virtual memory; never fails.
int device_count();
/// Throws RB_E_DEVICE where there is none of this index, or after a fork.
Device& device(int index);
inline Device& device_of(const RbTensor& t) { return device(t.device.id); }

/// This backend's id, which core gave it.
extern int32_t backend_id;
inline bool is_here(const RbTensor& t) { return t.backend == backend_id; }

/// Number of an operator for `Device::fault`.
int32_t fault_number(const char* op);

extern const RbDevices kDevices;
extern const RbAllocator kAllocator;

}  // namespace rbcl

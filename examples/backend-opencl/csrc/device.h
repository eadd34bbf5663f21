// Devices: discovery, memory, queues, copies, the end of a fork.
//
// Memory is coarse-grained shared virtual memory (OpenCL 2.0): `RbTensor.data` is an address that
// kernels take as it is, so a view with an offset is just another address. The host never reads
// through it.
//
// Everything is enqueued and returns. A device has a queue for each of its streams: the default
// one, null, which comes with it, and those that core asks for (streams.cpp). Which is a thread's
// is known to core, and whatever a thread enqueues goes there: an operator's kernels, its temporary
// memory and copies are one after the other. Queues are in order: memory that core hands out again
// for the stream that had it is not touched before the kernels that used it are done. Between
// queues there is no order but by events.
//
// Only copies between the host and the device, waits for a stream, an event or the device, and the
// end of a block of memory wait; they do so without the device's mutex, so that other threads can
// go on enqueuing.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "queue.h"
#include "rabbet/plugin.hpp"

namespace rbcl {

constexpr const char* kBackendName = "opencl";

struct Extra;  // program.h

class Device {
 public:
  Device(cl_device_id id, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const { return index_; }
  bool has_fp64() const { return fp64_; }
  size_t group_limit() const { return group_limit_; }

  /// The calling thread's, as core's handle; null: the default one.
  void* current_stream() const;
  /// A further one, for as long as the process lives.
  void* new_stream();
  /// Of a stream's handle; throws RB_E_ARG where the device has no such stream.
  Queue& queue(void* stream);
  /// Enqueue one command, as Queue::add does; `what` it is, for errors.
  template <class Enqueue>
  Mark enqueue(void* stream, const char* what, const Enqueue& command) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    Queue& to = queue(stream);
    check_cl(to.add(command), index_, what);
    return to.last();
  }
  /// What a stream was given last.
  Mark last(void* stream);

  /// Raw memory, to be used on `stream` first; throws RB_E_OOM with sizes.
  void* allocate(uint64_t nbytes, void* stream);
  void release(void* data, uint64_t nbytes, void* stream);

  /// Wait for all streams, or one, or a mark, then report an index that a kernel found out of range
  /// (RB_E_INDEX).
  void synchronize();
  void synchronize(void* stream) { synchronize(last(stream)); }
  void synchronize(const Mark& mark);

  void write(void* to, const void* from, uint64_t nbytes, void* stream);  // from host memory
  void read(void* to, const void* from, uint64_t nbytes, void* stream);   // to it; reports as above
  void move(void* to, const void* from, uint64_t nbytes);  // within the device, current stream
  /// Where kernels of all streams note the first index out of range: the operator's number.
  int32_t* fault() const { return fault_; }

 private:
  friend class Launch;

  void open();  // context and default queue, at first use
  Mark copy(void* to, const void* from, uint64_t nbytes, void* stream);
  void copy_fault(int32_t* to, const int32_t* from);
  void report_fault();
  cl_kernel kernel(int dtype, const char* name, const Extra& extra);
  cl_program program(int dtype, const Extra& extra);

  cl_device_id id_;
  const int index_;
  bool fp64_ = false;
  size_t group_limit_ = 256;
  uint64_t memory_ = 0, largest_ = 0, in_use_ = 0;
  std::string name_;
  cl_context context_ = nullptr;
  std::vector<std::unique_ptr<Queue>> queues_;  // of the streams, the default one's first
  int32_t* fault_ = nullptr;
  std::mutex fault_mutex_;  // one thread reports a fault
  // By itself, so that who has waited for one stream need not wait for others to learn of faults.
  std::unique_ptr<Queue> fault_queue_;
  // Queues, and kernels: a kernel's arguments belong to its object, are set and enqueued under it.
  std::recursive_mutex mutex_;
  std::unordered_map<int, cl_program> programs_;  // by dtype and id of what is extra
  std::unordered_map<std::string, cl_kernel> kernels_;
};

/// Devices of all platforms that offer coarse-grained shared virtual memory; never fails.
int device_count();
/// Throws RB_E_DEVICE where there is none of this index, or after a fork.
Device& device(int index);
/// In a child of a process that had opened the devices: the driver's threads are not here.
bool forked();
inline Device& device_of(const RbTensor& t) { return device(t.device.id); }

/// This backend's id, which core gave it.
extern int32_t backend_id;
inline bool is_here(const RbTensor& t) { return t.backend == backend_id; }

/// Number of an operator for `Device::fault`.
int32_t fault_number(const char* op);

extern const RbDevices kDevices;
extern const RbAllocator kAllocator;
extern const RbStreams kStreams;  // streams.cpp

}  // namespace rbcl

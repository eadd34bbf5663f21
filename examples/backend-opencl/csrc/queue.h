// A queue, which is what a stream is here, and marks: commands in it that can be waited for.
#pragma once
#include <memory>
#include <type_traits>

#include "library.h"

namespace rbcl {

/// Throw RB_E_DEVICE unless `status` is CL_SUCCESS.
void check_cl(cl_int status, int device, const char* what);

/// A command of a queue, counted; null: none, which is over.
using Mark = std::shared_ptr<std::remove_pointer_t<cl_event>>;

/// Whether the command is over; throws RB_E_DEVICE if it failed.
bool passed(const Mark& mark, int device);
void wait(const Mark& mark, int device);
/// Nanoseconds of the device's clock at which the command was over.
cl_ulong end_of(const Mark& mark, int device);

/// An in-order queue and its last command: OpenCL does not tell whether a queue has work to do, but
/// whether a command is over. One thread at a time.
class Queue {
 public:
  Queue(cl_context context, cl_device_id id, int device);  // never destroyed, as streams are not
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// `enqueue(queue, event)` enqueues one command and returns OpenCL's status, as this does.
  template <class Enqueue>
  cl_int add(const Enqueue& enqueue) {
    cl_event event = nullptr;
    const cl_int status = enqueue(queue_, &event);
    if (status != CL_SUCCESS) return status;
    last_ = Mark(event, release);
    // Drivers may hold commands back until someone waits: the device should work meanwhile, and a
    // queue that waits for this one would do so for ever.
    return cl().Flush(queue_);
  }
  const Mark& last() const { return last_; }

 private:
  static void release(cl_event event) { cl().ReleaseEvent(event); }

  cl_command_queue queue_;
  Mark last_;
};

}  // namespace rbcl

// Operators that core itself runs, on any backend: no kernel is looked up for them.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"
#include "thread/thread_state.h"

namespace rabbet {

/// Set Op::core_fn of the operators that core runs (empty, empty_like, to_device), and
/// Op::core_decomp.
void core_attach(Op& op);

/// What writes one tensor to another, within a backend and between devices.
const Op* copy_op();
/// Warn or throw, as Python's set_sync_debug_mode asked for: `what` waits for the device.
void tell_of_sync(int backend, int device, const char* what);
/// dst's elements become src's, cast; across devices as well. Shapes are equal. Throws Error.
void copy_tensor(const RbTensor* src, RbTensor* dst);
/// A copy of `t` on a device, in the order that it has in memory. Throws Error.
TensorRef on_device(const RbTensor* t, int backend, int device);
/// While it lives, the calling thread's copies between devices and pinned memory do not wait, and
/// what goes to the host goes to pinned memory where the backend has it.
class NonBlocking {
 public:
  explicit NonBlocking(bool on) : before_(thread_state().nonblocking) {
    thread_state().nonblocking = on || before_;
  }
  ~NonBlocking() { thread_state().nonblocking = before_; }
  NonBlocking(const NonBlocking&) = delete;
  NonBlocking& operator=(const NonBlocking&) = delete;

 private:
  const bool before_;
};
/// `t` in another dtype, by a call that layers see. Throws Error.
TensorRef call_cast(RbTensor* t, int dtype);
/// The operator that does it.
const Op& cast_op();

}  // namespace rabbet

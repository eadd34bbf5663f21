// The transform stack: levels that a thread has entered (vmap, jvp), the wrappers that stand for
// their values, and the handler of the key that wrappers carry.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"
#include "thread/thread_state.h"

namespace rabbet {

/// Handler of kTransformSlot: hands a call to the transform of the call's level.
int32_t run_transform(void* self, const RbCall* call, const RbValue* args, int32_t nargs,
                      RbValue* rets, int32_t nrets);

/// Enter a level of `layer`, whose phase is that of transforms; returns its number.
int32_t transform_push(int32_t layer, void* frame, uint32_t flags);
/// Leave the last level, which must be `level`.
void transform_pop(int32_t level);
/// Run `body` as a handler of `level` runs; returns what it returns.
int32_t transform_below(int32_t level, int32_t (*body)(void*), void* ctx);

/// A tensor of `level` that stands for `inner` (and `second`, or null); both are shared.
Tensor* tensor_wrap(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits, int ndim,
                    const int64_t* shape, const int64_t* strides);

/// A tensor of `level` that stands for `inner` without showing its dimension `dim`, which is the
/// wrapper's `bits`.
Tensor* tensor_wrap_along(int32_t level, TensorRef inner, int64_t dim);

/// The same values in the same storage, without plugin data and without a view record.
Tensor* tensor_alias(RbTensor* t);

/// The tensor whose memory holds the value of `t`: itself, or what its transform or the layer of a
/// composite gives for it. Its kernels have run. Throws Error naming `what` where there is none.
TensorRef readable(const RbTensor* t, const char* what);

/// Throw where `t` is a view or alias of a composite whose parts were replaced; `what` is called.
void check_current(const RbTensor* t, const char* what);
/// What a tensor without memory is made of. Throws RB_E_TYPE for one that has memory.
Composition composition(const RbTensor* t);

/// While a kernel runs that may call anything: it is outside all levels, and may enter its own.
class InsideKernel {
 public:
  InsideKernel() : exclude_(state_.exclude), depth_(state_.depth), floor_(state_.floor) {
    state_.exclude &= ~(uint64_t{1} << kTransformSlot);
    state_.depth = state_.floor = static_cast<int32_t>(state_.levels.size());
  }
  ~InsideKernel() {
    state_.exclude = exclude_;
    state_.depth = depth_;
    state_.floor = floor_;
  }
  InsideKernel(const InsideKernel&) = delete;
  InsideKernel& operator=(const InsideKernel&) = delete;

 private:
  ThreadState& state_ = thread_state();
  uint64_t exclude_;
  int32_t depth_, floor_;
};

/// Whether a call may draw random numbers, itself or in the formula that it is decomposed into.
bool draws(const Op& op);

/// Whether a call of `op` concerns a transform of a higher level than its tensors; sets `level`.
bool concerns_transform(const Op& op, int32_t* level);

}  // namespace rabbet

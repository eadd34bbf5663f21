// Operators that core itself runs, on any backend: no kernel is looked up for them.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Set Op::core_fn of the operators that core runs (empty, empty_like, to_device).
void core_attach(Op& op);

/// dst's elements become src's, cast; across devices as well. Shapes are equal. Throws Error.
void copy_tensor(const RbTensor* src, RbTensor* dst);
/// A copy of `t` on a device, in the order that it has in memory. Throws Error.
TensorRef on_device(const RbTensor* t, int backend, int device);
/// `t` in another dtype, by a call that layers see. Throws Error.
TensorRef call_cast(RbTensor* t, int dtype);

}  // namespace rabbet

// What the indexing operators share.
#pragma once
#include <limits>

#include "view.h"

namespace rbcl {

/// Index tensors as int64 in the device's memory, with their strides.
class Index {
 public:
  Index(const char* op, Device& device, const RbTensor& t) : view_(view_of(t)) {
    if (!(kInt >> t.dtype_id & 1)) {
      rb::fail(RB_E_TYPE, "%s: expected indices of int64, got %s", op, dtype_name(t.dtype_id));
    }
    if (t.dtype_id == RB_I64) return;
    wide_ = std::make_unique<DenseInput>(device, t, RB_I64);
    view_ = dense_view(wide_->data(), RB_I64, view_);
  }
  const View& view() const { return view_; }

 private:
  View view_;
  std::unique_ptr<DenseInput> wide_;
};

/// An unsigned dtype of the size of `dtype`, for kernels that only move elements.
inline int bits_dtype(int dtype) {
  return item_size(dtype) == 1 ? RB_BOOL8 : item_size(dtype) == 4 ? RB_F32 : RB_I64;
}

}  // namespace rbcl

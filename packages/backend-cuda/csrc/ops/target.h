// Contiguous memory for the results of kernels and libraries that need it.
#pragma once
#include "launch/temporary.h"
#include "ops/families.h"

namespace rbcuda {

/// A result's own memory if it is contiguous and aligned, else temporary memory, which done()
/// copies to the result.
class Target {
 public:
  Target(const char* op, const RbTensor& out, uintptr_t aligned = 1) : op_(op), out_(out) {
    if (!(out.flags & RB_T_CONTIGUOUS) || reinterpret_cast<uintptr_t>(out.data) % aligned)
      room_ = Temporary(out, out.dtype_id, out.ndim, out.shape);
  }
  const RbTensor& tensor() const { return room_.is_made() ? room_.tensor() : out_; }
  void* data() const { return tensor().data; }
  void done() const {
    if (room_.is_made()) copy(op_, out_, room_.tensor());
  }

 private:
  const char* op_;
  const RbTensor& out_;
  Temporary room_;
};

/// A contiguous copy of `t`.
inline Temporary dense_copy(const char* op, const RbTensor& t) {
  Temporary made(t, t.dtype_id, t.ndim, t.shape);
  copy(op, made.tensor(), t);
  return made;
}

}  // namespace rbcuda

#include "launch/view.h"

#include <algorithm>

namespace rbcuda {
namespace {

int64_t count(const RbTensor& t) {
  int64_t n = 1;
  for (int d = 0; d < t.ndim; ++d) n *= t.shape[d];
  return n;
}

}  // namespace

View::View(const RbTensor& t) : tensor_(t) {
  std::copy(t.shape, t.shape + t.ndim, shape_);
  std::copy(t.strides, t.strides + t.ndim, strides_);
  tensor_.shape = shape_;
  tensor_.strides = strides_;
  tensor_.flags &= ~static_cast<uint32_t>(RB_T_CONTIGUOUS);  // may cease to be
}

void View::add(int64_t size, int64_t stride) {
  shape_[tensor_.ndim] = size;
  strides_[tensor_.ndim++] = stride;
  tensor_.numel *= size;
}

void View::drop(int d) {
  std::copy(shape_ + d + 1, shape_ + tensor_.ndim, shape_ + d);
  std::copy(strides_ + d + 1, strides_ + tensor_.ndim, strides_ + d);
  --tensor_.ndim;
  tensor_.numel = count(tensor_);
}

void View::narrow(int d, int64_t start, int64_t size, int64_t step) {
  tensor_.data = static_cast<char*>(tensor_.data) + start * strides_[d] * (tensor_.dtype.bits / 8);
  shape_[d] = size;
  strides_[d] *= step;
  tensor_.numel = count(tensor_);
}

View scalar_view(const RbTensor& t) {
  RbTensor none = t;
  none.ndim = 0;
  none.numel = 1;
  return View(none);
}

}  // namespace rbcuda

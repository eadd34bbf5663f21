#include "launch/view.h"

#include <algorithm>

#include "device/dtypes.h"

namespace rbcuda {
namespace {

int64_t count(const RbTensor& t) {
  int64_t n = 1;
  for (int d = 0; d < t.ndim; ++d) n *= t.shape[d];
  return n;
}

}  // namespace

View::View(const RbTensor& t, int ndim) : tensor_(t) {
  std::copy(t.shape, t.shape + ndim, shape_);
  std::copy(t.strides, t.strides + ndim, strides_);
  tensor_.shape = shape_;
  tensor_.strides = strides_;
  if (ndim != t.ndim) {
    tensor_.ndim = ndim;
    tensor_.numel = count(tensor_);
  }
  tensor_.flags &= ~static_cast<uint32_t>(RB_T_CONTIGUOUS);  // may cease to be
}

View& View::operator=(const View& other) {
  tensor_ = other.tensor_;
  std::copy(other.shape_, other.shape_ + tensor_.ndim, shape_);
  std::copy(other.strides_, other.strides_ + tensor_.ndim, strides_);
  tensor_.shape = shape_;
  tensor_.strides = strides_;
  return *this;
}

void View::set_dtype(int dtype) {
  RbDTypeInfo info = {};
  info.struct_size = sizeof info;
  rb::check(rb::host->dtype_info(dtype, &info));
  tensor_.dtype_id = static_cast<uint16_t>(dtype);
  tensor_.dtype = info.dlpack;
}

void View::drop(int d) {
  std::copy(shape_ + d + 1, shape_ + tensor_.ndim, shape_ + d);
  std::copy(strides_ + d + 1, strides_ + tensor_.ndim, strides_ + d);
  --tensor_.ndim;
  tensor_.numel = count(tensor_);
}

void View::narrow(int d, int64_t start, int64_t size, int64_t step) {
  tensor_.data =
      static_cast<char*>(tensor_.data) + start * strides_[d] * stored_size(tensor_.dtype_id);
  shape_[d] = size;
  strides_[d] *= step;
  tensor_.numel = count(tensor_);
}

View part_of(const RbTensor& t, int part) {
  RbTensor real = t;
  real.dtype_id = t.dtype_id == RB_C64 ? RB_F32 : RB_F64;
  real.dtype = {2, static_cast<uint8_t>(t.dtype.bits / 2), 1};  // DLPack's float
  real.data = static_cast<char*>(t.data) + part * (real.dtype.bits / 8);
  int64_t strides[RB_MAX_DIMS];
  for (int d = 0; d < t.ndim; ++d) strides[d] = 2 * t.strides[d];
  real.strides = strides;
  real.flags &= ~RB_T_CONTIGUOUS;
  return View(real);
}

View turned(const RbTensor& t) {
  View view = scalar_view(t);
  for (int d = t.ndim - 1; d >= 0; --d) view.add(t.shape[d], t.strides[d]);
  return view;
}

}  // namespace rbcuda

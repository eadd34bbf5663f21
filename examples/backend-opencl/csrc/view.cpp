#include "view.h"

#include <algorithm>

namespace rbcl {

bool View::contiguous() const {
  int64_t dense = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != dense) return false;
    dense *= shape[d];
  }
  return true;
}

View View::narrowed(int dim, int64_t start, int64_t n, int64_t step) const {
  View v = *this;
  v.data += start * strides[dim] * item();
  v.shape[dim] = n;
  v.strides[dim] *= step;
  return v;
}

View view_of(const RbTensor& t) {
  View v;
  v.data = static_cast<char*>(t.data);
  v.dtype = t.dtype_id;
  v.ndim = t.ndim;
  std::copy(t.shape, t.shape + t.ndim, v.shape);
  std::copy(t.strides, t.strides + t.ndim, v.strides);
  return v;
}

View dense_view(void* data, int dtype, const View& like) {
  View v;
  v.data = static_cast<char*>(data);
  v.dtype = dtype;
  v.ndim = like.ndim;
  int64_t dense = 1;
  for (int d = like.ndim - 1; d >= 0; --d) {
    v.shape[d] = like.shape[d];
    v.strides[d] = dense;
    dense *= like.shape[d];
  }
  return v;
}

View broadcast(const View& v, int ndim, const int64_t* shape) {
  View wide = v;
  wide.ndim = ndim;
  for (int d = 0; d < ndim; ++d) {
    const int own = d - (ndim - v.ndim);
    wide.shape[d] = shape[d];
    wide.strides[d] = own < 0 || v.shape[own] == 1 ? 0 : v.strides[own];
  }
  return wide;
}

View at_least_1d(View v) {
  if (v.ndim == 0) {
    v.ndim = 1;
    v.shape[0] = v.strides[0] = 1;
  }
  return v;
}

Space space_of(const char* op, std::initializer_list<const View*> views) {
  const View* const* v = views.begin();
  const int count = static_cast<int>(views.size());
  Space s = {};
  s.n = v[0]->numel();
  int ndim = 0;
  int64_t shape[kMaxDims], strides[kSpaceViews][kMaxDims];
  for (int d = 0; d < v[0]->ndim; ++d) {
    const int64_t size = v[0]->shape[d];
    if (size == 1) continue;
    bool joins = ndim > 0;
    for (int k = 0; joins && k < count; ++k)
      joins = strides[k][ndim - 1] == v[k]->strides[d] * size;
    if (joins) {
      shape[ndim - 1] *= size;
    } else {
      shape[ndim++] = size;
    }
    for (int k = 0; k < count; ++k) strides[k][ndim - 1] = v[k]->strides[d];
  }
  if (ndim > kSpaceDims) {
    rb::fail(RB_E_NOTIMPL,
             "%s on 'opencl': at most %d dimensions that do not lie one after another, got %d", op,
             kSpaceDims, ndim);
  }
  if (ndim == 0) {  // one element
    ndim = 1;
    shape[0] = s.n;
    for (int k = 0; k < count; ++k) strides[k][0] = 0;
  }
  s.ndim = ndim;
  std::copy(shape, shape + ndim, s.shape);
  for (int k = 0; k < count; ++k) std::copy(strides[k], strides[k] + ndim, s.strides[k]);
  return s;
}

Temp::Temp(const Device& device, int dtype, int64_t numel) {
  rb::check(rb::host->tensor_new(backend_id, device.index(), dtype, 1, &numel, nullptr, &tensor_));
}
Temp::~Temp() { rb::host->release(tensor_); }

DenseInput::DenseInput(Device& device, const RbTensor& t, int dtype) {
  set(device, view_of(t), dtype);
}
DenseInput::DenseInput(Device& device, const View& v, int dtype) { set(device, v, dtype); }

void DenseInput::set(Device& device, const View& v, int dtype) {
  data_ = v.data;
  if (v.dtype == dtype && v.contiguous()) return;
  copy_ = std::make_unique<Temp>(device, dtype, v.numel());
  data_ = copy_->data();
  copy_view(device, dense_view(data_, dtype, v), v);
}

DenseResult::DenseResult(Device& device, const RbTensor& t) : device_(device), view_(view_of(t)) {
  data_ = view_.data;
  if (t.flags & RB_T_CONTIGUOUS) return;
  copy_ = std::make_unique<Temp>(device, view_.dtype, t.numel);
  data_ = copy_->data();
}
void DenseResult::finish() const {
  if (copy_) copy_view(device_, view_, dense_view(data_, view_.dtype, view_));
}

int32_t add_table(const RbHost* host, RbTxn* txn, const rb::KernelSpec* specs, size_t n,
                  uint64_t dtypes) {
  for (size_t i = 0; i < n; ++i) {
    rb::KernelSpec spec = specs[i];
    spec.dtype_mask = (spec.dtype_mask ? spec.dtype_mask : kAll) & dtypes;
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &spec, 1)) return code;
  }
  return RB_OK;
}

void check_dtype(const rb::Args& a, int dtype, uint64_t mask) {
  if (mask >> dtype & 1) return;
  rb::fail(RB_E_NOTIMPL,
           "%s on 'opencl' supports bool, int32, int64, float32 and, where the device does, "
           "float64; got %s",
           a.op_name(), dtype_name(dtype));
}

}  // namespace rbcl

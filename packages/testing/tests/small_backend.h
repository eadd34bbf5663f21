// What the small backends of the tests share: memory of malloc, and elements of tensors one by one.
#pragma once
#include <cstdlib>
#include <cstring>

#include "rabbet/plugin.hpp"

namespace small {

inline int32_t allocate(void*, int32_t device, uint64_t nbytes, void*, RbBuffer* out) {
  out->data = nbytes < uint64_t{1} << 40 ? std::malloc(nbytes ? nbytes : 1) : nullptr;
  if (!out->data) return rb::set_error(RB_E_OOM, "there is no memory");
  out->nbytes = nbytes;
  out->ctx = nullptr;
  out->device_index = device;
  out->flags = 0;
  return RB_OK;
}
inline void release(void*, RbBuffer* buffer, void*) { std::free(buffer->data); }
inline int32_t count(void*, int32_t* n) { return *n = 1, RB_OK; }
inline int32_t sync(void*, int32_t) { return RB_OK; }
inline int32_t copy_bytes(const RbTensor* src, const RbTensor* dst, int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * (src->dtype.bits / 8);
  if (bytes) std::memcpy(dst->data, src->data, bytes);
  return RB_OK;
}
constexpr RbAllocator kAllocator = {RB_SIZE(RbAllocator, free), 0, nullptr, allocate, release};

inline RbPlugin plugin(const char* wheel, int32_t (*init)(const RbHost*, RbTxn*)) {
  return {RB_SIZE(RbPlugin, retire),
          RB_ABI_MAJOR,
          RB_ABI_MINOR,
          RB_ABI_MINOR,
          0,
          0,
          wheel,
          "1.0",
          init,
          nullptr};
}

// The element of `t` (broadcast to `out`) that belongs to element `n` of `out`.
template <class T>
T* at(const RbTensor& t, const RbTensor& out, int64_t n) {
  int64_t offset = 0;
  for (int d = out.ndim - 1, k = t.ndim - 1; d >= 0; --d, --k) {
    const int64_t i = n % out.shape[d];
    n /= out.shape[d];
    if (k >= 0 && t.shape[k] > 1) offset += i * t.strides[k];
  }
  return static_cast<T*>(t.data) + offset;
}

template <class T>
T operand(const RbValue& v, const RbTensor& out, int64_t n) {
  if (v.tag == RB_TENSOR) return *at<T>(*v.v.t, out, n);
  return static_cast<T>(v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i));
}

template <class T, class F>
void fill(const rb::Args& a, const F& f) {
  const RbTensor& out = a.ret();
  for (int64_t n = 0; n < out.numel; ++n) *at<T>(out, out, n) = f(n);
}

}  // namespace small

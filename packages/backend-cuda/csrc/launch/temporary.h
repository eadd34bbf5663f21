// Device memory for the time of a call: core's allocator orders its reuse on the current stream.
#pragma once
#include <utility>

#include "rabbet/plugin.hpp"

namespace rbcuda {

class Temporary {
 public:
  Temporary() = default;
  /// Rows without gaps, where `like` lies.
  Temporary(const RbTensor& like, int dtype, int ndim, const int64_t* shape) {
    rb::check(
        rb::host->tensor_new(like.backend, like.device.id, dtype, ndim, shape, nullptr, &tensor_));
  }
  /// Bytes.
  Temporary(const RbTensor& like, int64_t nbytes) : Temporary(like, RB_U8, 1, &nbytes) {}
  Temporary(Temporary&& other) noexcept : tensor_(other.tensor_) { other.tensor_ = nullptr; }
  Temporary& operator=(Temporary&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Temporary() {
    if (tensor_) rb::host->release(tensor_);
  }

  bool is_made() const { return tensor_ != nullptr; }
  void* data() const { return tensor_ ? tensor_->data : nullptr; }
  const RbTensor& tensor() const { return *tensor_; }

 private:
  RbTensor* tensor_ = nullptr;
};

}  // namespace rbcuda

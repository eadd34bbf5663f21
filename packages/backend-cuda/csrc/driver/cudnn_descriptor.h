// Descriptors of cuDNN's backend API: made, filled and finalized.
#pragma once
#include <memory>
#include <utility>

#include "driver/cudnn.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {

struct DnnDestroy {
  void operator()(void* descriptor) const { cudnn()->destroy(descriptor); }
};
using DnnOwned = std::unique_ptr<void, DnnDestroy>;

class DnnMaker {
 public:
  DnnMaker(int device, int kind) : device_(device) {
    DnnDescriptor made = nullptr;
    check_cudnn(cudnn()->make(kind, &made), device, "cudnnBackendCreateDescriptor");
    made_.reset(made);
  }
  template <class T>
  DnnMaker& set(int attribute, int type, const T* values, int64_t count = 1) {
    check_cudnn(cudnn()->set(made_.get(), attribute, type, count, values), device_,
                "cudnnBackendSetAttribute");
    return *this;
  }
  DnnMaker& set(int attribute, const DnnOwned& descriptor) {
    void* raw = descriptor.get();
    return set(attribute, kDnnAsDescriptor, &raw);
  }
  DnnOwned finish() {
    check_cudnn(cudnn()->finalize(made_.get()), device_, "cudnnBackendFinalize");
    return release();
  }
  /// As it is: finalized by somebody else, or filled by cuDNN.
  DnnOwned release() { return std::move(made_); }

 private:
  int device_;
  DnnOwned made_;
};

/// Of f16, bf16 and f32.
inline int dnn_data_type(int dtype) {
  return dtype == RB_F16 ? kDnnHalf : dtype == RB_BF16 ? kDnnBFloat16 : kDnnFloat;
}

}  // namespace rbcuda

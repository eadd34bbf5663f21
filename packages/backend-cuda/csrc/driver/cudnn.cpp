#include "driver/cudnn.h"

#include "driver/cublaslt.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCudnn = {"cuDNN",         "RABBET_CUDA_CUDNN", {"cudnn/lib"}, {},
                            "libcudnn.so.9", {"libcudnn.so.9"},   nullptr};

}  // namespace

const Cudnn* cudnn() {
  static const auto table = open_optional<Cudnn>(
      kCudnn, kCudnn,
      [](Cudnn& table, void* opened, const char* what) {
        RB_CUDA_CUDNN(RB_CUDA_LOAD)
        table.error_string = reinterpret_cast<decltype(table.error_string)>(
            symbol(opened, "cudnnGetErrorString", what));
      },
      [] {  // Its engines use these two, which they find only where they are open.
        cublaslt();
        nvrtc();
      });
  return table ? &*table : nullptr;
}

int64_t cudnn_version() {
  static const int64_t version = [] {
    void* opened = is_left_out(kCudnn) ? nullptr : open_if_there(kCudnn);
    if (!opened) return int64_t{0};
    const auto get = reinterpret_cast<size_t (*)()>(symbol(opened, "cudnnGetVersion", kCudnn.what));
    return static_cast<int64_t>(get());
  }();
  return version;
}

void check_cudnn(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  rb::fail(is_dnn_unsupported(status) ? RB_E_NOTIMPL : RB_E_DEVICE,
           "%s%scuda:%d: %s failed: %s (cuDNN status %d)", op ? op : "", op ? " on " : "", device,
           what, cudnn()->error_string(status), status);
}

}  // namespace rbcuda

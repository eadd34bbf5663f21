#include "driver/cublas.h"

#include "driver/cublaslt.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCublas = {"cuBLAS", "RABBET_CUDA_CUBLAS", {"cu13/lib", "cublas/lib"},
                             {},       "libcublas.so.1*",    {"libcublas.so.13", "libcublas.so.12"},
                             nullptr};

constexpr Library kCublas12 = {"cuBLAS",           "RABBET_CUDA_CUBLAS", {"cublas/lib"}, {},
                               "libcublas.so.12*", {"libcublas.so.12"},  nullptr};

}  // namespace

const char* const kCublasMissing =
    "cuBLAS was not found: pip install 'rabbet-backend-cuda[cuda13]' (or [cuda12] where the driver "
    "is "
    "of CUDA 12)";

const Cublas* cublas() {
  static const struct Opened {
    Cublas table;
    bool there;
  } instance = [] {
    Opened made = {};
    if (is_left_out(kCublas)) return made;
    cublaslt();  // which it needs, and finds where it is open
    void* opened = open_if_there(is_driver_of_12() ? kCublas12 : kCublas);
    if (!opened) return made;
    const char* what = kCublas.what;
    Cublas& table = made.table;
    RB_CUDA_CUBLAS(RB_CUDA_LOAD)
    made.there = true;
    return made;
  }();
  return instance.there ? &instance.table : nullptr;
}

void check_cublas(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  rb::fail(status == kLtNoMemory ? RB_E_OOM : RB_E_DEVICE, "%s on 'cuda:%d': %s", op, device,
           cublaslt_failure(what, status).c_str());
}

}  // namespace rbcuda

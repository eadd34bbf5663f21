#include "driver/cublas.h"

#include "driver/cublaslt.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCublas = {"cuBLAS",
                             "RABBET_CUDA_CUBLAS",
                             {"cu13/lib", "cublas/lib"},
                             {},
                             "libcublas.so.1*",
                             {"libcublas.so.13", "libcublas.so.12"},
                             "cuBLAS was not found: pip install 'rabbet-backend-cuda[cuda13]' (or "
                             "[cuda12] where the driver is of CUDA 12)"};

constexpr Library kCublas12 = {"cuBLAS",           "RABBET_CUDA_CUBLAS", {"cublas/lib"}, {},
                               "libcublas.so.12*", {"libcublas.so.12"},  nullptr};

}  // namespace

const Cublas* cublas() {
  static const auto table = open_optional<Cublas>(
      kCublas, kCublas12,
      [](Cublas& table, void* opened, const char* what) { RB_CUDA_CUBLAS(RB_CUDA_LOAD) },
      [] { cublaslt(); });  // it uses cuBLASLt, and finds it only if it is open
  return table ? &*table : nullptr;
}

void need_cublas() {
  if (!cublas()) rb::fail(RB_E_NOTIMPL, "%s", kCublas.missing);
}

void check_cublas(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  rb::fail(status == kLtNoMemory ? RB_E_OOM : RB_E_DEVICE, "%s on 'cuda:%d': %s", op, device,
           cublaslt_failure(what, status).c_str());
}

}  // namespace rbcuda

#include "driver/cublaslt.h"

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCublasLt = {
    "cuBLASLt", "RABBET_CUDA_CUBLASLT", {"cu13/lib", "cublas/lib"},
    {},         "libcublasLt.so.1*",    {"libcublasLt.so.13", "libcublasLt.so.12"},
    nullptr};

constexpr Library kCublasLt12 = {"cuBLASLt",           "RABBET_CUDA_CUBLASLT", {"cublas/lib"}, {},
                                 "libcublasLt.so.12*", {"libcublasLt.so.12"},  nullptr};

}  // namespace

const CublasLt* cublaslt() {
  static const auto table = open_optional<CublasLt>(
      kCublasLt, kCublasLt12,
      [](CublasLt& table, void* opened, const char* what) { RB_CUDA_CUBLASLT(RB_CUDA_LOAD) });
  return table ? &*table : nullptr;
}

std::string cublaslt_failure(const char* what, int status) {
  return failure_text("cuBLAS", what, status,
                      {{kLtNotInitialized, "the library could not start: no device or driver"},
                       {kLtNoMemory, "no memory"},
                       {kLtInvalidValue, "an invalid value"},
                       {kLtOtherArchitecture, "not for this architecture"},
                       {kLtExecutionFailed, "the execution failed"},
                       {kLtInternalError, "an internal error"},
                       {kLtNotSupported, "not supported"}});
}

void check_cublaslt(int status, int device, const char* what) {
  if (__builtin_expect(status == 0, 1)) return;
  rb::fail(status == kLtNoMemory ? RB_E_OOM : RB_E_DEVICE, "cuda:%d: %s", device,
           cublaslt_failure(what, status).c_str());
}

}  // namespace rbcuda

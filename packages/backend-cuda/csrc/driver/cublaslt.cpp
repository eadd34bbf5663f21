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
  static const struct Opened {
    CublasLt table;
    bool there;
  } instance = [] {
    Opened made = {};
    if (is_left_out(kCublasLt)) return made;
    void* opened = open_if_there(is_driver_of_12() ? kCublasLt12 : kCublasLt);
    if (!opened) return made;
    const char* what = kCublasLt.what;
    CublasLt& table = made.table;
    RB_CUDA_CUBLASLT(RB_CUDA_LOAD)
    made.there = true;
    return made;
  }();
  return instance.there ? &instance.table : nullptr;
}

std::string cublaslt_failure(const char* what, int status) {
  constexpr struct {
    int status;
    const char* text;
  } kTexts[] = {{kLtNotInitialized, "the library could not start: no device or driver"},
                {kLtNoMemory, "no memory"},
                {kLtInvalidValue, "an invalid value"},
                {kLtOtherArchitecture, "not for this architecture"},
                {kLtExecutionFailed, "the execution failed"},
                {kLtInternalError, "an internal error"},
                {kLtNotSupported, "not supported"}};
  const char* text = "an error";
  for (const auto& t : kTexts) text = t.status == status ? t.text : text;
  return std::string(what) + " failed: " + text + " (cuBLAS status " + std::to_string(status) + ")";
}

void check_cublaslt(int status, int device, const char* what) {
  if (__builtin_expect(status == 0, 1)) return;
  rb::fail(status == kLtNoMemory ? RB_E_OOM : RB_E_DEVICE, "cuda:%d: %s", device,
           cublaslt_failure(what, status).c_str());
}

}  // namespace rbcuda

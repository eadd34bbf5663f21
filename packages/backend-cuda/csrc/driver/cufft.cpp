#include "driver/cufft.h"

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCufft = {"cuFFT",
                            "RABBET_CUDA_CUFFT",
                            {"cu13/lib", "cufft/lib"},
                            {},
                            "libcufft.so.1*",
                            {"libcufft.so.12", "libcufft.so.11"},
                            "cuFFT was not found: pip install 'rabbet-backend-cuda[fft]' (or "
                            "[fft12] where the driver is of CUDA 12)"};
// The library's own version is one below that of CUDA.
constexpr Library kCufft12 = {"cuFFT",           "RABBET_CUDA_CUFFT", {"cufft/lib"}, {},
                              "libcufft.so.11*", {"libcufft.so.11"},  nullptr};

}  // namespace

const Cufft* cufft() {
  static const auto table = open_optional<Cufft>(
      kCufft, kCufft12,
      [](Cufft& table, void* opened, const char* what) { RB_CUDA_CUFFT(RB_CUDA_LOAD) });
  return table ? &*table : nullptr;
}

void need_cufft() {
  if (!cufft()) rb::fail(RB_E_NOTIMPL, "%s", kCufft.missing);
}

void check_cufft(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  const std::string text = failure_text("cuFFT", what, status,
                                        {{kFftInvalidPlan, "an invalid plan"},
                                         {kFftNoMemory, "no memory"},
                                         {kFftInvalidType, "an invalid type"},
                                         {kFftInvalidValue, "an invalid value"},
                                         {kFftInternalError, "an internal error"},
                                         {kFftExecutionFailed, "the execution failed"},
                                         {kFftSetupFailed, "the library could not start"},
                                         {kFftInvalidSize, "a size that is not supported"},
                                         {kFftInvalidDevice, "the plan is of another device"},
                                         {kFftNoWorkspace, "no workspace"},
                                         {kFftNotImplemented, "not implemented"},
                                         {kFftNotSupported, "not supported"}});
  rb::fail(status == kFftNoMemory ? RB_E_OOM : RB_E_DEVICE, "%s on 'cuda:%d': %s", op, device,
           text.c_str());
}

}  // namespace rbcuda

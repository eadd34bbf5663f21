#include "driver/cufft.h"

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCufft = {"cuFFT", "RABBET_CUDA_CUFFT", {"cu13/lib", "cufft/lib"},
                            {},      "libcufft.so.1*",    {"libcufft.so.12", "libcufft.so.11"},
                            nullptr};
// The library's own version is one below that of CUDA.
constexpr Library kCufft12 = {"cuFFT",           "RABBET_CUDA_CUFFT", {"cufft/lib"}, {},
                              "libcufft.so.11*", {"libcufft.so.11"},  nullptr};

}  // namespace

const char* const kCufftMissing =
    "cuFFT was not found: pip install 'rabbet-backend-cuda[fft]' (or [fft12] where the driver is "
    "of "
    "CUDA 12)";

const Cufft* cufft() {
  static const struct Opened {
    Cufft table;
    bool there;
  } instance = [] {
    Opened made = {};
    if (is_left_out(kCufft)) return made;
    void* opened = open_if_there(is_driver_of_12() ? kCufft12 : kCufft);
    if (!opened) return made;
    const char* what = kCufft.what;
    Cufft& table = made.table;
    RB_CUDA_CUFFT(RB_CUDA_LOAD)
    made.there = true;
    return made;
  }();
  return instance.there ? &instance.table : nullptr;
}

void check_cufft(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  constexpr struct {
    int status;
    const char* text;
  } kTexts[] = {{kFftInvalidPlan, "an invalid plan"},
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
                {kFftNotSupported, "not supported"}};
  const char* text = "an error";
  for (const auto& t : kTexts) text = t.status == status ? t.text : text;
  rb::fail(status == kFftNoMemory ? RB_E_OOM : RB_E_DEVICE,
           "%s on 'cuda:%d': %s failed: %s (cuFFT status %d)", op, device, what, text, status);
}

}  // namespace rbcuda

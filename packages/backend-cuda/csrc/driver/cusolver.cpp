#include "driver/cusolver.h"

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCusolver = {
    "cuSOLVER", "RABBET_CUDA_CUSOLVER", {"cu13/lib", "cusolver/lib"},
    {},         "libcusolver.so.1*",    {"libcusolver.so.12", "libcusolver.so.11"},
    nullptr};
// The library's own version is one below that of CUDA.
constexpr Library kCusolver12 = {"cuSOLVER",           "RABBET_CUDA_CUSOLVER", {"cusolver/lib"}, {},
                                 "libcusolver.so.11*", {"libcusolver.so.11"},  nullptr};

}  // namespace

const char* const kCusolverMissing =
    "cuSOLVER was not found: pip install 'rabbet-backend-cuda[linalg]' (or [linalg12] where the "
    "driver "
    "is of CUDA 12)";

const Cusolver* cusolver() {
  static const struct Opened {
    Cusolver table;
    bool there;
  } instance = [] {
    Opened made = {};
    if (is_left_out(kCusolver)) return made;
    void* opened = open_if_there(is_driver_of_12() ? kCusolver12 : kCusolver);
    if (!opened) return made;
    const char* what = kCusolver.what;
    Cusolver& table = made.table;
    RB_CUDA_CUSOLVER(RB_CUDA_LOAD)
    made.there = true;
    return made;
  }();
  return instance.there ? &instance.table : nullptr;
}

void check_cusolver(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  constexpr struct {
    int status;
    const char* text;
  } kTexts[] = {{kSolverNotInitialized, "the library could not start: no device or driver"},
                {kSolverNoMemory, "no memory"},
                {kSolverInvalidValue, "an invalid value"},
                {kSolverOtherArchitecture, "not for this architecture"},
                {kSolverExecutionFailed, "the execution failed"},
                {kSolverInternalError, "an internal error"},
                {kSolverNoMatrixType, "not for this kind of matrix"},
                {kSolverNotSupported, "not supported"}};
  const char* text = "an error";
  for (const auto& t : kTexts) text = t.status == status ? t.text : text;
  rb::fail(status == kSolverNoMemory ? RB_E_OOM : RB_E_DEVICE,
           "%s on 'cuda:%d': %s failed: %s (cuSOLVER status %d)", op, device, what, text, status);
}

}  // namespace rbcuda

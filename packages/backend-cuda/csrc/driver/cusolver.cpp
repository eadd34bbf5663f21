#include "driver/cusolver.h"

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kCusolver = {"cuSOLVER",
                               "RABBET_CUDA_CUSOLVER",
                               {"cu13/lib", "cusolver/lib"},
                               {},
                               "libcusolver.so.1*",
                               {"libcusolver.so.12", "libcusolver.so.11"},
                               "cuSOLVER was not found: pip install 'rabbet-backend-cuda[linalg]' "
                               "(or [linalg12] where the driver is of CUDA 12)"};
// The library's own version is one below that of CUDA.
constexpr Library kCusolver12 = {"cuSOLVER",           "RABBET_CUDA_CUSOLVER", {"cusolver/lib"}, {},
                                 "libcusolver.so.11*", {"libcusolver.so.11"},  nullptr};

}  // namespace

const Cusolver* cusolver() {
  static const auto table = open_optional<Cusolver>(
      kCusolver, kCusolver12,
      [](Cusolver& table, void* opened, const char* what) { RB_CUDA_CUSOLVER(RB_CUDA_LOAD) });
  return table ? &*table : nullptr;
}

void need_cusolver() {
  if (!cusolver()) rb::fail(RB_E_NOTIMPL, "%s", kCusolver.missing);
}

void check_cusolver(int status, int device, const char* what, const char* op) {
  if (__builtin_expect(status == 0, 1)) return;
  const std::string text =
      failure_text("cuSOLVER", what, status,
                   {{kSolverNotInitialized, "the library could not start: no device or driver"},
                    {kSolverNoMemory, "no memory"},
                    {kSolverInvalidValue, "an invalid value"},
                    {kSolverOtherArchitecture, "not for this architecture"},
                    {kSolverExecutionFailed, "the execution failed"},
                    {kSolverInternalError, "an internal error"},
                    {kSolverNoMatrixType, "not for this kind of matrix"},
                    {kSolverNotSupported, "not supported"}});
  rb::fail(status == kSolverNoMemory ? RB_E_OOM : RB_E_DEVICE, "%s on 'cuda:%d': %s", op, device,
           text.c_str());
}

}  // namespace rbcuda

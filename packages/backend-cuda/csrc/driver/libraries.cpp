#include "driver/libraries.h"

#include <dlfcn.h>
#include <glob.h>

#include "driver/open.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

constexpr Library kDriver = {
    "the NVIDIA driver", "RABBET_CUDA_DRIVER", {}, {}, nullptr, {"libcuda.so.1"}, nullptr};
constexpr Library kNvrtc = {
    "NVRTC",
    "RABBET_CUDA_NVRTC",
    {"cu13/lib", "cuda_nvrtc/lib"},
    {"libnvrtc-builtins.so.1*"},  // libnvrtc finds its builtins only where they are open already
    "libnvrtc.so.1*",
    {"libnvrtc.so.13", "libnvrtc.so.12"},
    "kernels are compiled by NVRTC, which was not found: pip install "
    "'rabbet-backend-cuda[cuda13]' (or [cuda12] where the driver is of CUDA 12)"};
// A driver takes no code of a compiler of the next generation.
constexpr Library kNvrtc12 = {
    "NVRTC",
    "RABBET_CUDA_NVRTC",
    {"cuda_nvrtc/lib"},
    {"libnvrtc-builtins.so.12*"},
    "libnvrtc.so.12*",
    {"libnvrtc.so.12"},
    "kernels are compiled by NVRTC of CUDA 12 here, as the driver is of CUDA 12, and it was not "
    "found: pip install 'rabbet-backend-cuda[cuda12]', or install a newer driver"};

bool has_device_node() {
  glob_t found = {};
  const bool any = glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0;
  globfree(&found);
  return any;
}

void* open_driver() {
  if (void* opened = open_if_there(kDriver)) return opened;
  const char* said = dlerror();
  const std::string why = said ? said : "not found";
  if (has_device_node())
    rb::fail(RB_E_DEVICE,
             "there is an NVIDIA device but no driver library libcuda.so.1 (%s): in a container, "
             "start it with the host's driver (docker run --gpus all)",
             why.c_str());
  rb::fail(RB_E_DEVICE,
           "no CUDA device: the driver library libcuda.so.1 was not found (%s), and there is no "
           "/dev/nvidia*: this machine has no NVIDIA GPU or no driver. The CPU goes on working",
           why.c_str());
}

}  // namespace

#define RB_CUDA_TRY(member, name, arguments) \
  table.member = reinterpret_cast<int(*) arguments>(dlsym(opened, name));

bool has_driver() {
  try {
    return open_if_there(kDriver) != nullptr;
  } catch (const rb::Error&) {  // the environment names what cannot be opened
    return false;
  }
}

const Driver& driver() {
  static const Driver instance = [] {
    void* opened = open_driver();
    const char* what = kDriver.what;
    Driver table;
    RB_CUDA_DRIVER(RB_CUDA_LOAD)
    RB_CUDA_OPTIONAL(RB_CUDA_TRY)
    return table;
  }();
  return instance;
}

bool is_driver_of_12() {
  static const bool answer = [] {
    int version = 0;
    return has_driver() && driver().driver_version(&version) == kSuccess && version < 13000;
  }();
  return answer;
}

const Nvrtc& nvrtc() {
  static const Nvrtc instance = [] {
    void* opened = open_library(is_driver_of_12() ? kNvrtc12 : kNvrtc);
    const char* what = kNvrtc.what;
    Nvrtc table;
    RB_CUDA_NVRTC(RB_CUDA_LOAD)
    RB_CUDA_NVRTC_OPTIONAL(RB_CUDA_TRY)
    return table;
  }();
  return instance;
}

#undef RB_CUDA_TRY

std::string (*explain_failure)(CuResult, int, const std::string&) = nullptr;

std::string failure_text(const char* library, const char* what, int status,
                         std::initializer_list<StatusText> texts) {
  const char* text = "an error";
  for (const StatusText& t : texts) text = t.first == status ? t.second : text;
  return std::string(what) + " failed: " + text + " (" + library + " status " +
         std::to_string(status) + ")";
}

void fail_missing(const char* call) {
  rb::fail(RB_E_NOTIMPL, "cuda: the driver has no %s: install a newer one", call);
}

void fail_cuda(CuResult status, int device, const char* what) {
  const char *name = nullptr, *words = nullptr;
  driver().error_name(status, &name);
  driver().error_string(status, &words);
  std::string text = "cuda:" + std::to_string(device) + ": " + what +
                     " failed: " + (name ? name : "unknown error") + " (" + std::to_string(status) +
                     "): " + (words ? words : "");
  if (explain_failure) text = explain_failure(status, device, text);
  rb::fail(status == kOutOfMemory ? RB_E_OOM : RB_E_DEVICE, "%s", text.c_str());
}

}  // namespace rbcuda

#include "driver/libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "rabbet/plugin.hpp"

namespace rbcuda {
namespace {

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// The folder that holds the installed packages.
std::string site_packages() {
  Dl_info info = {};
  if (!dladdr(reinterpret_cast<void*>(&site_packages), &info) || !info.dli_fname) return "..";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/')) + "/..";
}

void* symbol(void* library, const char* name, const char* what) {
  void* found = dlsym(library, name);
  if (!found)
    rb::fail(RB_E_DEVICE, "%s is too old: it has no symbol %s (CUDA 12 or newer is needed)", what,
             name);
  return found;
}

// An explicit path is the only one tried.
void* open_named(const char* variable, const char* what) {
  const char* path = std::getenv(variable);
  if (!path || !*path) return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    rb::fail(RB_E_DEVICE, "%s: %s names what cannot be opened: %s", what, variable, dlerror());
  return library;
}

void* open_driver() {
  constexpr const char* kWhat = "the NVIDIA driver";
  if (void* named = open_named("RABBET_CUDA_DRIVER", kWhat)) return named;
  if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string why = dlerror();
  if (!matches("/dev/nvidia[0-9]*").empty())
    rb::fail(RB_E_DEVICE,
             "there is an NVIDIA device but no driver library libcuda.so.1 (%s): in a container, "
             "start it with the host's driver (docker run --gpus all)",
             why.c_str());
  rb::fail(RB_E_DEVICE,
           "no CUDA device: the driver library libcuda.so.1 was not found (%s), and there is no "
           "/dev/nvidia*: this machine has no NVIDIA GPU or no driver. The CPU goes on working",
           why.c_str());
}

void* open_nvrtc() {
  constexpr const char* kWhat = "NVRTC";
  if (void* named = open_named("RABBET_CUDA_NVRTC", kWhat)) return named;
  const std::string site = site_packages() + "/nvidia/";
  for (const char* folder : {"cu13/lib", "cuda_nvrtc/lib"}) {
    // libnvrtc finds its builtins only where they are open already.
    for (const std::string& path : matches(site + folder + "/libnvrtc-builtins.so.1*"))
      dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    for (const std::string& path : matches(site + folder + "/libnvrtc.so.1*")) {
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  rb::fail(RB_E_DEVICE,
           "kernels are compiled by NVRTC, which was not found: pip install "
           "'rabbet-backend-cuda[cuda13]' (or [cuda12] where the driver is of CUDA 12)");
}

}  // namespace

#define RB_CUDA_LOAD(member, name, arguments) \
  table.member = reinterpret_cast<int(*) arguments>(symbol(library, name, what));
#define RB_CUDA_TRY(member, name, arguments) \
  table.member = reinterpret_cast<int(*) arguments>(dlsym(library, name));

const Driver& driver() {
  static const Driver instance = [] {
    void* library = open_driver();
    const char* what = "the NVIDIA driver";
    Driver table;
    RB_CUDA_DRIVER(RB_CUDA_LOAD)
    RB_CUDA_OPTIONAL(RB_CUDA_TRY)
    return table;
  }();
  return instance;
}

const Nvrtc& nvrtc() {
  static const Nvrtc instance = [] {
    void* library = open_nvrtc();
    const char* what = "NVRTC";
    Nvrtc table;
    RB_CUDA_NVRTC(RB_CUDA_LOAD)
    return table;
  }();
  return instance;
}

#undef RB_CUDA_LOAD
#undef RB_CUDA_TRY

std::string (*explain_failure)(CuResult, int, const std::string&) = nullptr;

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

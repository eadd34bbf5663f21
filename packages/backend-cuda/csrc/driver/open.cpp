#include "driver/open.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <string>
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

void open_before(const std::string& folder, const Library& library) {
  for (const char* const* before = library.before; *before; ++before) {
    for (const std::string& path : matches(folder + "/" + *before))
      dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

// An explicit path is the only one tried.
void* open_named(const Library& library) {
  const char* path = std::getenv(library.variable);
  if (!path || !*path) return nullptr;
  const std::string text = path;
  if (const size_t end = text.rfind('/'); end != text.npos)
    open_before(text.substr(0, end), library);
  void* opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!opened)
    rb::fail(RB_E_DEVICE, "%s: %s names what cannot be opened: %s", library.what, library.variable,
             dlerror());
  return opened;
}

void* open_in(const std::string& folder, const Library& library) {
  open_before(folder, library);
  for (const std::string& path : matches(folder + "/" + library.pattern)) {
    if (void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  return nullptr;
}

// Of the toolkit.
std::string toolkit() {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* path = std::getenv(variable);
    if (path && *path) return path;
  }
  return "/usr/local/cuda";
}

}  // namespace

bool is_left_out(const Library& library) {
  const char* path = std::getenv(library.variable);
  return path && !*path;
}

void* open_if_there(const Library& library) {
  if (void* named = open_named(library)) return named;
  for (const char* const* folder = library.folders; *folder; ++folder) {
    if (void* opened = open_in(site_packages() + "/nvidia/" + *folder, library)) return opened;
  }
  for (const char* const* name = library.names; *name; ++name) {
    if (void* opened = dlopen(*name, RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  return library.pattern ? open_in(toolkit() + "/lib64", library) : nullptr;
}

void* open_library(const Library& library) {
  void* opened = open_if_there(library);
  if (!opened) rb::fail(RB_E_DEVICE, "%s", library.missing);
  return opened;
}

void* symbol(void* library, const char* name, const char* what) {
  void* found = dlsym(library, name);
  if (!found)
    rb::fail(RB_E_DEVICE, "%s is too old: it has no symbol %s (CUDA 12 or newer is needed)", what,
             name);
  return found;
}

}  // namespace rbcuda

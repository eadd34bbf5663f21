#include "linalg/lapack.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "rabbet/plugin.hpp"

namespace rbcpu::lapack {

namespace {

constexpr const char* kName = "libscipy_openblas64_";

// The folder of the wheels, two levels above this library.
std::string site_packages() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&site_packages), &info) || !info.dli_fname) return "";
  std::string path = info.dli_fname;
  for (int i = 0; i < 2; ++i) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return "";
    path.resize(slash);
  }
  return path;
}

void* open_first(const std::string& pattern) {
  glob_t found;
  void* opened = nullptr;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc && !opened; ++i)
      opened = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
  }
  globfree(&found);
  return opened;
}

// The path of a copy that the process has loaded already, for example with NumPy.
int find_loaded(dl_phdr_info* info, size_t, void* path) {
  if (!info->dlpi_name || !std::strstr(info->dlpi_name, kName)) return 0;
  *static_cast<std::string*>(path) = info->dlpi_name;
  return 1;
}

void* open_library() {
  if (const char* given = std::getenv("RABBET_LAPACK")) {
    if (void* opened = dlopen(given, RTLD_NOW | RTLD_LOCAL)) return opened;
    rb::fail(RB_E_STATE, "RABBET_LAPACK names %s, which cannot be loaded: %s", given, dlerror());
  }
  const std::string site = site_packages(), name = kName;
  for (const std::string& folder : {site + "/scipy_openblas64/lib/", site + "/numpy.libs/"}) {
    if (void* opened = open_first(folder + name + "*.so*")) return opened;
  }
  std::string loaded;
  dl_iterate_phdr(find_loaded, &loaded);
  if (!loaded.empty()) {
    if (void* opened = dlopen(loaded.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  rb::fail(RB_E_NOTIMPL,
           "linear algebra needs LAPACK: pip install scipy-openblas64, or name a library with its "
           "symbols by RABBET_LAPACK");
}

void* library() {
  static void* const opened = open_library();
  return opened;
}

void* symbol(const std::string& name) {
  return dlsym(library(), ("scipy_" + name + "64_").c_str());
}

}  // namespace

void* find(const char* name) {
  void* const found = symbol(std::string(name) + "_");
  if (!found) rb::fail(RB_E_NOTIMPL, "the LAPACK library has no routine %s", name);
  return found;
}

namespace {
struct Threads {
  using Set = void(int);
  using Get = int();
  Set* const set = reinterpret_cast<Set*>(symbol("openblas_set_num_threads"));
  Get* const get = reinterpret_cast<Get*>(symbol("openblas_get_num_threads"));
  std::mutex mutex;
  int users = 0, before = 0;
};
Threads& threads() {
  static Threads all;
  return all;
}
}  // namespace

OneThread::OneThread() {
  Threads& all = threads();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.users++ || !all.set || !all.get) return;
  all.before = all.get();
  if (all.before != 1) all.set(1);
}

OneThread::~OneThread() {
  Threads& all = threads();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (--all.users == 0 && all.before > 1) all.set(all.before);
}

}  // namespace rbcpu::lapack

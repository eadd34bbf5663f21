#include "thread/plugin_names.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace rabbet {

namespace {
struct Names {
  std::mutex mutex;
  std::map<const void*, std::string> by_base;
};
Names& names() {
  static Names* instance = new Names;
  return *instance;
}
}  // namespace

bool is_checked_plugin(const std::string& provider) {
  static const bool all = [] {
    const char* value = std::getenv("RABBET_CHECK_PLUGINS");
    return value && !std::strcmp(value, "1");
  }();
  return all || provider.compare(0, 7, "rabbet-") != 0;
}

void note_plugin(const void* address, const std::string& name) {
  Dl_info info;
  if (!dladdr(address, &info)) return;
  std::lock_guard<std::mutex> lock(names().mutex);
  names().by_base[info.dli_fbase] = name;
}

std::string plugin_of(const void* address) {
  Dl_info info;
  if (!address || !dladdr(address, &info)) return "an unknown library";
  {
    std::lock_guard<std::mutex> lock(names().mutex);
    const auto found = names().by_base.find(info.dli_fbase);
    if (found != names().by_base.end()) return found->second;
  }
  const std::string path = info.dli_fname ? info.dli_fname : "?";
  return path.substr(path.rfind('/') + 1);
}

}  // namespace rabbet

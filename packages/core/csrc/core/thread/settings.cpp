#include "thread/settings.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "thread/fork.h"

namespace rabbet {

namespace {

struct Settings {
  std::mutex mutex;
  std::map<std::string, int64_t, std::less<>> values;
};
Settings& settings() {
  static Settings* instance = [] {  // never destroyed: threads may outlive statics
    auto* made = new Settings;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *instance;
}
std::atomic<uint64_t> changes{0};
std::atomic<int64_t> sync{0};

}  // namespace

int64_t setting(const char* name, int64_t otherwise) {
  if (!changes.load(std::memory_order_acquire)) return otherwise;
  std::lock_guard<std::mutex> lock(settings().mutex);
  const auto found = settings().values.find(name);
  return found == settings().values.end() ? otherwise : found->second;
}

void set_setting(const char* name, int64_t value) {
  const std::string text = name;
  std::lock_guard<std::mutex> lock(settings().mutex);
  settings().values[text] = value;
  if (text == "sync_debug_mode") sync.store(value, std::memory_order_relaxed);
  changes.fetch_add(1, std::memory_order_release);
}

uint64_t setting_changes() { return changes.load(std::memory_order_acquire); }
SyncMode sync_mode() { return static_cast<SyncMode>(sync.load(std::memory_order_relaxed)); }

}  // namespace rabbet

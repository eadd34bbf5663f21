#include "nvtx.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>

namespace profiler {

namespace {

constexpr uint32_t kKinds =
    RB_EVENT_OP_BEGIN | RB_EVENT_OP_END | RB_EVENT_RANGE_BEGIN | RB_EVENT_RANGE_END;

struct Library {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
};

const Library& library() {
  static const Library found = [] {
    Library lib;
    for (const char* name : {"libnvToolsExt.so.1", "libnvToolsExt.so"}) {
      void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (!handle) continue;
      lib.push = reinterpret_cast<int (*)(const char*)>(dlsym(handle, "nvtxRangePushA"));
      lib.pop = reinterpret_cast<int (*)()>(dlsym(handle, "nvtxRangePop"));
      if (lib.push && lib.pop) break;
    }
    return lib;
  }();
  return found;
}

struct Settings {
  const RbHost* host;
  Names names;
  bool shapes;
};
std::atomic<const Settings*> current{nullptr};

void add_shape(const RbTensor* t, std::string& text) {
  text += '[';
  for (int d = 0; t && d < t->ndim; ++d) text += (d ? ", " : "") + std::to_string(t->shape[d]);
  text += ']';
}

std::string name_of_call(const Settings& settings, const RbObserved& event) {
  const char* const record = settings.host->op_info(event.op)->name;
  const auto found = settings.names.find(record);
  std::string text = found == settings.names.end() ? record : found->second;
  if (!settings.shapes) return text;
  text += ", sizes = [";
  for (int32_t i = 0; i < event.nvalues; ++i) {
    if (i) text += ", ";
    add_shape(event.values[i].tag == RB_TENSOR ? event.values[i].v.t : nullptr, text);
  }
  return text + "]";
}

void observe(void*, const RbObserved* event) {
  const Settings* const settings = current.load(std::memory_order_acquire);
  if (!settings) return;
  switch (event->kind) {
    case RB_EVENT_OP_BEGIN:
      library().push(name_of_call(*settings, *event).c_str());
      return;
    case RB_EVENT_RANGE_BEGIN:
      library().push(event->text);
      return;
    default:
      library().pop();
  }
}

}  // namespace

bool start_nvtx(const RbTrace* trace, const RbHost* host, Names names, bool shapes) {
  if (!library().push || !library().pop) return false;
  // Kept for good: another thread may be in `observe`.
  current.store(new Settings{host, std::move(names), shapes}, std::memory_order_release);
  trace->observe(kKinds, observe, &current);
  return true;
}

void stop_nvtx(const RbTrace* trace) {
  trace->observe(0, observe, &current);
  current.store(nullptr);
}

}  // namespace profiler

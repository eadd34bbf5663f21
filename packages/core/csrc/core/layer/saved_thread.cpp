#include "layer/saved_thread.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "layer/layers.h"
#include "thread/error.h"
#include "thread/thread_state.h"

struct RbTls {
  struct OfLayer {  // what a layer has given for its part
    const rabbet::LayerEntry* layer;
    void* state;
  };

  static void end_part(const OfLayer& part) {
    try {
      part.layer->desc.thread_free(part.layer->plugin_self, part.state);
    } catch (...) {
      rabbet::log_thrown("`thread_free` of the layer '" + part.layer->name + "' [" +
                         part.layer->provider + "]");
    }
  }

  RbTls() = default;
  ~RbTls() {
    for (const OfLayer& part : parts) end_part(part);
  }
  RbTls(const RbTls&) = delete;
  RbTls& operator=(const RbTls&) = delete;

  uint64_t include = 0, exclude = 0;
  int32_t depth = 0, floor = 0;
  uint32_t tensor_flags = 0;
  std::vector<rabbet::TransformFrame> levels;
  std::vector<rabbet::CurrentStream> streams;
  std::vector<rabbet::PoolUse> pools;
  int32_t current_devices[rabbet::kBackendIds] = {};
  std::string source;
  std::vector<OfLayer> parts;
};

namespace rabbet {

RbTls* tls_save() {
  const ThreadState& state = thread_state();
  auto saved = std::make_unique<RbTls>();
  saved->include = state.include;
  saved->exclude = state.exclude;
  saved->depth = state.depth;
  saved->floor = state.floor;
  saved->tensor_flags = state.tensor_flags;
  saved->levels = state.levels;
  saved->streams = state.streams;
  saved->pools = state.pools;
  std::copy_n(state.current_devices, kBackendIds, saved->current_devices);
  saved->source = state.source;
  for (const LayerEntry* entry : layers_in_order()) {
    const RbLayer& layer = entry->desc;
    if (!entry->active || !layer.thread_save) continue;
    void* part = nullptr;
    check(layer.thread_save(entry->plugin_self, &part));
    saved->parts.push_back({entry, part});
  }
  return saved.release();
}

void tls_restore(const RbTls& saved) {
  ThreadState& state = thread_state();
  for (const RbTls::OfLayer& part : saved.parts)
    check(part.layer->desc.thread_restore(part.layer->plugin_self, part.state));
  state.levels = saved.levels;
  state.streams = saved.streams;
  state.pools = saved.pools;
  std::copy_n(saved.current_devices, kBackendIds, state.current_devices);
  state.source = saved.source;
  state.has_streams = !saved.streams.empty();
  state.include = saved.include;
  state.exclude = saved.exclude;
  state.depth = saved.depth;
  state.floor = saved.floor;
  state.tensor_flags = saved.tensor_flags;
}

void tls_free(RbTls* saved) noexcept { delete saved; }

}  // namespace rabbet

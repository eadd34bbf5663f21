// The plugin's entry, and the table that it publishes.
#include <new>

#include "cache.h"
#include "modes.h"
#include "policy.h"
#include "rabbet/autocast.h"

namespace autocast {

int32_t layer = 0;

namespace {

int32_t is_enabled(int32_t backend) { return modes().enabled() >> backend & 1; }
void set_enabled(int32_t backend, int32_t on) { modes().set_enabled(backend, on != 0); }
int32_t get_dtype(int32_t backend) { return modes().dtype(backend); }
void set_dtype(int32_t backend, int32_t dtype) { modes().set_dtype(backend, dtype); }
int32_t is_cache_enabled() { return modes().cache_enabled; }
void set_cache_enabled(int32_t on) { modes().cache_enabled = on != 0; }
void clear_cache() { cache().clear(); }
int64_t cached_casts() { return cache().size(); }
int32_t enter() { return ++modes().nesting; }
int32_t leave() { return --modes().nesting; }

// What tls_save carries to another thread.
int32_t save_modes(void*, void** state) {
  *state = new (std::nothrow) Modes(modes());
  return *state ? RB_OK : host->err_set(RB_E_OOM, "autocast: out of host memory");
}
int32_t restore_modes(void*, const void* state) {
  modes() = *static_cast<const Modes*>(state);
  return RB_OK;
}
void free_modes(void*, void* state) { delete static_cast<Modes*>(state); }

RbAutocast table;

int32_t init(const RbHost* h, RbTxn* txn) {
  rb::host = h;
  static const char* const before[] = {"autograd", nullptr};
  static const char* const after[] = {nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, thread_free);
  desc.name = "autocast";
  desc.phase = 300;
  desc.on_missing = RB_L_FALLBACK;
  desc.before = before;
  desc.after = after;
  desc.fallback = handle_call;
  desc.thread_save = save_modes;
  desc.thread_restore = restore_modes;
  desc.thread_free = free_modes;
  if (int32_t rc = host->add_layer(txn, &desc, &layer)) return rc;
  table = RbAutocast{sizeof(RbAutocast),
                     layer,
                     is_enabled,
                     set_enabled,
                     get_dtype,
                     set_dtype,
                     set_default_dtype,
                     is_cache_enabled,
                     set_cache_enabled,
                     clear_cache,
                     cached_casts,
                     enter,
                     leave};
  static const RbExplain explain = {RB_SIZE(RbExplain, explain), 0, explain_call};
  if (int32_t rc = host->publish("autocast.explain", 1, &explain)) return rc;
  return host->publish(RB_AUTOCAST_EXT, RB_AUTOCAST_VERSION, &table);
}

const RbPlugin plugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-autocast",         RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace autocast

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &autocast::plugin; }

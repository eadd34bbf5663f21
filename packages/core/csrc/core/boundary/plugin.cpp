// Loading plugins: dlopen, negotiation, transactional init.
#include "boundary/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "boundary/host_device.h"
#include "boundary/registry.h"
#include "device/backends.h"
#include "formula/emit.h"
#include "layer/layers.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/host_table.h"
#include "thread/plugin_names.h"

namespace rabbet {

namespace {

struct Plugins {
  std::mutex mutex;
  std::vector<LoadedPlugin> loaded;
  std::vector<const RbPlugin*> tables;
  std::unordered_map<std::string, std::pair<uint32_t, const void*>> published = {
      {RB_EMIT_EXT, {RB_EMIT_VERSION, emit_table()}},
      {RB_MEMORY_EXT, {RB_MEMORY_VERSION, &kMemoryTable}},
      {RB_CAPTURE_RNG_EXT, {RB_CAPTURE_RNG_VERSION, &kCaptureRng}},
      {RB_SETTINGS_EXT, {RB_SETTINGS_VERSION, &kSettings}},
  };
};
Plugins& plugins() {
  static Plugins* instance = new Plugins;
  return *instance;
}

void negotiate(const RbPlugin& p, const char* path) {
  if (p.struct_size < RB_SIZE(RbPlugin, init) || !p.name || !p.version || !p.init) {
    fail(RB_E_PLUGIN,
         "%s: its RbPlugin struct is incomplete (struct_size %u, name, version and init are "
         "required)",
         path, p.struct_size);
  }
  if (p.abi_min > p.abi_built) {
    fail(RB_E_PLUGIN,
         "%s: its RbPlugin says that it needs plugin ABI %d.%d, but was built for %d.%d", path,
         p.abi_major, p.abi_min, p.abi_major, p.abi_built);
  }
  const std::string who = std::string("plugin '") + p.name + "' " + p.version;
  check_abi(who.c_str(), p.abi_major, p.abi_min);
  if (p.abi_built >= oldest_minor()) return;
  fail(RB_E_PLUGIN,
       "%s was built for plugin ABI %d.%d, this core offers %d.%d to plugins built for %d.%d or "
       "later: install a newer build of the plugin",
       who.c_str(), p.abi_major, p.abi_built, RB_ABI_MAJOR, offered_minor(), RB_ABI_MAJOR,
       oldest_minor());
}

// Before the destructors of the plugin's own static objects: they were registered earlier.
void retire_last() {
  const RbPlugin* plugin;
  {
    std::lock_guard<std::mutex> lock(plugins().mutex);
    plugin = plugins().tables.back();
    plugins().tables.pop_back();
  }
  if (!RB_HAS(plugin, retire)) return;
  try {
    plugin->retire(&kHost);
  } catch (...) {
    log_thrown(std::string("`retire` of plugin '") + plugin->name + "'");
  }
}

thread_local RbTxn* running_init = nullptr;  // the transaction of the `init` that runs

// A library that links an unwinder of its own finds core's handlers if core's unwinder is set up,
// which the first exception does.
void set_up_unwinder() {
  try {
    throw 0;
  } catch (int) {
  }
}

const RbPlugin* run_entry(RbPluginEntry entry, const char* path) {
  set_up_unwinder();
  const std::string what = std::string(path) + ": " RB_PLUGIN_SYMBOL "()";
  const RbPlugin* plugin = nullptr;
  try {
    plugin = entry();
  } catch (...) {
    rethrow(store_thrown(what));
  }
  if (!plugin) fail(RB_E_PLUGIN, "%s returned null", what.c_str());
  return plugin;
}

int32_t run_init(const RbPlugin& plugin, RbTxn& txn) {
  const std::string what = "`init` of plugin '" + txn.provider + "'";
  RbTxn* const outer = std::exchange(running_init, &txn);
  int32_t rc;
  try {
    rc = plugin.init(&kHost, &txn);
  } catch (...) {
    rc = store_thrown(what);
  }
  running_init = outer;
  return rc == RB_OK ? rc : explain(rc, what);
}

void abandon(RbTxn& txn) {
  for (int slot : txn.slots) slot_deleters[slot] = nullptr;
  undo(txn);
}

void load(const char* path) {
  // One at a time: of two threads that ask for the same plugin, the second finds it loaded.
  static std::recursive_mutex loading;
  std::lock_guard<std::recursive_mutex> one_at_a_time(loading);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(RB_E_PLUGIN, "dlopen failed: %s", dlerror());
  auto entry = reinterpret_cast<RbPluginEntry>(dlsym(library, RB_PLUGIN_SYMBOL));
  if (!entry)
    fail(RB_E_PLUGIN, "%s exports no symbol '%s': it is not a plugin for this core", path,
         RB_PLUGIN_SYMBOL);
  const RbPlugin* plugin = run_entry(entry, path);
  {
    std::lock_guard<std::mutex> lock(plugins().mutex);
    for (const RbPlugin* known : plugins().tables) {
      if (known == plugin) return;  // loaded already
    }
  }
  negotiate(*plugin, path);

  RbTxn txn;
  txn.of_init = true;
  txn.minor = plugin->abi_built;
  txn.provider = std::string(plugin->name) + " " + plugin->version;
  note_plugin(reinterpret_cast<const void*>(entry), txn.provider);
  try {
    const int32_t rc = run_init(*plugin, txn);
    if (rc != RB_OK) rethrow(rc);
    txn_commit(txn);
    for (const RbTxn::Published& p : txn.published) publish(p.name.c_str(), p.version, p.table);
  } catch (...) {
    abandon(txn);
    throw;
  }
  std::lock_guard<std::mutex> lock(plugins().mutex);
  plugins().tables.push_back(plugin);
  plugins().loaded.push_back(
      {plugin->name, plugin->version, path, plugin->abi_major, plugin->abi_built, plugin->abi_min});
  std::atexit(retire_last);
}

}  // namespace

int32_t load_plugin(const char* path) {
  return guarded([&] { load(path); });
}

std::vector<LoadedPlugin> loaded_plugins() {
  std::lock_guard<std::mutex> lock(plugins().mutex);
  return plugins().loaded;
}

int built_minor(const std::string& name) {
  std::lock_guard<std::mutex> lock(plugins().mutex);
  for (const LoadedPlugin& known : plugins().loaded) {
    if (known.name == name) return known.abi_built;
  }
  return RB_ABI_MINOR;
}

void note_slot(int slot) {
  if (running_init) running_init->slots.push_back(slot);
}

void publish(const char* name, uint32_t version, const void* table) {
  if (running_init) {
    running_init->published.push_back({name, version, table});
    return;
  }
  std::lock_guard<std::mutex> lock(plugins().mutex);
  plugins().published[name] = {version, table};
}

const void* published(const char* name, uint32_t min_version) {
  std::lock_guard<std::mutex> lock(plugins().mutex);
  auto found = plugins().published.find(name);
  return found == plugins().published.end() || found->second.first < min_version
             ? nullptr
             : found->second.second;
}

}  // namespace rabbet

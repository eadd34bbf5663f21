// Loading plugins: dlopen, negotiation, transactional init.
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "error.h"
#include "runtime.h"

namespace rabbet {

namespace {

struct Plugins {
  std::mutex mutex;
  std::vector<LoadedPlugin> loaded;
  std::vector<const RbPlugin*> tables;
  std::unordered_map<std::string, std::pair<uint32_t, const void*>> published;
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
  const bool fits = p.abi_major == RB_ABI_MAJOR &&
                    (RB_ABI_MAJOR == 0 ? p.abi_built == RB_ABI_MINOR : p.abi_min <= RB_ABI_MINOR);
  if (!fits) {
    const bool newer =
        p.abi_major > RB_ABI_MAJOR || (p.abi_major == RB_ABI_MAJOR && p.abi_built > RB_ABI_MINOR);
    fail(RB_E_PLUGIN, "plugin '%s' %s was built for plugin ABI %d.%d, this core offers %d.%d: %s",
         p.name, p.version, p.abi_major, p.abi_built, RB_ABI_MAJOR, RB_ABI_MINOR,
         newer ? "upgrade rabbet-core" : "install a newer build of the plugin");
  }
}

void abandon(RbTxn& txn) {
  for (int bit : txn.layers) drop_layer(bit);
  drop_backends(txn.backends.size());
}

void load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(RB_E_PLUGIN, "dlopen failed: %s", dlerror());
  auto entry = reinterpret_cast<RbPluginEntry>(dlsym(library, RB_PLUGIN_SYMBOL));
  if (!entry)
    fail(RB_E_PLUGIN, "%s exports no symbol '%s': it is not a plugin for this core", path,
         RB_PLUGIN_SYMBOL);
  const RbPlugin* plugin = entry();
  if (!plugin) fail(RB_E_PLUGIN, "%s: %s() returned null", path, RB_PLUGIN_SYMBOL);
  {
    std::lock_guard<std::mutex> lock(plugins().mutex);
    for (const RbPlugin* known : plugins().tables) {
      if (known == plugin) return;  // loaded already
    }
  }
  negotiate(*plugin, path);

  RbTxn txn;
  txn.provider = std::string(plugin->name) + " " + plugin->version;
  try {
    const int32_t rc = plugin->init(&kHost, &txn);
    if (rc != RB_OK) rethrow(rc);
    txn_commit(txn);
  } catch (...) {
    abandon(txn);
    throw;
  }
  std::lock_guard<std::mutex> lock(plugins().mutex);
  plugins().tables.push_back(plugin);
  plugins().loaded.push_back(
      {plugin->name, plugin->version, path, plugin->abi_major, plugin->abi_built, plugin->abi_min});
}

}  // namespace

int32_t load_plugin(const char* path) {
  return guarded([&] { load(path); });
}

std::vector<LoadedPlugin> loaded_plugins() {
  std::lock_guard<std::mutex> lock(plugins().mutex);
  return plugins().loaded;
}

void publish(const char* name, uint32_t version, const void* table) {
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

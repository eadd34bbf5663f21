// Programs without Python: what is installed, loaded by name.
#include "rabbet/program.h"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>

#include "boundary/host_checks.h"
#include "boundary/plugin.h"
#include "device/backends.h"
#include "device/reserved.h"
#include "discovery/installed.h"
#include "discovery/manifest.h"
#include "layer/layers.h"
#include "thread/error.h"
#include "thread/host_table.h"

namespace rabbet {

namespace {

namespace fs = std::filesystem;

struct ProgramPlugin {
  InstalledPlugin at;
  Manifest manifest;
  std::string library;  // its path
  enum { kReady, kLoading, kLoaded, kFailed } stage = kReady;
  std::string failed_at, cause;

  bool provides(const std::string& kind, const std::string& name) const {
    const std::vector<std::string>& names = manifest.provides;
    return manifest.kind == kind && std::find(names.begin(), names.end(), name) != names.end();
  }
};

struct Program {
  std::recursive_mutex mutex;
  bool started = false;
  std::vector<ProgramPlugin> plugins;
};
Program& program() {
  static Program* instance = new Program;
  return *instance;
}

// Run a step; where it fails the plugin has failed at `stage`.
template <class Step>
void attempt(ProgramPlugin& plugin, const char* stage, Step&& step) {
  const int32_t rc = guarded(step);
  if (rc == RB_OK) return;
  plugin.stage = ProgramPlugin::kFailed;
  plugin.failed_at = stage;
  plugin.cause = kHost.err_get()->message;
}

void read(ProgramPlugin& plugin, const std::vector<std::string>& folders) {
  std::string module = plugin.at.module;
  std::replace(module.begin(), module.end(), '.', '/');
  for (const std::string& folder : folders) {
    const fs::path package = fs::path(folder) / module;
    const fs::path path = package / kManifestFile;
    if (!fs::exists(path)) continue;
    plugin.manifest = manifest_of(read_manifest(path.string()));
    if (!plugin.manifest.library.empty())
      plugin.library = (package / plugin.manifest.library).string();
    if (plugin.manifest.abi) {
      const std::string who = "plugin '" + plugin.at.wheel + "' " + plugin.at.version;
      check_abi(who.c_str(), plugin.manifest.abi->first, plugin.manifest.abi->second);
    }
    return;
  }
  fail(RB_E_PLUGIN, "no folder that was searched has %s/%s", module.c_str(), kManifestFile);
}

ReservedNames names_of_others(const ProgramPlugin& plugin) {
  ReservedNames names;
  for (const ProgramPlugin& other : program().plugins) {
    if (&other == &plugin) continue;
    auto* taken = other.manifest.kind == "backend"     ? &names.devices
                  : other.manifest.kind == "transform" ? &names.layers
                                                       : nullptr;
    for (const std::string& name : other.manifest.provides) {
      if (taken && !plugin.provides(other.manifest.kind, name)) (*taken)[name] = other.at.wheel;
    }
  }
  return names;
}

// The manifest promises devices and layers without running anything: the library must keep that.
void check_provided(const ProgramPlugin& plugin) {
  const bool is_backend = plugin.manifest.kind == "backend";
  if (!is_backend && plugin.manifest.kind != "transform") return;
  for (const std::string& name : plugin.manifest.provides) {
    if ((is_backend ? find_backend(name.c_str()) : find_layer(name.c_str())) < 0) {
      fail(RB_E_PLUGIN,
           "its manifest provides the %s '%s', but its library registered none of that name",
           is_backend ? "device" : "layer", name.c_str());
    }
  }
}

void load_installed(ProgramPlugin& plugin) {
  if (plugin.stage == ProgramPlugin::kReady) {
    plugin.stage = ProgramPlugin::kLoading;
    attempt(plugin, "load", [&] {
      if (plugin.library.empty())
        fail(RB_E_PLUGIN, "it has no library, so it works in Python only");
      const ReservedNames names = names_of_others(plugin);
      const Reserve reserve(names);
      check(load_plugin(plugin.library.c_str()));
      check_provided(plugin);
      plugin.stage = ProgramPlugin::kLoaded;
    });
  }
  if (plugin.stage != ProgramPlugin::kFailed) return;
  fail(RB_E_PLUGIN, "plugin '%s' (wheel %s %s) is installed but failed at stage %s: %s",
       plugin.at.name.c_str(), plugin.at.wheel.c_str(), plugin.at.version.c_str(),
       plugin.failed_at.c_str(), plugin.cause.c_str());
}

// Rabbet's own wheel, else the first that provides the name, else the one that is named so: its
// manifest, which says what it provides, may be broken.
ProgramPlugin* provider(const std::string& kind, const std::string& name) {
  const std::string own = (kind == "backend" ? "rabbet-backend-" : "rabbet-") + name;
  ProgramPlugin *first = nullptr, *named = nullptr;
  for (ProgramPlugin& plugin : program().plugins) {
    if (plugin.provides(kind, name)) {
      if (plugin.at.wheel == own) return &plugin;
      if (!first) first = &plugin;
    }
    if (plugin.at.name == name && plugin.failed_at == "manifest") named = &plugin;
  }
  return first ? first : named;
}

void require(const std::string& kind, const std::string& name) {
  std::lock_guard<std::recursive_mutex> lock(program().mutex);
  if (!program().started) fail(RB_E_STATE, "rabbet_require: rabbet_start has not been called");
  if (kind != "backend" && kind != "transform" && kind != "ops")
    fail(RB_E_ARG, "rabbet_require: kind must be backend, transform or ops, got '%s'",
         kind.c_str());
  if (ProgramPlugin* plugin = provider(kind, name)) return load_installed(*plugin);
  std::string names;
  for (const ProgramPlugin& plugin : program().plugins) {
    if (plugin.manifest.kind != kind) continue;
    for (const std::string& one : plugin.manifest.provides)
      names += (names.empty() ? "" : ", ") + one;
  }
  fail(RB_E_PLUGIN, "no installed plugin of kind %s provides '%s'; there are: %s", kind.c_str(),
       name.c_str(), names.empty() ? "none" : names.c_str());
}

int32_t load_backend(const char* name) {
  return guarded([&] { require("backend", name); });
}

// The folder that holds the folder of core's library.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname)
    fail(RB_E_STATE, "rabbet_start: the folder of core's library is not known");
  return fs::absolute(info.dli_fname).parent_path().parent_path().string();
}

void start(std::vector<std::string> folders) {
  std::lock_guard<std::recursive_mutex> lock(program().mutex);
  if (program().started) fail(RB_E_STATE, "rabbet_start: it has been called already");
  offered_minor();  // throws where RABBET_ABI_MINOR is not one
  if (folders.empty()) folders.push_back(own_folder());
  for (InstalledPlugin& found : find_installed(folders).plugins) {
    ProgramPlugin plugin;
    plugin.at = std::move(found);
    plugin.library = plugin.at.library;
    if (plugin.at.library.empty()) attempt(plugin, "manifest", [&] { read(plugin, folders); });
    program().plugins.push_back(std::move(plugin));
  }
  std::vector<ManifestLayer> declared;
  for (const ProgramPlugin& plugin : program().plugins) {
    const auto& layers = plugin.manifest.layers;
    declared.insert(declared.end(), layers.begin(), layers.end());
  }
  reserve_layers(order_layers(declared));
  set_backend_loader(load_backend);
  program().started = true;
  for (ProgramPlugin& plugin : program().plugins) {
    if (!plugin.at.library.empty()) load_installed(plugin);
  }
}

}  // namespace

}  // namespace rabbet

extern "C" {

const RbHost* rabbet_host(void) { return &rabbet::kHost; }

int32_t rabbet_start(const char* const* folders, int32_t nfolders) {
  return rabbet::guarded([&] {
    if (nfolders < 0 || (nfolders && !folders))
      rabbet::fail(RB_E_ARG, "rabbet_start: %d folders, but the array is %s", nfolders,
                   folders ? "there" : "null");
    std::vector<std::string> all;
    for (int32_t i = 0; i < nfolders; ++i)
      all.emplace_back(rabbet::need(folders[i], "rabbet_start: a folder"));
    rabbet::start(std::move(all));
  });
}

int32_t rabbet_require(const char* kind, const char* name) {
  return rabbet::guarded([&] {
    rabbet::require(rabbet::need(kind, "rabbet_require: the kind"),
                    rabbet::need(name, "rabbet_require: the name"));
  });
}

int32_t rabbet_load(const char* path) {
  return rabbet::guarded(
      [&] { rabbet::check(rabbet::load_plugin(rabbet::need(path, "rabbet_load: the path"))); });
}

}  // extern "C"

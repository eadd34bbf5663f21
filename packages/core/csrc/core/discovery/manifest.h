// The manifests of plugins (rabbet_plugin.toml), and the order of the layers that they declare.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "discovery/toml.h"
#include "layer/layers.h"

namespace rabbet {

constexpr const char* kManifestFile = "rabbet_plugin.toml";

/// A layer as a manifest declares it.
struct ManifestLayer {
  std::string name;
  uint32_t phase;
  std::vector<std::string> before, after;
};
/// The entries of a manifest that core uses.
struct Manifest {
  std::string kind, library;  // library: empty where the plugin has none
  std::vector<std::string> provides;
  std::optional<std::pair<int, int>> abi;
  std::vector<ManifestLayer> layers;
};

/// A manifest as it stands, checked. Throws RB_E_PLUGIN naming the key, what it must be, what it
/// is.
toml::Table read_manifest(const std::string& path);
/// The entries of a manifest that has passed the checks.
Manifest manifest_of(const toml::Table& table);
/// The static layers in the order in which they run: by phase, within a phase by `before` and
/// `after`, then by name. Names also decide between layers that each ask to run before the other;
/// core refuses the last of these to be loaded. Of two layers with one name, the later one counts.
std::vector<DeclaredLayer> order_layers(const std::vector<ManifestLayer>& declared);

}  // namespace rabbet

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
/// What core reads of a manifest.
struct Manifest {
  std::string kind, library;  // library: empty where the plugin has none
  std::vector<std::string> provides;
  std::optional<std::pair<int, int>> abi;
  std::vector<ManifestLayer> layers;
};

/// A manifest as it stands, checked. Throws RB_E_PLUGIN naming the key, what it must be, what it
/// is.
toml::Table read_manifest(const std::string& path);
/// Of a checked one.
Manifest manifest_of(const toml::Table& table);
/// The static layers, the one to run first at the front. An earlier phase runs first; in one phase
/// `before` and `after` decide, then the names, also where layers all want to run before each
/// other: core refuses the one that is loaded last. Of two of one name the later one counts.
std::vector<DeclaredLayer> order_layers(const std::vector<ManifestLayer>& declared);

}  // namespace rabbet

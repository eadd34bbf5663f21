// The installed plugins: entry points in folders of packages, and what RABBET_PLUGINS chooses.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace rabbet {

/// One entry point of the group `rabbet.plugins`, or a library that RABBET_PLUGINS names.
struct InstalledPlugin {
  std::string name, module;  // module: empty where RABBET_PLUGINS names the library
  std::string wheel, version;
  std::string info;     // the dist-info folder of its wheel
  std::string library;  // the absolute path that RABBET_PLUGINS gives
};
struct Installed {
  std::vector<InstalledPlugin> plugins;  // of several of one name, the first on the path
  /// Entry points that come after one of the same name, with the name's first one.
  std::vector<std::pair<InstalledPlugin, InstalledPlugin>> shadowed;
  /// Folders that an installation left half done, with what they are.
  std::vector<std::pair<std::string, std::string>> leftovers;
  std::vector<std::string> unknown;  // names in RABBET_PLUGINS that nothing has
};

/// Look through the folders, in their order; only names of folders and files of entry points are
/// read. Folders that cannot be read are passed over.
Installed find_installed(const std::vector<std::string>& folders);

}  // namespace rabbet

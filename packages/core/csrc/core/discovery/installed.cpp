#include "discovery/installed.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace rabbet {

namespace {

namespace fs = std::filesystem;

constexpr const char* kGroup = "rabbet.plugins";
constexpr const char* kInfo = ".dist-info";

std::string stripped(const std::string& text, const char* characters = " \t\r\n\f\v") {
  const size_t first = text.find_first_not_of(characters);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(characters) - first + 1);
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// (name, module) of the entry points of the group in one dist-info folder.
std::vector<std::pair<std::string, std::string>> entry_points(const std::string& info) {
  std::vector<std::pair<std::string, std::string>> found;
  std::ifstream file(info + "/entry_points.txt");
  std::string section;
  for (std::string line; std::getline(file, line);) {
    line = stripped(line);
    const size_t equals = line.find('=');
    if (!line.empty() && line[0] == '[') {
      section = stripped(line, "[] ");
    } else if (section == kGroup && equals != std::string::npos) {
      const std::string object = line.substr(equals + 1);
      found.emplace_back(stripped(line.substr(0, equals)),
                         stripped(object.substr(0, object.find(':'))));
    }
  }
  return found;
}

// Names of the dist-info folders in a folder. Sorted: which of two of one name wins must not depend
// on the file system.
std::vector<std::string> infos_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (ends_with(name, kInfo)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

InstalledPlugin* find_named(std::vector<InstalledPlugin>& plugins, const std::string& name) {
  const auto found = std::find_if(plugins.begin(), plugins.end(),
                                  [&](const auto& plugin) { return plugin.name == name; });
  return found == plugins.end() ? nullptr : &*found;
}

void add_info(Installed& found, const std::string& folder, const std::string& info) {
  const std::string path = folder + "/" + info;
  const auto points = entry_points(path);
  if (points.empty()) return;
  if (info[0] == '~') {
    found.leftovers.emplace_back(path, "what pip left of a wheel that it was removing");
    return;
  }
  const std::string base = info.substr(0, info.size() - std::string(kInfo).size());
  const size_t dash = base.find('-');
  std::string wheel = base.substr(0, dash);
  std::replace(wheel.begin(), wheel.end(), '_', '-');
  const std::string version = dash == std::string::npos ? "" : base.substr(dash + 1);
  for (const auto& [name, module] : points) {
    const InstalledPlugin plugin{name, module, wheel, version, path, ""};
    if (const InstalledPlugin* first = find_named(found.plugins, name)) {
      found.shadowed.emplace_back(plugin, *first);
    } else {
      found.plugins.push_back(plugin);
    }
  }
}

// RABBET_PLUGINS: 0, names, or paths of libraries, with commas between them.
void choose(Installed& found, const std::string& wish) {
  std::vector<InstalledPlugin> all;
  all.swap(found.plugins);
  if (stripped(wish) == "0") return;
  for (size_t at = 0; at <= wish.size();) {
    const size_t comma = std::min(wish.find(',', at), wish.size());
    const std::string item = stripped(wish.substr(at, comma - at));
    at = comma + 1;
    if (item.empty()) continue;
    if (ends_with(item, ".so")) {
      const fs::path path(item);
      std::error_code error;
      const std::string absolute = fs::absolute(path, error).lexically_normal().string();
      const InstalledPlugin library{path.filename().string(), "", item, "?", "", absolute};
      if (InstalledPlugin* same = find_named(found.plugins, library.name)) {
        *same = library;
      } else {
        found.plugins.push_back(library);
      }
    } else if (const InstalledPlugin* plugin = find_named(all, item)) {
      if (!find_named(found.plugins, item)) found.plugins.push_back(*plugin);
    } else {
      found.unknown.push_back(item);
    }
  }
}

}  // namespace

Installed find_installed(const std::vector<std::string>& folders) {
  Installed found;
  std::set<std::string> seen;
  for (const std::string& entry : folders) {
    std::error_code error;
    const std::string folder = fs::weakly_canonical(entry.empty() ? "." : entry, error).string();
    if (error || !seen.insert(folder).second) continue;
    for (const std::string& info : infos_of(folder)) add_info(found, folder, info);
  }
  if (const char* wish = std::getenv("RABBET_PLUGINS")) choose(found, wish);
  return found;
}

}  // namespace rabbet

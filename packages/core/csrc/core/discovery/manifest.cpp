#include "discovery/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>

#include "thread/error.h"

namespace rabbet {

namespace {

constexpr int64_t kLastPhase = 799;

bool is_text(const toml::Value* v) { return v && v->get<std::string>(); }
bool is_full_text(const toml::Value* v) { return is_text(v) && !v->get<std::string>()->empty(); }
bool is_bool(const toml::Value* v) { return v && v->get<bool>(); }
bool is_kind(const toml::Value* v) {
  if (!is_text(v)) return false;
  const std::string& kind = *v->get<std::string>();
  return kind == "backend" || kind == "transform" || kind == "ops";
}
template <class Fits>
bool is_list(const toml::Value* v, Fits&& fits) {
  const toml::Array* items = v ? v->get<toml::Array>() : nullptr;
  return items &&
         std::all_of(items->begin(), items->end(), [&](auto& item) { return fits(&item); });
}
bool is_names(const toml::Value* v) { return is_list(v, is_full_text); }
bool is_version(const toml::Value* v) {
  const auto is_int = [](const toml::Value* item) { return item->get<int64_t>() != nullptr; };
  return is_list(v, is_int) && v->get<toml::Array>()->size() == 2;
}

struct Key {
  const char* name;
  const char* expected;
  bool (*fits)(const toml::Value*);
  bool is_required;
};
constexpr Key kKeys[] = {
    {"name", "a str", is_text, true},
    {"kind", "backend, transform or ops", is_kind, true},
    {"provides", "a list of names", is_names, true},
    {"library", "the file name of a library", is_full_text, false},
    {"attributes", "a list of names", is_names, false},
    {"hooks", "true or false", is_bool, false},
    {"abi", "[major, minor], of the ABI that it needs", is_version, false},
};

[[noreturn]] void wrong(const std::string& key, const std::string& expected,
                        const toml::Value* got) {
  fail(RB_E_PLUGIN, "%s: '%s' must be %s, got %s", kManifestFile, key.c_str(), expected.c_str(),
       toml::repr(got).c_str());
}

void check_layer(const std::string& name, const toml::Value& value) {
  const toml::Table* layer = value.get<toml::Table>();
  const toml::Value* given = layer ? toml::find(*layer, "phase") : nullptr;
  const int64_t* phase = given ? given->get<int64_t>() : nullptr;
  if (!phase || *phase < 0 || *phase > kLastPhase)
    wrong("layers." + name + ".phase", "an int from 0 to " + std::to_string(kLastPhase), given);
  for (const char* word : {"before", "after"}) {
    const toml::Value* names = toml::find(*layer, word);
    if (names && !is_list(names, is_text))
      wrong("layers." + name + "." + word, "a list of names", names);
  }
}

void check_manifest(const toml::Table& manifest) {
  for (const Key& key : kKeys) {
    const toml::Value* value = toml::find(manifest, key.name);
    if ((value || key.is_required) && !key.fits(value)) wrong(key.name, key.expected, value);
  }
  const toml::Value* declared = toml::find(manifest, "layers");
  if (!declared) return;
  if (!declared->get<toml::Table>()) wrong("layers", "a table", declared);
  for (const auto& [name, layer] : *declared->get<toml::Table>()) check_layer(name, layer);
}

std::string text_of(const toml::Table& table, const char* key) {
  const toml::Value* value = toml::find(table, key);
  return value ? *value->get<std::string>() : std::string();
}
std::vector<std::string> names_of(const toml::Table& table, const char* key) {
  std::vector<std::string> names;
  if (const toml::Value* value = toml::find(table, key)) {
    for (const toml::Value& item : *value->get<toml::Array>())
      names.push_back(*item.get<std::string>());
  }
  return names;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad())
    fail(RB_E_PLUGIN, "%s cannot be read: %s", path.c_str(), std::strerror(errno));
  return text;
}

}  // namespace

toml::Table read_manifest(const std::string& path) {
  toml::Table manifest;
  const std::string text = read_file(path);
  try {
    manifest = toml::parse(text);
  } catch (const Error& error) {
    fail(RB_E_PLUGIN, "%s is no TOML file: %s", path.c_str(), error.message.c_str());
  }
  check_manifest(manifest);
  return manifest;
}

Manifest manifest_of(const toml::Table& table) {
  Manifest out;
  out.kind = text_of(table, "kind");
  out.library = text_of(table, "library");
  out.provides = names_of(table, "provides");
  if (const toml::Value* abi = toml::find(table, "abi")) {
    const toml::Array& pair = *abi->get<toml::Array>();
    out.abi = {static_cast<int>(*pair[0].get<int64_t>()),
               static_cast<int>(*pair[1].get<int64_t>())};
  }
  if (const toml::Value* layers = toml::find(table, "layers")) {
    for (const auto& [name, value] : *layers->get<toml::Table>()) {
      const toml::Table& layer = *value.get<toml::Table>();
      out.layers.push_back({name,
                            static_cast<uint32_t>(*toml::find(layer, "phase")->get<int64_t>()),
                            names_of(layer, "before"), names_of(layer, "after")});
    }
  }
  return out;
}

std::vector<DeclaredLayer> order_layers(const std::vector<ManifestLayer>& declared) {
  std::vector<ManifestLayer> left;
  for (const ManifestLayer& layer : declared) {
    const auto same = std::find_if(left.begin(), left.end(),
                                   [&](const auto& other) { return other.name == layer.name; });
    if (same != left.end()) {
      *same = layer;
    } else {
      left.push_back(layer);
    }
  }
  left.erase(std::remove_if(left.begin(), left.end(),
                            [](const auto& layer) { return is_transform_phase(layer.phase); }),
             left.end());
  std::sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return std::tie(a.phase, a.name) < std::tie(b.phase, b.name);
  });
  std::set<std::pair<std::string, std::string>> above;  // the first runs before the second
  for (const ManifestLayer& layer : left) {
    for (const std::string& other : layer.before) above.emplace(layer.name, other);
    for (const std::string& other : layer.after) above.emplace(other, layer.name);
  }
  std::vector<DeclaredLayer> done;
  while (!left.empty()) {
    const auto end = std::find_if(left.begin(), left.end(), [&](const auto& layer) {
      return layer.phase != left.front().phase;
    });
    auto first = std::find_if(left.begin(), end, [&](const auto& layer) {
      return std::none_of(left.begin(), end, [&](const auto& other) {
        return above.count({other.name, layer.name}) != 0;
      });
    });
    if (first == end) first = left.begin();
    done.push_back({first->name, first->phase});
    left.erase(first);
  }
  return done;
}

}  // namespace rabbet

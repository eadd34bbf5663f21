#include "discovery.h"

#include <pybind11/stl.h>

#include <tuple>

#include "discovery/installed.h"
#include "discovery/manifest.h"
#include "errors.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

// Names of folders and texts of files need not be UTF-8.
py::object text(const std::string& s) {
  return py::reinterpret_steal<py::object>(
      must(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape")));
}

py::object to_python(const toml::Value& value);

py::dict to_dict(const toml::Table& table) {
  py::dict out;
  for (const auto& [key, value] : table) out[text(key)] = to_python(value);
  return out;
}

struct ToPython {
  py::object operator()(const std::string& s) const { return text(s); }
  py::object operator()(const toml::Array& items) const {
    py::list out;
    for (const toml::Value& item : items) out.append(to_python(item));
    return out;
  }
  py::object operator()(const toml::Table& table) const { return to_dict(table); }
  template <class Plain>
  py::object operator()(const Plain& plain) const {
    return py::cast(plain);
  }
};

py::object to_python(const toml::Value& value) { return std::visit(ToPython{}, value.data); }

py::tuple describe(const InstalledPlugin& p) {
  return py::make_tuple(text(p.name), text(p.module), text(p.wheel), text(p.version), text(p.info),
                        text(p.library));
}

py::dict installed(const std::vector<std::string>& folders) {
  const Installed found = find_installed(folders);
  py::list plugins, shadowed, leftovers, unknown;
  for (const InstalledPlugin& plugin : found.plugins) plugins.append(describe(plugin));
  for (const auto& [plugin, first] : found.shadowed)
    shadowed.append(py::make_tuple(describe(plugin), describe(first)));
  for (const auto& [folder, what] : found.leftovers)
    leftovers.append(py::make_tuple(text(folder), what));
  for (const std::string& name : found.unknown) unknown.append(text(name));
  py::dict out;
  out["plugins"] = plugins;
  out["shadowed"] = shadowed;
  out["leftovers"] = leftovers;
  out["unknown"] = unknown;
  return out;
}

using Declared =
    std::tuple<std::string, uint32_t, std::vector<std::string>, std::vector<std::string>>;

std::vector<std::pair<std::string, uint32_t>> reserve(const std::vector<Declared>& declared) {
  std::vector<ManifestLayer> layers;
  for (const auto& [name, phase, before, after] : declared)
    layers.push_back({name, phase, before, after});
  const std::vector<DeclaredLayer> order = order_layers(layers);
  reserve_layers(order);
  std::vector<std::pair<std::string, uint32_t>> out;
  for (const DeclaredLayer& layer : order) out.emplace_back(layer.name, layer.phase);
  return out;
}

}  // namespace

void bind_discovery(py::module_& m) {
  m.def("find_installed", installed, py::arg("folders"),
        "Plugins as (name, module, wheel, version, info, library), and what else was found.");
  m.def(
      "read_manifest", [](const std::string& path) { return to_dict(read_manifest(path)); },
      py::arg("path"), "A manifest, checked.");
  m.def("reserve_layers", reserve, py::arg("declared"),
        "Keep places for layers, given as (name, phase, before, after); their order.");
}

}  // namespace rabbet::python

#include "composite.h"

#include <pybind11/stl.h>

#include "call/composite.h"
#include "errors.h"
#include "layer/transforms.h"
#include "tensor_type.h"
#include "value_types.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

py::object shared(RbTensor* t) {
  if (!t) return py::none();
  retain(t);
  return py::reinterpret_steal<py::object>(must(wrap(t)));
}

py::object describe_composite(const py::object& o) {
  if (!is_tensor(o.ptr()) || !(tensor_of(o.ptr())->flags & RB_T_COMPOSITE)) return py::none();
  const Tensor* t = tensor_of(o.ptr());
  const Composition c = composition(t);
  const LayerEntry& layer = layer_entry(c.layer);
  py::list parts;
  for (uint32_t i = 0; i < c.nparts; ++i) parts.append(shared(c.parts[i]));
  py::dict d;
  d["layer"] = layer.name;
  d["name"] = layer.composite_name;
  d["provider"] = layer.provider;
  d["parts"] = py::tuple(parts);
  d["blob"] = py::bytes(static_cast<const char*>(c.blob), c.nbytes);
  d["has_values"] = layer.real != nullptr;
  d["text"] = composite_text(t);
  return d;
}

// The name of the layer alone, which attributes ask for at each access.
py::object composite_layer(const py::object& o) {
  if (!is_tensor(o.ptr()) || !(tensor_of(o.ptr())->flags & RB_T_COMPOSITE)) return py::none();
  return py::str(layer_entry(body_of(tensor_of(o.ptr())).layer).name);
}

// The values as a tensor with memory, by the layer's data hook.
py::object values(const py::object& o) {
  if (!is_tensor(o.ptr()))
    raise(PyExc_TypeError, "expected a tensor, not %s", Py_TYPE(o.ptr())->tp_name);
  return py::reinterpret_steal<py::object>(
      must(wrap(readable(tensor_of(o.ptr()), "values").release_ownership())));
}

py::object load(const std::string& name, const std::vector<int64_t>& shape, const py::object& dtype,
                const py::object& device, const py::tuple& parts, const std::string& blob,
                const py::object& layout) {
  const LayerEntry* layer = find_composites(name);
  if (!layer) raise(PyExc_LookupError, "no loaded layer has composites named '%s'", name.c_str());
  const int id = dtype_of(dtype.ptr());
  if (id < 0) raise(PyExc_TypeError, "expected a dtype, got %s", Py_TYPE(dtype.ptr())->tp_name);
  const int laid_out = layout_of(layout.ptr());
  if (laid_out < 0)
    raise(PyExc_TypeError, "expected a layout, got %s", Py_TYPE(layout.ptr())->tp_name);
  const DeviceSpec where = device_argument(device.ptr());
  std::vector<RbTensor*> list;
  for (const py::handle& part : parts) {
    if (!part.is_none() && !is_tensor(part.ptr()))
      raise(PyExc_TypeError, "a part must be a tensor or None, not %s",
            Py_TYPE(part.ptr())->tp_name);
    list.push_back(part.is_none() ? nullptr : tensor_of(part.ptr()));
  }
  Tensor* made =
      load_composite({layer->bit, where.backend, where.index, id, static_cast<int>(shape.size()),
                      shape.data(), nullptr, list.data(), static_cast<uint32_t>(list.size()),
                      blob.data(), blob.size(), nullptr, laid_out});
  return py::reinterpret_steal<py::object>(must(wrap(made)));
}

}  // namespace

void bind_composite(py::module_& m) {
  m.def("composite", describe_composite, py::arg("tensor"),
        "What a composite is made of: layer, name (in files), provider, parts, blob, has_values, "
        "text; None for any other tensor.");
  m.def("composite_layer", composite_layer, py::arg("tensor"));
  m.def("composite_values", values, py::arg("tensor"));
  m.def("load_composite", load, py::arg("name"), py::arg("shape"), py::arg("dtype"),
        py::arg("device"), py::arg("parts"), py::arg("blob"), py::arg("layout"),
        "A composite out of what a file says. Raises LookupError where no loaded layer has the "
        "name.");
}

}  // namespace rabbet::python

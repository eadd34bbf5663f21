// rabbet.amp._C: the layer's table for Python. Backends are named by their ids, as backend_id gives
// them.
#include <pybind11/pybind11.h>

#include <string>

#include "rabbet/autocast.h"
#include "rabbet/python.h"
#include "rabbet/values.hpp"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;
const RbAutocast* layer = nullptr;

int32_t backend_id(const py::object& o) {
  const RbTensor* t = core->unwrap(o.ptr());
  if (!t) throw py::type_error("backend_id: expected a Tensor");
  return t->backend;
}

py::object dtype_object(int32_t id) {
  const RbValue v = rb::dtype_value(id);
  PyObject* o = core->from_value(&v);
  if (!o) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}

int32_t dtype_id(const py::object& o) {
  const py::object name = py::getattr(o, "name", py::none());
  int32_t dtype = 0;
  if (py::isinstance<py::str>(name) &&
      core->host->find_dtype(name.cast<std::string>().c_str(), &dtype) == RB_OK &&
      dtype_object(dtype).is(o))
    return dtype;
  throw py::type_error(std::string("expected a dtype, got ") + Py_TYPE(o.ptr())->tp_name);
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  rb::host = core->host;
  layer = static_cast<const RbAutocast*>(core->host->get_ext(RB_AUTOCAST_EXT, RB_AUTOCAST_VERSION));
  if (!layer)
    throw py::import_error("rabbet.amp: the plugin 'autocast' is not loaded; import rabbet.amp");
  m.def("backend_id", backend_id);
  m.def("is_enabled", [](int32_t backend) { return layer->is_enabled(backend) != 0; });
  m.def("set_enabled", [](int32_t backend, bool on) { layer->set_enabled(backend, on); });
  m.def("get_dtype", [](int32_t backend) { return dtype_object(layer->get_dtype(backend)); });
  m.def("set_dtype", [](int32_t backend, const py::object& dtype) {
    layer->set_dtype(backend, dtype_id(dtype));
  });
  m.def("set_default_dtype", [](int32_t backend, const py::object& dtype) {
    layer->set_default_dtype(backend, dtype_id(dtype));
  });
  m.def("is_cache_enabled", [] { return layer->is_cache_enabled() != 0; });
  m.def("set_cache_enabled", [](bool on) { layer->set_cache_enabled(on); });
  m.def("clear_cache", [] { layer->clear_cache(); });
  m.def("cached_casts", [] { return layer->cached_casts(); });
  m.def("enter", [] { return layer->enter(); });
  m.def("leave", [] { return layer->leave(); });
}

// rabbet._dispatch: the layer of __torch_dispatch__ for rabbet._torch_dispatch.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "layer.h"
#include "rabbet/plugin.hpp"

namespace py = pybind11;

namespace {

// Runs what may fail in either way as pybind11 wants it.
template <class Body>
auto guarded(Body&& body) {
  try {
    return body();
  } catch (const dispatch::PythonError&) {
    throw py::error_already_set();
  } catch (const rb::Stored& stored) {
    dispatch::core->raise_error(stored.code);
    throw py::error_already_set();
  }
}

RbTensor* tensor(const py::handle& o) {
  RbTensor* t = dispatch::core->unwrap(o.ptr());
  if (!t) throw py::type_error(std::string("expected a Tensor, got ") + Py_TYPE(o.ptr())->tp_name);
  return t;
}

py::object make_wrapper(const py::type& cls, const py::object& keeper,
                        const std::vector<int64_t>& shape,
                        const std::optional<std::vector<int64_t>>& strides) {
  return guarded([&] {
    RbTensor* made = dispatch::make_wrapper(tensor(keeper), static_cast<int32_t>(shape.size()),
                                            shape.data(), strides ? strides->data() : nullptr);
    PyObject* o = dispatch::core->wrap_as(reinterpret_cast<PyTypeObject*>(cls.ptr()), made);
    if (!o) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(o);
  });
}

}  // namespace

PYBIND11_MODULE(_dispatch, m) {
  dispatch::core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!dispatch::core) throw py::error_already_set();
  m.def("add_layer",
        [](const py::object& handler, const py::object& reader, const py::object& on_read) {
          guarded([&] { dispatch::add_layer(handler.ptr(), reader.ptr(), on_read.ptr()); });
        });
  m.def("mark", [](const py::object& t) { guarded([&] { dispatch::mark(tensor(t)); }); });
  m.def("is_wrapper", [](const py::object& t) { return dispatch::is_wrapper(tensor(t)); });
  m.def("make_wrapper", make_wrapper, py::arg("cls"), py::arg("keeper"), py::arg("shape"),
        py::arg("strides"));
  m.def("keeper", [](const py::object& t) {
    return guarded(
        [&] { return py::reinterpret_steal<py::object>(dispatch::keeper_of(tensor(t))); });
  });
  m.def("push_mode", [](const py::object& mode) { dispatch::push_mode(mode.ptr()); });
  m.def("pop_mode", [] {
    return guarded([] { return py::reinterpret_steal<py::object>(dispatch::pop_mode()); });
  });
  m.def("modes", [] {
    return guarded([] { return py::reinterpret_steal<py::list>(dispatch::mode_list()); });
  });
  m.def("call_outside", [](const py::object& function) {
    return guarded(
        [&] { return py::reinterpret_steal<py::object>(dispatch::call_outside(function.ptr())); });
  });
  m.def("set_disabled", dispatch::set_disabled);
}

// rabbet.vmap._C: the batching layer's table for Python.
#include <pybind11/pybind11.h>

#include <string>

#include "rabbet/python.h"
#include "rabbet/vmap.h"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;
const RbVmap* table = nullptr;

void check(int32_t code) {
  if (code == RB_OK) return;
  core->raise_error(code);
  throw py::error_already_set();
}

RbTensor* tensor(const py::handle& o) {
  RbTensor* t = core->unwrap(o.ptr());
  if (!t) throw py::type_error(std::string("expected a Tensor, got ") + Py_TYPE(o.ptr())->tp_name);
  return t;
}

py::object wrap_owned(RbTensor* t) {
  PyObject* o = core->wrap(t);
  if (!o) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}

int32_t push(int64_t size, int32_t randomness, bool strict) {
  int32_t level = 0;
  check(table->push(size, randomness, strict, &level));
  return level;
}

py::object wrap(int32_t level, const py::object& t, int64_t dim) {
  RbTensor* out = nullptr;
  check(table->wrap(level, tensor(t), dim, &out));
  return wrap_owned(out);
}

py::tuple unwrap(int32_t level, const py::object& t) {
  RbTensor* inner = nullptr;
  int64_t dim = -1;
  check(table->unwrap(level, tensor(t), &inner, &dim));
  return py::make_tuple(wrap_owned(inner), dim);
}

// ---- what batching rules of users are given, and give

py::tuple opened(int32_t level, const py::object& t) {
  RbTensor* inner = nullptr;
  int64_t dim = -1;
  check(table->unwrap(level, tensor(t), &inner, &dim));
  const py::object at = dim < 0 ? py::object(py::none()) : py::object(py::int_(dim));
  return py::make_tuple(wrap_owned(inner), at);
}

py::object closed(int32_t level, const py::object& t, int64_t dim) {
  RbTensor* out = nullptr;
  check(table->wrap(level, tensor(t), dim, &out));
  return wrap_owned(out);
}

py::tuple level_info(int32_t level) {
  static const char* const names[] = {"error", "same", "different"};
  int64_t size = 0;
  int32_t randomness = 0;
  check(table->level_info(level, &size, &randomness));
  return py::make_tuple(size, names[randomness]);
}

int32_t warn(const char* message) {
  const py::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message, 1) == 0) return RB_OK;
  return core->capture_error();
}

py::dict routes() {
  py::dict out;
  table->visit_routes(
      [](void* ctx, const char* op, int32_t routes) {
        (*static_cast<py::dict*>(ctx))[py::str(op)] = py::int_(routes);
      },
      &out);
  return out;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  table = static_cast<const RbVmap*>(core->host->get_ext(RB_VMAP_EXT, RB_VMAP_VERSION));
  if (!table)
    throw py::import_error("rabbet.vmap: the plugin 'vmap' is not loaded; import rabbet.vmap");
  table->set_warning(warn);
  m.def("push", push, py::arg("size"), py::arg("randomness"), py::arg("strict"));
  m.def("pop", [](int32_t level) { check(table->pop(level)); });
  m.def("wrap", wrap, py::arg("level"), py::arg("tensor"), py::arg("dim"));
  m.def("unwrap", unwrap, py::arg("level"), py::arg("tensor"));
  m.def("opened", opened, py::arg("level"), py::arg("tensor"));
  m.def("closed", closed, py::arg("level"), py::arg("tensor"), py::arg("dim"));
  m.def("level_info", level_info, py::arg("level"));
  m.def("record_routes", [](bool on) { table->record_routes(on); });
  m.def("routes", routes);
  m.attr("RULE") = int{RB_ROUTE_RULE};
  m.attr("DECOMPOSITION") = int{RB_ROUTE_DECOMP};
  m.attr("LOOP") = int{RB_ROUTE_LOOP};
}

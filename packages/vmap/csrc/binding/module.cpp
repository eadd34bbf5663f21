// rabbet.vmap._C: the tables of the batching layer and of functionalize for Python.
#include <pybind11/pybind11.h>

#include <string>

#include "rabbet/functionalize.h"
#include "rabbet/python.h"
#include "rabbet/vmap.h"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;
const RbVmap* table = nullptr;
const RbFunctionalize* functionalize = nullptr;

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

int32_t functional_push(bool copies) {
  int32_t level = 0;
  check(functionalize->push(copies, &level));
  return level;
}

py::object functional_wrap(int32_t level, const py::object& t) {
  RbTensor* out = nullptr;
  check(functionalize->wrap(level, tensor(t), &out));
  return wrap_owned(out);
}

py::object functional_unwrap(int32_t level, const py::object& t) {
  RbTensor* out = nullptr;
  check(functionalize->unwrap(level, tensor(t), &out));
  return wrap_owned(out);
}

py::list functional_written(int32_t level) {
  py::list out;
  check(functionalize->visit_written(
      level,
      [](void* ctx, RbTensor* t, RbTensor* value) {
        for (RbTensor* each : {t, value}) core->host->retain(each);
        const py::object target = wrap_owned(t);
        static_cast<py::list*>(ctx)->append(py::make_tuple(target, wrap_owned(value)));
      },
      &out));
  return out;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  table = static_cast<const RbVmap*>(core->host->get_ext(RB_VMAP_EXT, RB_VMAP_VERSION));
  functionalize = static_cast<const RbFunctionalize*>(
      core->host->get_ext(RB_FUNCTIONALIZE_EXT, RB_FUNCTIONALIZE_VERSION));
  if (!table || !functionalize)
    throw py::import_error("rabbet.vmap: the plugin 'vmap' is not loaded; import rabbet.vmap");
  table->set_warning(warn);
  m.def("push", push, py::arg("size"), py::arg("randomness"), py::arg("strict"));
  m.def("pop", [](int32_t level) { check(table->pop(level)); });
  m.def("wrap", wrap, py::arg("level"), py::arg("tensor"), py::arg("dim"));
  m.def("unwrap", unwrap, py::arg("level"), py::arg("tensor"));
  m.def("record_routes", [](bool on) { table->record_routes(on); });
  m.def("routes", routes);
  m.def("functional_push", functional_push, py::arg("copies"));
  m.def("functional_pop", [](int32_t level) { check(functionalize->pop(level)); });
  m.def("functional_wrap", functional_wrap, py::arg("level"), py::arg("tensor"));
  m.def("functional_unwrap", functional_unwrap, py::arg("level"), py::arg("tensor"));
  m.def("functional_written", functional_written, py::arg("level"));
  m.attr("RULE") = int{RB_ROUTE_RULE};
  m.attr("DECOMPOSITION") = int{RB_ROUTE_DECOMP};
  m.attr("LOOP") = int{RB_ROUTE_LOOP};
}

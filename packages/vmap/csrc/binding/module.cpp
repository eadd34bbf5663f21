// rabbet.vmap._C: the tables of the batching layer and of functionalize for Python.
#include <pybind11/pybind11.h>

#include <string>

#include "rabbet/functionalize.h"
#include "rabbet/python.h"
#include "rabbet/python.hpp"
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

py::list wrapped(int32_t level, const py::list& leaves, const py::list& dims) {
  py::list out(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const py::handle leaf = PyList_GET_ITEM(leaves.ptr(), i);
    const py::handle dim = PyList_GET_ITEM(dims.ptr(), i);
    RbTensor* t = nullptr;
    if (!dim.is_none()) check(table->wrap(level, tensor(leaf), dim.cast<int64_t>(), &t));
    out[i] = t ? wrap_owned(t) : py::reinterpret_borrow<py::object>(leaf);
  }
  return out;
}

py::tuple enter(int64_t size, int32_t randomness, bool strict, const py::list& leaves,
                const py::list& dims) {
  if (leaves.size() != dims.size()) throw py::value_error("enter: one dimension for each leaf");
  int32_t level = 0;
  check(table->push(size, randomness, strict, &level));
  try {
    return py::make_tuple(level, wrapped(level, leaves, dims));
  } catch (...) {
    table->pop(level);
    throw;
  }
}

py::list unwrap(int32_t level, const py::list& results) {
  py::list out(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    RbTensor* inner = nullptr;
    int64_t dim = -1;
    check(table->unwrap(level, tensor(PyList_GET_ITEM(results.ptr(), i)), &inner, &dim));
    const py::object at = dim < 0 ? py::object(py::none()) : py::object(py::int_(dim));
    out[i] = py::make_tuple(wrap_owned(inner), at);
  }
  return out;
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

// What a wrapper stands for; another tensor itself.
py::object inner(const py::object& o) {
  const RbTensor* t = tensor(o);
  if (!(t->flags & RB_T_WRAPPER)) return o;
  RbTensor* found = static_cast<const RbWrap*>(t->ext)->inner;
  core->host->retain(found);
  return wrap_owned(found);
}

py::tuple level_info(int32_t level) {
  static const char* const names[] = {"error", "same", "different"};
  int64_t size = 0;
  int32_t randomness = 0;
  check(table->level_info(level, &size, &randomness));
  return py::make_tuple(size, names[randomness]);
}

int32_t warn(const char* message) {
  const rb::WithGil gil;
  const int failed =
      rb::calling_python([&] { return PyErr_WarnEx(PyExc_UserWarning, message, 1); });
  if (!failed) return RB_OK;
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
  m.def("enter", enter, py::arg("size"), py::arg("randomness"), py::arg("strict"),
        py::arg("leaves"), py::arg("dims"));
  m.def("pop", [](int32_t level) { check(table->pop(level)); });
  m.def("unwrap", unwrap, py::arg("level"), py::arg("results"));
  m.def("opened", opened, py::arg("level"), py::arg("tensor"));
  m.def("closed", closed, py::arg("level"), py::arg("tensor"), py::arg("dim"));
  m.def("inner", inner);
  m.def("level_info", level_info, py::arg("level"));
  m.def("is_batched_level", [](int32_t level) {
    int64_t size = 0;
    int32_t randomness = 0;
    const bool is = table->level_info(level, &size, &randomness) == RB_OK;
    if (!is) core->host->err_clear();
    return is;
  });
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

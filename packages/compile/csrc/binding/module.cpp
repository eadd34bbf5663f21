// rabbet_compile._C: the plugin's table for Python.
#include <pybind11/pybind11.h>

#include <string>

#include "rabbet/compile.h"
#include "rabbet/python.h"

namespace py = pybind11;

namespace {

const RbPython* core = nullptr;
const RbCompile* table = nullptr;

void check(int32_t code) {
  if (code == RB_OK) return;
  core->raise_error(code);
  throw py::error_already_set();
}

PyObject* enter(PyObject*, PyObject*) {
  int32_t before = 0;
  if (const int32_t rc = table->set_on(1, &before)) return core->raise_error(rc);
  return PyBool_FromLong(before);
}
PyObject* leave(PyObject*, PyObject*) {
  if (const int32_t rc = table->set_on(0, nullptr)) return core->raise_error(rc);
  return Py_NewRef(Py_None);
}

py::dict totals() {
  RbCompileTotals t{};
  t.struct_size = sizeof t;
  check(table->totals(&t));
  py::dict d;
  d["recorded"] = t.recorded;
  d["flushes"] = t.flushes;
  d["dropped"] = t.dropped;
  d["unstored"] = t.unstored;
  d["tiled"] = t.tiled;
  d["declined"] = t.declined;
  d["plans"] = t.plans;
  return d;
}

py::list lines() {
  py::list list;
  check(table->lines(
      [](void* ctx, const RbCompileLine* line) {
        py::list ops;
        for (int32_t i = 0; i < line->nops; ++i) ops.append(line->ops[i]);
        py::dict d;
        d["reason"] = line->reason;
        d["source"] = line->source;
        d["ops"] = ops;
        d["run"] = line->run;
        d["stored"] = line->stored;
        d["declined"] = line->declined != 0;
        d["numel"] = line->numel;
        d["tiles"] = line->tiles;
        d["microseconds"] = line->microseconds;
        static_cast<py::list*>(ctx)->append(d);
      },
      &list));
  return list;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) throw py::error_already_set();
  table = static_cast<const RbCompile*>(core->host->get_ext(RB_COMPILE_EXT, RB_COMPILE_VERSION));
  if (!table)
    throw py::import_error(
        "rabbet_compile: the plugin 'compile' is not loaded; import rabbet_compile");
  m.def("use_backend_of", [](const py::object& o) {
    const RbTensor* t = core->unwrap(o.ptr());
    if (!t) throw py::type_error("use_backend_of: expected a Tensor");
    check(table->use_backend(t->backend));
  });
  m.def("is_on", [] { return table->is_on() != 0; });
  // Called twice for each call of a compiled function: without pybind11's look at the arguments.
  static PyMethodDef methods[] = {
      {"enter", enter, METH_NOARGS, "Switch regions on; returns whether they were."},
      {"leave", leave, METH_NOARGS, "Run what is deferred, and switch regions off."},
      {nullptr, nullptr, 0, nullptr}};
  if (PyModule_AddFunctions(m.ptr(), methods) < 0) throw py::error_already_set();
  m.def("flush", [](const std::string& reason) { check(table->flush(reason.c_str())); });
  m.def("set",
        [](const std::string& name, int64_t value) { check(table->set(name.c_str(), value)); });
  m.def("get", [](const std::string& name) {
    int64_t value = 0;
    check(table->get(name.c_str(), &value));
    return value;
  });
  m.def("totals", totals);
  m.def("lines", lines);
  m.def("clear", [] { table->clear(); });
}

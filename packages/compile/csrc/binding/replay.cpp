// rabbet_compile._replay: watches Python code, checks guards, and runs variants.
#include <Python.h>

#include <exception>
#include <memory>
#include <vector>

#include "replay/numbers.h"
#include "replay/object.h"
#include "replay/variant.h"
#include "replay/watch.h"

namespace replay {

const RbPython* core = nullptr;
const RbTrace* trace = nullptr;
const RbCompile* regions = nullptr;
PyObject* missing = nullptr;

namespace {

// A table that is published when its module is imported.
template <class Table>
const Table* published(const char* name, int32_t version) {
  static const Table* table = nullptr;
  if (!table) {
    const auto* found = static_cast<const Table*>(core->host->get_ext(name, version));
    if (found && found->struct_size >= sizeof(Table)) table = found;
  }
  return table;
}

}  // namespace

const RbAutograd* autograd() { return published<RbAutograd>(RB_AUTOGRAD_EXT, RB_AUTOGRAD_VERSION); }
const RbGraph* programs() { return published<RbGraph>(RB_GRAPH_EXT, RB_GRAPH_VERSION); }

namespace {

PyObject* failed_mark = nullptr;

// Sets the exception of an error, unless one is set; returns null.
PyObject* set_error(const std::exception& error) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
  return nullptr;
}

// ---- Variants: of one function, the one that ran last first

struct Variants {
  PyObject_HEAD std::vector<std::shared_ptr<Variant>>* all;
  Py_ssize_t made;
};

PyObject* variants_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<Variants*>(type->tp_alloc(type, 0));
  if (self) self->all = new std::vector<std::shared_ptr<Variant>>;
  return reinterpret_cast<PyObject*>(self);
}

int variants_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  for (const auto& variant : *reinterpret_cast<Variants*>(self)->all)
    if (const int rc = variant->traverse(visit, arg)) return rc;
  return 0;
}

int variants_clear(PyObject* self) {
  std::vector<std::shared_ptr<Variant>> dropped;
  dropped.swap(*reinterpret_cast<Variants*>(self)->all);
  return 0;
}

void variants_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  variants_clear(self);
  delete reinterpret_cast<Variants*>(self)->all;
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* variants_add(PyObject* self, PyObject* spec) {
  try {
    auto* variants = reinterpret_cast<Variants*>(self);
    auto made = std::make_shared<Variant>(spec, variants->made);
    variants->all->insert(variants->all->begin(), std::move(made));
    ++variants->made;
  } catch (const std::exception& error) {
    return set_error(error);
  }
  Py_RETURN_NONE;
}

// call(args, kwargs): what the function would return; MISSING: no variant fits; FAILED: one raised
// an error, and has changed nothing.
PyObject* variants_call(PyObject* self, PyObject* const* given, Py_ssize_t n) {
  if (n != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1])) {
    PyErr_SetString(PyExc_TypeError, "Variants.call: expected a tuple and a dict");
    return nullptr;
  }
  auto& all = *reinterpret_cast<Variants*>(self)->all;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::shared_ptr<Variant> variant = all[i];  // what runs may change the list
    Outcome outcome = variant->call(given[0], given[1]);
    switch (outcome.what) {
      case Outcome::kMismatch:
        continue;
      case Outcome::kRaised:
        return nullptr;
      case Outcome::kFailed:
        return Py_NewRef(failed_mark);
      case Outcome::kDone:
        if (i && i < all.size()) std::swap(all[0], all[i]);
        return outcome.result.release();
    }
  }
  return Py_NewRef(missing);
}

// For each variant, in the order of calls: its number, and that of the guard at which the last call
// left it; -1: at the arguments.
PyObject* variants_failed(PyObject* self, PyObject*) {
  Ref list = Ref::take(PyList_New(0));
  for (const auto& variant : *reinterpret_cast<Variants*>(self)->all) {
    const Ref at = Ref::take(Py_BuildValue("nn", variant->number(), variant->failed()));
    if (!list || !at || PyList_Append(list.get(), at.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* variants_runs(PyObject* self, void*) {
  int64_t runs = 0;
  for (const auto& variant : *reinterpret_cast<Variants*>(self)->all) runs += variant->runs();
  return PyLong_FromLongLong(runs);
}

Py_ssize_t variants_length(PyObject* self) {
  return static_cast<Py_ssize_t>(reinterpret_cast<Variants*>(self)->all->size());
}

PyMethodDef variants_methods[] = {
    {"add", variants_add, METH_O, "Add a variant, described by a tuple, before the others."},
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(variants_call)), METH_FASTCALL,
     "Run the first variant whose guards hold; MISSING: there is none; FAILED: it raised an "
     "error."},
    {"failed", variants_failed, METH_NOARGS,
     "For each variant its number, and that of the guard at which the last call left it, or -1."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef variants_getset[] = {
    {"runs", variants_runs, nullptr, "How often a variant ran.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot variants_slots[] = {
    {Py_tp_doc, const_cast<char*>("The recorded programs of a function.")},
    {Py_tp_new, reinterpret_cast<void*>(variants_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(variants_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(variants_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(variants_clear)},
    {Py_tp_methods, variants_methods},
    {Py_tp_getset, variants_getset},
    {Py_sq_length, reinterpret_cast<void*>(variants_length)},
    {0, nullptr}};
PyType_Spec variants_spec = {"rabbet_compile._replay.Variants", sizeof(Variants), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, variants_slots};

// Whether guards, given as a list, hold; for tests.
PyObject* holds(PyObject*, PyObject* items) {
  try {
    Guards guards(items);
    Py_ssize_t failed = -1;
    const int held = guards.check(failed);
    return held < 0 ? nullptr : PyBool_FromLong(held);
  } catch (const std::exception& error) {
    return set_error(error);
  }
}

PyObject* is_same(PyObject*, PyObject* const* given, Py_ssize_t n) {
  if (n == 2) return PyBool_FromLong(same(given[0], given[1]));
  PyErr_SetString(PyExc_TypeError, "same: expected two objects");
  return nullptr;
}

// Python makes all classes of `class` statements with one function that frees their objects.
PyObject* is_python_class(PyObject*, PyObject* type) {
  static const destructor usual = [] {
    PyObject* made =
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "made");
    return made ? reinterpret_cast<PyTypeObject*>(made)->tp_dealloc : nullptr;
  }();
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "is_python_class: expected a class");
    return nullptr;
  }
  return PyBool_FromLong(usual && reinterpret_cast<PyTypeObject*>(type)->tp_dealloc == usual);
}

PyObject* has_tables(PyObject*, PyObject*) { return PyBool_FromLong(autograd() && programs()); }

PyObject* has_hooks(PyObject*, PyObject* tensor) {
  const RbTensor* t = core->unwrap(tensor);
  return PyBool_FromLong(t && autograd() && autograd()->has_hooks(t));
}

PyObject* make_unique_number(PyObject*, PyObject* number) { return unique_number(number); }

PyMethodDef functions[] = {
    {"unique_number", make_unique_number, METH_O,
     "A number that is no other object, of the same value."},
    {"has_tables", has_tables, METH_NOARGS,
     "Whether the tables of rabbet.autograd and rabbet.graph are there, and new enough."},
    {"has_hooks", has_hooks, METH_O, "Whether backward passes may run hooks of a tensor."},
    {"is_python_class", is_python_class, METH_O, "Whether a `class` statement made a class."},
    {"holds", holds, METH_O, "Whether guards hold."},
    {"same", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(is_same)), METH_FASTCALL,
     "Whether guards take two objects for the same."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_replay", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

PyObject* mark(PyObject* module, const char* name) {
  PyObject* made = PyBaseObject_Type.tp_alloc(&PyBaseObject_Type, 0);
  return made && PyModule_AddObjectRef(module, name, made) == 0 ? made : nullptr;
}

}  // namespace

}  // namespace replay

PyMODINIT_FUNC PyInit__replay() {
  using namespace replay;
  core = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
  if (!core) return nullptr;
  trace = static_cast<const RbTrace*>(core->host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  regions = static_cast<const RbCompile*>(core->host->get_ext(RB_COMPILE_EXT, RB_COMPILE_VERSION));
  if (!trace || !regions) {
    PyErr_SetString(PyExc_ImportError, "rabbet_compile needs a newer rabbet-core: upgrade it");
    return nullptr;
  }
  PyObject* module = PyModule_Create(&definition);
  if (!module) return nullptr;
  missing = mark(module, "MISSING");
  failed_mark = mark(module, "FAILED");
  PyObject* type = PyType_FromSpec(&variants_spec);
  if (!missing || !failed_mark || !type || PyModule_AddObjectRef(module, "Variants", type) < 0 ||
      add_watch(module) < 0 ||
      PyModule_AddObjectRef(module, "CAN_WATCH", can_watch() ? Py_True : Py_False) < 0)
    return nullptr;
  return module;
}

#include "saved_values.h"

#include <cstring>

namespace binding {

namespace {

/// A tensor that a node keeps, as `_raw_saved_NAME`.
struct SavedTensor {
  py::object node;
  int32_t number;
};

// PyTorch's name of what is saved: the first argument is `self`, a single result `result`.
const char* torch_name(const RbSaved& s) {
  if (std::strcmp(s.name, s.is_result ? "out" : "input") == 0)
    return s.is_result ? "result" : "self";
  return s.name;
}
bool is_named(const RbSaved& s, const char* asked) {
  return std::strcmp(asked, s.name) == 0 || std::strcmp(asked, torch_name(s)) == 0;
}

void register_saved_hooks(const SavedTensor& saved, const py::function& pack,
                          const py::function& unpack) {
  check(tape->node_pack(as_node(saved.node.ptr())->node, saved.number, &python_hooks,
                        py::make_tuple(pack, unpack).release().ptr(), drop_callable));
}

}  // namespace

PyObject* node_source(PyObject* o, PyObject*) {
  const char* line = tape->node_source(as_node(o)->node);
  if (!line) Py_RETURN_NONE;
  return PyUnicode_FromString(line);
}
// (name, is_result, is_kept, is_packed) of each argument and result
PyObject* node_saved_names(PyObject* o, PyObject*) {
  PyObject* list = PyList_New(0);
  for (int32_t i = 0; list; ++i) {
    const RbSaved s = tape->node_saved(as_node(o)->node, i);
    if (!s.name) break;
    PyObject* entry = Py_BuildValue("(sNNN)", s.name, PyBool_FromLong(s.is_result),
                                    PyBool_FromLong(s.is_kept), PyBool_FromLong(s.is_packed));
    if (!entry || PyList_Append(list, entry) < 0) Py_CLEAR(list);
    Py_XDECREF(entry);
  }
  return list;
}
PyObject* node_load(PyObject* o, PyObject* number) {
  const long i = PyLong_AsLong(number);
  if (i == -1 && PyErr_Occurred()) return nullptr;
  const RbSaved s = i < 0 ? RbSaved{} : tape->node_saved(as_node(o)->node, static_cast<int32_t>(i));
  if (!s.name || !s.is_kept) {
    PyErr_Format(PyExc_IndexError, "%s keeps no value %ld", tape->node_name(as_node(o)->node), i);
    return nullptr;
  }
  PyObject* value = nullptr;
  const int32_t code = tape->node_load(
      as_node(o)->node, static_cast<int32_t>(i),
      [](void* ctx, const RbValue* v) {
        *static_cast<PyObject**>(ctx) = core->from_value(v);
        return *static_cast<PyObject**>(ctx) ? int32_t{RB_OK} : core->capture_error();
      },
      &value);
  return code == RB_OK ? value : core->raise_error(code);
}
// `_saved_NAME` is the value that the node keeps under the name, `_raw_saved_NAME` what keeps it.
PyObject* node_getattro(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  const char* text = PyUnicode_AsUTF8(name);
  const bool raw = text && std::strncmp(text, "_raw_saved_", 11) == 0;
  if (!raw && (!text || std::strncmp(text, "_saved_", 7) != 0)) return nullptr;
  for (int32_t i = 0;; ++i) {
    const RbSaved s = tape->node_saved(as_node(o)->node, i);
    if (!s.name) return nullptr;
    if (!s.is_kept || !is_named(s, text + (raw ? 11 : 7))) continue;
    PyErr_Clear();
    if (raw) return py::cast(SavedTensor{py::reinterpret_borrow<py::object>(o), i}).release().ptr();
    PyObject* number = PyLong_FromLong(i);
    PyObject* value = number ? node_load(o, number) : nullptr;
    Py_XDECREF(number);
    return value;
  }
}
PyObject* node_dir(PyObject* o, PyObject*) {
  py::list names = py::reinterpret_steal<py::list>(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__", "O", o));
  if (!names.ptr()) return nullptr;
  for (int32_t i = 0;; ++i) {
    const RbSaved s = tape->node_saved(as_node(o)->node, i);
    if (!s.name) break;
    if (!s.is_kept) continue;
    names.append(std::string("_saved_") + torch_name(s));
    names.append(std::string("_raw_saved_") + torch_name(s));
  }
  return names.release().ptr();
}

PyObject* node_is_freed(PyObject* o, PyObject*) {
  return PyBool_FromLong(tape->node_is_freed(as_node(o)->node));
}

void bind_saved_values(py::module_& m) {
  py::class_<SavedTensor>(m, "SavedTensor", "A tensor that a node keeps for backward.")
      .def("register_hooks", register_saved_hooks, py::arg("pack_hook"), py::arg("unpack_hook"),
           "Keep `pack_hook(tensor)` instead; `unpack_hook` gives the tensor back.")
      .def("unpack", [](const SavedTensor& saved) {
        const py::int_ number(saved.number);
        PyObject* value = node_load(saved.node.ptr(), number.ptr());
        if (!value) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(value);
      });
}

}  // namespace binding

// What the files of the binding share: the tables, nodes and callables as Python objects.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "rabbet/autograd.h"
#include "rabbet/python.h"
#include "rabbet/python.hpp"
#include "rabbet/values.hpp"

namespace binding {

namespace py = pybind11;

extern const RbPython* core;
extern const RbAutograd* tape;
extern PyTypeObject* node_type;

inline void check(int32_t code) {
  if (code == RB_OK) return;
  core->raise_error(code);
  throw py::error_already_set();
}

inline RbTensor* tensor(const py::handle& o, const char* what) {
  RbTensor* t = core->unwrap(o.ptr());
  if (!t) {
    throw py::type_error(std::string(what) + ": expected a Tensor, got " +
                         Py_TYPE(o.ptr())->tp_name);
  }
  return t;
}
inline py::object wrap_owned(RbTensor* t) {
  if (!t) return py::none();
  PyObject* o = core->wrap(t);
  if (!o) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(o);
}

/// The thread's grad mode: recording is off while the layer is excluded.
inline bool is_enabled() { return !(rb::thread_get().exclude >> tape->layer & 1); }

struct NodeObject {
  PyObject_HEAD RbNode* node;
};
inline NodeObject* as_node(PyObject* o) { return reinterpret_cast<NodeObject*>(o); }

/// Takes over the reference; None for null.
PyObject* wrap_node(RbNode* owned);
/// A tuple of borrowed tensors; None for null.
PyObject* to_tuple(RbTensor** list, int32_t n);
/// Put what a hook or a function returned, a Tensor or a sequence of `n` Tensors and Nones, in the
/// place of what is in `list`; None changes nothing. False: an exception is set.
bool from_tuple(PyObject* result, RbTensor** list, int32_t n);

// ---- a Python callable behind a C hook

template <class... Objects>
PyObject* call_object(void* callable, Objects*... args) {
  return rb::calling_python([&] {
    return PyObject_CallFunctionObjArgs(static_cast<PyObject*>(callable), args..., nullptr);
  });
}

/// The `del` of all contexts that are Python objects.
void drop_callable(void* ctx);
/// Saved-tensors hooks whose context is the tuple (pack, unpack).
extern const RbSavedHooks python_hooks;

}  // namespace binding

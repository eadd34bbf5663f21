// What nodes keep for backward, as attributes of their Python objects.
#pragma once
#include "binding.h"

namespace binding {

PyObject* node_source(PyObject* node, PyObject*);
PyObject* node_is_freed(PyObject* node, PyObject*);
PyObject* node_saved_names(PyObject* node, PyObject*);
PyObject* node_load(PyObject* node, PyObject* number);
PyObject* node_getattro(PyObject* node, PyObject* name);
PyObject* node_dir(PyObject* node, PyObject*);
void bind_saved_values(py::module_& m);

}  // namespace binding

// x[...] and x[...] = v, as calls of view and index operators.
#pragma once
#include "ref.h"

namespace rabbet::python {

PyObject* tensor_subscript(PyObject* self, PyObject* key);
int tensor_assign(PyObject* self, PyObject* key, PyObject* value);

}  // namespace rabbet::python

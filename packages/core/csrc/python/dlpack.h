// DLPack in both directions, without copying.
#pragma once
#include "ref.h"
#include "tensor/tensor.h"

namespace rabbet::python {

PyObject* tensor_dlpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* names);
PyObject* tensor_dlpack_device(PyObject* self, PyObject*);
/// A tensor over the memory of an object with __dlpack__, or of a capsule. Throws.
TensorRef from_dlpack(PyObject* object, PyObject* device, PyObject* copy);

}  // namespace rabbet::python

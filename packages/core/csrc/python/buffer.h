// Python's buffer protocol on Tensor: memoryview(t), numpy.asarray(t), bytes(t).
#pragma once
#include "ref.h"

namespace rabbet::python {

int tensor_get_buffer(PyObject* self, Py_buffer* view, int flags);
void tensor_release_buffer(PyObject* self, Py_buffer* view);
/// struct-style format of a dtype; null: there is none (bfloat16).
const char* buffer_format(int dtype);
/// dtype of a format and item size; -1: unknown.
int dtype_of_format(const char* format, Py_ssize_t itemsize);

}  // namespace rabbet::python

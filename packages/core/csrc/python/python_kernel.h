// Kernels written in Python.
#pragma once
#include "core/runtime.h"
#include "ref.h"

namespace rabbet::python {

/// A kernel that calls `fn(*arguments)`, which returns the result (a tuple for several).
RbKernel make_python_kernel(const char* op, const char* backend, PyObject* fn);

}  // namespace rabbet::python

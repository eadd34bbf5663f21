// Composite tensors for rabbet/composite.py, files and printing.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_composite(pybind11::module_& m);

}  // namespace rabbet::python

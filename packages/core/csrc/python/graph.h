// Memory pools and captured graphs for rabbet/_graphs.py.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_graph(pybind11::module_& m);

}  // namespace rabbet::python

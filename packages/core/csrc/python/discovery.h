// What is installed, for rabbet/_discovery.py and rabbet/_plugins.py.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_discovery(pybind11::module_& m);

}  // namespace rabbet::python

// What rabbet.library stands on: registration from Python, and what a call goes through.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_library(pybind11::module_& m);

}  // namespace rabbet::python

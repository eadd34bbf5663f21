// Seeing calls from Python: inference without running, the source line, the ring of events.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_trace(pybind11::module_& m);

}  // namespace rabbet::python

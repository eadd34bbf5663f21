// Streams and events for rabbet/_streams.py; streams are numbers there, 0 is the default one.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_streams(pybind11::module_& m);

}  // namespace rabbet::python

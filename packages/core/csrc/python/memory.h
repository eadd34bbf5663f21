// What the allocator and the counts of live objects say.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

void bind_memory(pybind11::module_& m);

}  // namespace rabbet::python

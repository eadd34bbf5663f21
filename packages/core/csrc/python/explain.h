// What a call with given arguments goes through.
#pragma once
#include <pybind11/pybind11.h>

namespace rabbet::python {

/// The slots that the dispatcher visits, in order; see the docstring in explain.cpp. Throws.
pybind11::dict dispatch_plan(const pybind11::object& op, const pybind11::tuple& args,
                             const pybind11::dict& kwargs);

/// The results by the operator's decomposition, though there be a kernel. Throws.
pybind11::object decomposed(const pybind11::object& op, const pybind11::tuple& args,
                            const pybind11::dict& kwargs);

}  // namespace rabbet::python

// A call of an operator as Python gives it, its overload chosen and its values parsed.
#pragma once
#include <pybind11/pybind11.h>

#include <functional>

#include "rabbet/python.h"
#include "record/op.h"

namespace rabbet::python {

/// Give `body` the record and values of the first overload of `op` that takes the arguments; else
/// raise TypeError naming `what`.
pybind11::object with_call(
    const char* what, const pybind11::object& op, const pybind11::tuple& args,
    const pybind11::dict& kwargs,
    const std::function<pybind11::object(const Op& op, const RbValue* values, int32_t n)>& body);

/// The record or the derivative ("OP.vjp.ARGUMENT") of a name; raises KeyError.
const Op* record_named(const std::string& name);

/// RbPython.use_arguments.
int32_t use_arguments(const char* name, PyObject* args, RbArgumentsUse use, void* ctx);

/// `rabbet._C.call_record`.
void bind_calls(pybind11::module_& m);

}  // namespace rabbet::python

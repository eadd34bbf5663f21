// Values to Python and back, for kernels and layers written in Python.
#pragma once
#include "arguments.h"

namespace rabbet::python {

/// New reference to the Python form of a value, which stays with the caller; null with an exception
/// set.
PyObject* value_to_python(const RbValue* value);
/// A value whose contents live in `arena` (tensors are borrowed from `o`); throws for what no value
/// can hold.
RbValue value_from_python(PyObject* o, Arena& arena);
/// Whether two values are the same constant; used to leave out arguments that have their default.
bool same_constant(const RbValue& a, const RbValue& b);

}  // namespace rabbet::python

#pragma once

#include "errors.h"
#include "ref.h"

namespace rabbet::python {

/// The object of a dtype that core adds when a program names it, borrowed: scales of microscaling
/// formats, and dtypes without arithmetic. Throws for other names.
PyObject* named_dtype(const char* name);
/// Whether the dtype is a floating one, or one of pairs of 4-bit floats, which have no arithmetic.
bool holds_floats(int dtype);

}  // namespace rabbet::python

#pragma once

#include "errors.h"
#include "ref.h"

namespace rabbet::python {

/// The object of a dtype that core adds when a program names it, borrowed: scales of microscaling
/// formats, and dtypes without arithmetic. Throws for other names.
PyObject* named_dtype(const char* name);
/// Whether elements of the dtype are real floats: of a floating dtype, or pairs of 4-bit floats,
/// with which there is no arithmetic.
bool holds_floats(int dtype);

}  // namespace rabbet::python

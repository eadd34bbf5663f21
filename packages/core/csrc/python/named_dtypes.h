#pragma once

#include "errors.h"
#include "ref.h"

namespace rabbet::python {

/// The object of a dtype that core adds when a program names it, borrowed: scales of microscaling
/// formats, and dtypes without arithmetic. Throws for other names.
PyObject* named_dtype(const char* name);

}  // namespace rabbet::python

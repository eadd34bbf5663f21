// `out=`: the tensors that a call writes.
#pragma once
#include "arguments.h"

namespace rabbet::python {

/// Give a call that names no dtype that of the tensor `out` which it writes, where the record says
/// that the result has the dtype that is named, unless it says `out exact`. An in-place call, a
/// creation or a call along a dimension that names another one is refused. Throws.
void take_dtype(const Op& op, const RbTensor* out, RbValue* values, bool inplace);
/// Run the operator `name` into `out`: a tensor, or a tuple or list of tensors. Null and an error
/// where it fails; throws too.
PyObject* run_out(const char* name, const Overload& overload, const RbValue* values, PyObject* out);

}  // namespace rabbet::python

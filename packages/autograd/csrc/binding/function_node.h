#pragma once
#include "binding.h"

namespace binding {

void bind_function_node(py::module_& m);
/// The ctx of a recorded call of a user's Function, borrowed; null for another node.
PyObject* function_ctx(const RbNode* n);

}  // namespace binding

#pragma once
#include "binding.h"

namespace binding {

void bind_function_saved(py::module_& m);

}  // namespace binding

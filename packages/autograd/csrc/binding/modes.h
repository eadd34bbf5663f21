#pragma once
#include "binding.h"

namespace binding {

void bind_modes(py::module_& m);

}  // namespace binding

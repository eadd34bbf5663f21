// Shapes by the field `core`.
#pragma once
#include "rules/infer.h"

namespace rabbet {

/// Check the arguments against the signature of the record, and fill the shapes of the results.
/// Throws Error (RB_E_ARG) naming the size or the argument.
void core_shapes(const Op& op, const RbValue* args, int nargs, Inferred& out);

}  // namespace rabbet

// Shapes that the record says without a formula or a function.
#pragma once
#include "rules/infer.h"

namespace rabbet {

bool has_plain_shape(const Op& op);
/// Fill in the shape of the result, not its dtype; of an operator of one that has_plain_shape.
/// Throws Error.
void plain_shape(const Op& op, const RbValue* args, int nargs, Inferred& out);

}  // namespace rabbet

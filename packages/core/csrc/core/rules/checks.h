// Checks of arguments that follow from the record; they run before any kernel, on every device.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// The values of `str{...}` arguments; throws RB_E_ARG.
void check_choices(const Op& op, const RbValue* args, int nargs);

/// The `check` lines; throws what they say.
void check_arguments(const Op& op, const RbValue* args, int nargs);

/// That the operator is defined for the dtype (`dtypes`); throws RB_E_TYPE.
void check_accepted(const Op& op, int dtype);

/// That a reduction of `x` over the dimensions `gone` has a value where it has no elements
/// (`identity`); throws RB_E_INDEX.
void check_reducible(const Op& op, const RbTensor& x, const bool* gone);

}  // namespace rabbet

// Masks among arguments: where a record has `masks`, and in x[...].
#pragma once
#include "arguments.h"

namespace rabbet::python {

/// Whether a tensor of indices is a mask: bools, or with a warning uint8.
bool is_mask_tensor(const RbTensor& index);

/// The arguments that the record's `masks` names: a mask in a list of indices becomes the indices
/// of the places where it holds, one tensor for each of its dimensions, and a condition of uint8
/// becomes bools, with a warning.
void replace_masks(const Op& op, RbValue* values, Arena& arena);

}  // namespace rabbet::python

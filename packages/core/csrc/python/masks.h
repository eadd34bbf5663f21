// Masks among arguments: where a record has `masks`, and in x[...].
#pragma once
#include "arguments.h"

namespace rabbet::python {

/// Whether an index tensor is a mask: a bool tensor, or a uint8 tensor, which causes a warning.
bool is_mask_tensor(const RbTensor& index);

/// Replace masks in the arguments that the record's `masks` names. A mask in a list of indices
/// becomes the indices of its true elements, one tensor per dimension. A uint8 condition becomes a
/// bool tensor, with a warning.
void replace_masks(const Op& op, RbValue* values, Arena& arena);

}  // namespace rabbet::python

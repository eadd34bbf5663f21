// What was found out about a call's arguments, kept for the next call with such arguments.
#pragma once
#include "rules/infer.h"

namespace rabbet {

/// The facts about arguments of one description: dtypes and shapes of tensors, values of others.
struct Facts {
  bool checked = false;   // the `check` lines hold
  bool inferred = false;  // `results` is filled
  Inferred results;
};

/// The facts of the thread for such arguments of the operator, empty if there are none yet; null
/// where they are too many or of other kinds to be described. Valid until the next call of it.
Facts* recall(const Op& op, const RbValue* args, int nargs);

}  // namespace rabbet

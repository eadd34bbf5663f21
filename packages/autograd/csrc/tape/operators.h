// The operators that the tape itself calls.
#pragma once
#include "node.h"

namespace tape {

struct Operators {
  const RbOp *add, *any, *cast, *clone, *conj, *contiguous_clone, *copy, *empty_like, *expand,
      *fill, *isnan, *ones_like, *real, *sum_to, *zeros, *zeros_like;
};
const Operators& ops();

}  // namespace tape

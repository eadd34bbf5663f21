// What the wheel's transforms share: calls of operators.
#pragma once
#include <initializer_list>

#include "dims.h"

namespace calls {

using rb::dtype_value;
using rb::int_value;
using rb::none_value;
using rb::Ref;
using rb::tensor_value;

inline RbValue list(const Dims& dims) { return rb::ints_value(dims.data(), dims.size()); }

/// Call an operator of one result.
Ref call(const RbOp* op, std::initializer_list<RbValue> args);

Dims shape_of(const RbTensor* t);

}  // namespace calls

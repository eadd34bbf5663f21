#include "calls.h"

namespace calls {

Ref call(const RbOp* op, std::initializer_list<RbValue> args) {
  RbValue ret = none_value();
  rb::check(rb::host->call(op, args.begin(), static_cast<int32_t>(args.size()), &ret, 1, 0));
  return Ref(ret.v.t);
}

Dims shape_of(const RbTensor* t) { return Dims(t->shape, t->shape + t->ndim); }

}  // namespace calls

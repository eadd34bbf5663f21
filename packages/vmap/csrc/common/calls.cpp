#include "calls.h"

namespace calls {

RbValue none() {
  RbValue v{};
  v.tag = RB_NONE;
  return v;
}
RbValue value(RbTensor* t) {
  RbValue v{};
  v.tag = RB_TENSOR;
  v.v.t = t;
  return v;
}
RbValue integer(int64_t i) {
  RbValue v{};
  v.tag = RB_INT;
  v.v.i = i;
  return v;
}
RbValue list(const Dims& dims) {
  RbValue v{};
  v.tag = RB_INTS;
  v.len = static_cast<uint32_t>(dims.size());
  v.v.is = dims.data();
  return v;
}

Ref call(const RbOp* op, std::initializer_list<RbValue> args) {
  RbValue ret = none();
  rb::check(rb::host->call(op, args.begin(), static_cast<int32_t>(args.size()), &ret, 1, 0));
  return Ref(ret.v.t);
}

Dims shape_of(const RbTensor* t) { return Dims(t->shape, t->shape + t->ndim); }

}  // namespace calls

#include "core_ops.h"

#include "errors.h"

namespace rabbet::python {

CoreOps ops;

bool init_core_ops() {
  bool complete = true;
  const auto find = [&](const char* name) {
    const Op* op = find_op(name);
    if (!op && complete) {
      PyErr_Format(PyExc_ImportError,
                   "librabbet_core has no operator '%s': rabbet._C and the library are not of one "
                   "build",
                   name);
      complete = false;
    }
    return op;
  };
#define X(name) ops.name = find(#name);
  RABBET_BINDING_OPS(X)
#undef X
  ops.view_dtype = find("view.dtype");
  return complete;
}

namespace {
int spread(const Op* op, std::initializer_list<RbValue> args, RbValue* values) {
  int n = 0;
  for (const RbValue& v : args) values[n++] = v;
  fill_defaults(op, values, n);
  return op->info.nargs;
}
}  // namespace

TensorRef run_op(const Op* op, std::initializer_list<RbValue> args) {
  RbValue values[kMaxParams];
  const int n = spread(op, args, values);
  return call1(op, values, n);
}

void run_inplace(const Op* op, std::initializer_list<RbValue> args) {
  RbValue values[kMaxParams];
  const int n = spread(op, args, values);
  RbValue target = values[0];
  check(call(op, values, n, &target, 1, RB_CALL_OUT));
}

}  // namespace rabbet::python

#include "gradients.h"

#include "engine.h"

namespace tape {

int32_t sum(RbTensor* a, RbTensor* b, Ref& out) {
  static const RbOp* const add_op = host->find_op("add");
  const RbValue args[3] = {tensor_value(a), tensor_value(b), int_value(1)};
  return call1(add_op, args, 3, out);
}

int32_t fit_other(Ref& grad, const RbMeta& to, const Node* from) {
  static const RbOp *const sum_to_op = host->find_op("sum_to"),
                           *const real_op = host->find_op("real"),
                           *const cast_op = host->find_op("cast");
  RbTensor* g = grad.get();
  if (!same_shape(g, to)) {
    bool reducible = g->ndim >= to.ndim;
    for (int i = 0; reducible && i < to.ndim; ++i) {
      const int64_t want = to.shape[i], have = g->shape[g->ndim - to.ndim + i];
      reducible = want == have || want == 1;
    }
    if (!reducible) {
      return fail(RB_E_ARG, "%s: the gradient has shape %s, but the tensor has shape %s",
                  node_name(from), rb::shape_text(g).c_str(),
                  rb::shape_text(to.ndim, to.shape).c_str());
    }
    const RbValue args[2] = {tensor_value(g), ints_value(to.shape, static_cast<uint32_t>(to.ndim))};
    Ref reduced;
    if (int32_t rc = call1(sum_to_op, args, 2, reduced)) return rc;
    grad = std::move(reduced);
  }
  if (is_complex(grad.get()->dtype_id) && !is_complex(to.dtype_id)) {
    const RbValue arg = tensor_value(grad.get());
    Ref part;
    if (int32_t rc = call1(real_op, &arg, 1, part)) return rc;
    grad = std::move(part);
  }
  if (grad.get()->dtype_id != to.dtype_id) {
    const RbValue args[2] = {tensor_value(grad.get()), dtype_value(to.dtype_id)};
    Ref cast;
    if (int32_t rc = call1(cast_op, args, 2, cast)) return rc;
    grad = std::move(cast);
  }
  return RB_OK;
}

}  // namespace tape

#include "batch.h"

#include <algorithm>

namespace batch {

Ref reshape(const Ref& x, const Dims& shape) {
  return call(ops.reshape, {tensor_value(x), list(shape)});
}
Ref expand(RbTensor* x, const Dims& shape) {
  return call(ops.expand, {tensor_value(x), list(shape)});
}
Ref permute(const Ref& x, const Dims& order) {
  return call(ops.permute, {tensor_value(x), list(order)});
}
Ref move_dim(Ref x, int from, int to) {
  if (from == to) return x;
  Dims order;
  for (int d = 0; d < x->ndim; ++d) {
    if (d != from) order.push_back(d);
  }
  order.insert(order.begin() + to, from);
  return permute(x, order);
}
Ref squeeze(const Ref& x, int dim) {
  const Dims dims{dim};
  return call(ops.squeeze, {tensor_value(x), list(dims)});
}

Ref pad_rank(Ref x, int ndim) {
  if (x->ndim - 1 >= ndim) return x;
  Dims shape{x->shape[0]};
  shape.insert(shape.end(), ndim - (x->ndim - 1), 1);
  shape.insert(shape.end(), x->shape + 1, x->shape + x->ndim);
  return call(ops.view, {tensor_value(x), list(shape)});
}

bool Call::any_mine(const RbValue& v) const {
  return std::any_of(v.v.ts, v.v.ts + v.len, [&](const RbTensor* t) { return t && mine(t); });
}
bool Call::any_mine() const {
  for (int32_t i = 0; i < nargs; ++i) {
    if (mine(args[i])) return true;
  }
  return false;
}

Ref Call::front(RbTensor* t) const {
  const RbWrap& w = wrap_of(t);
  return move_dim(Ref::share(w.inner), static_cast<int>(w.bits), 0);
}

Ref Call::materialise(RbTensor* t) const {
  if (mine(t)) return front(t);
  Dims shape{size()};
  shape.insert(shape.end(), t->shape, t->shape + t->ndim);
  return expand(t, shape);
}

Ref Call::wrap(Ref&& inner, int dim) const {
  // An operator that one example has too few dimensions for can have worked on the batch dimension.
  if (dim >= inner->ndim || inner->shape[dim] != size()) refuse();
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_wrap_along(frame.level, inner.take(), dim, &out));
  return Ref(out);
}

Owned Call::call_example(int64_t index) const {
  std::vector<RbValue> values(args, args + nargs);
  std::vector<Ref> hold;
  std::vector<std::unique_ptr<RbTensor*[]>> lists;
  auto slice = [&](RbTensor* t) {
    if (!t || !mine(t)) return t;
    const RbWrap& w = wrap_of(t);
    hold.push_back(call(ops.select, {tensor_value(w.inner), int_value(w.bits), int_value(index)}));
    return hold.back().get();
  };
  for (RbValue& v : values) {
    if (v.tag == RB_TENSOR) {
      v.v.t = slice(v.v.t);
    } else if (v.tag == RB_TENSORS) {
      lists.push_back(std::make_unique<RbTensor*[]>(v.len));
      for (uint32_t j = 0; j < v.len; ++j) lists.back()[j] = slice(v.v.ts[j]);
      v.v.ts = lists.back().get();
    }
  }
  Owned results(nrets);
  rb::check(rb::host->call(c->op, values.data(), nargs, results.values.data(), nrets, 0));
  return results;
}

void Call::check_destination(int i, const RbTensor* result) const {
  const RbTensor* target = rets[i].v.t;
  if (shape_of(target) == shape_of(result)) return;
  rb::fail(RB_E_ARG, "%s: the destination has shape %s, but the result has shape %s", info.name,
           rb::shape_text(target).c_str(), rb::shape_text(result).c_str());
}

void Call::explain(int32_t code) const {
  if (size() == 0) return;
  if (code != RB_E_ARG && code != RB_E_TYPE && code != RB_E_DTYPE && code != RB_E_INDEX) return;
  for (int32_t i = 0; i < nargs; ++i) {
    if (rb::arg_info(info, i).flags & RB_ARG_MUTATED) return;
  }
  const std::string message = rb::host->err_get()->message;
  const Owned results = call_example(0);
  for (int32_t i = 0; is_out() && i < nrets; ++i) check_destination(i, results.values[i].v.t);
  rb::host->err_set(code, message.c_str());
}

void Call::refuse() const {
  check_example();
  rb::fail(RB_E_NOTIMPL, "%s: vmap: there is no batching rule for these arguments", info.name);
}

}  // namespace batch

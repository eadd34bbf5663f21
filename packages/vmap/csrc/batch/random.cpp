// Random operators: one draw for all examples, or one for each.
#include <algorithm>

#include "batch.h"

namespace batch {

namespace {

// A tensor of the shape and dtype of an example, to be filled.
Ref blank(const RbTensor* like) {
  const Dims shape = shape_of(like);
  return call(ops.empty, {list(shape), dtype_value(like->dtype_id), rb::device_value(like)});
}

std::vector<RbValue> plain_call(const Call& c, const std::vector<RbValue>& values, uint32_t flags) {
  std::vector<RbValue> results(c.rets, c.rets + c.nrets);
  if (!(flags & RB_CALL_OUT)) results.assign(c.nrets, none_value());
  rb::check(rb::host->call(c.c->op, values.data(), static_cast<int32_t>(values.size()),
                           results.data(), c.nrets, flags));
  return results;
}

// One draw. Where the distribution's parameters are batched, the same uniform numbers go through
// each of them.
Ref draw_once(const Call& c) {
  RbTensor* like = c.args[0].v.t;
  const Ref shape = blank(like);
  if (c.nargs > 1 && c.args[1].tag == RB_TENSOR && c.mine(c.args[1])) {  // bernoulli.tensor
    const RbOpInfo& uniform_info = *rb::host->op_info(ops.uniform);
    const Ref uniform = call(ops.uniform, {tensor_value(blank(c.args[1].v.t)),
                                           rb::arg_info(uniform_info, 1).default_value,
                                           rb::arg_info(uniform_info, 2).default_value, c.args[2]});
    const Ref hit = call(ops.lt, {tensor_value(uniform), c.args[1]});
    return call(ops.cast, {tensor_value(hit), dtype_value(like->dtype_id)});
  }
  std::vector<RbValue> values(c.args, c.args + c.nargs);
  values[0] = tensor_value(shape);
  return Ref(plain_call(c, values, 0)[0].v.t);
}

void same(Call& c) {
  const bool to_batch = c.is_out() && c.mine(c.rets[0].v.t);
  if (!c.any_mine() && !to_batch) {
    const std::vector<RbValue> results =
        plain_call(c, {c.args, c.args + c.nargs}, c.is_out() ? RB_CALL_OUT : 0);
    if (!c.is_out()) std::copy(results.begin(), results.end(), c.rets);
    return;
  }
  Ref drawn = draw_once(c);
  if (!c.is_out()) return c.give(0, std::move(drawn));
  const RbValue copy[2] = {c.rets[0], tensor_value(drawn)};
  RbValue ret = c.rets[0];
  rb::check(rb::host->call(ops.copy, copy, 2, &ret, 1, RB_CALL_OUT));
}

void draw_each(Call& c) {  // without a tensor: the shape is an argument
  std::vector<Ref> hold;
  std::vector<RbTensor*> parts;
  for (int64_t b = 0; b < c.size(); ++b) {
    hold.push_back(Ref(plain_call(c, {c.args, c.args + c.nargs}, 0)[0].v.t));
    parts.push_back(hold.back().get());
  }
  c.give(0, call(ops.stack, {rb::tensors_value(parts.data(), parts.size()), int_value(0)}), 0);
}

void different(Call& c) {
  std::vector<RbValue> values(c.args, c.args + c.nargs);
  std::vector<Ref> hold;
  for (RbValue& v : values) {
    if (v.tag != RB_TENSOR) continue;
    hold.push_back(c.materialise(v.v.t));
    v = tensor_value(hold.back());
  }
  if (hold.empty()) return draw_each(c);
  if (!c.is_out()) return c.give(0, Ref(plain_call(c, values, 0)[0].v.t), 0);
  if (!c.mine(c.rets[0].v.t)) {
    rb::fail(
        RB_E_STATE,
        "%s: vmap: one tensor cannot hold a draw for each of %lld examples: the tensor that is "
        "filled is not batched; use randomness='same', or a function that makes its result",
        c.info.name, static_cast<long long>(c.size()));
  }
  const Ref target = c.front(c.rets[0].v.t);
  if (c.args[0].tag == RB_TENSOR && c.args[0].v.t == c.rets[0].v.t)
    values[0] = tensor_value(target);
  RbValue ret = tensor_value(target);
  rb::check(rb::host->call(c.c->op, values.data(), c.nargs, &ret, 1, RB_CALL_OUT));
}

}  // namespace

void random_steps(Call& c) {
  if (c.frame.randomness == RB_RANDOM_SAME) {
    const std::vector<RbValue> results =
        plain_call(c, {c.args, c.args + c.nargs}, c.is_out() ? RB_CALL_OUT : 0);
    if (!c.is_out()) std::copy(results.begin(), results.end(), c.rets);
    return;
  }
  std::vector<RbValue> values(c.args, c.args + c.nargs);
  std::vector<Ref> hold;
  for (RbValue& v : values) {
    if (v.tag != RB_TENSOR) continue;
    hold.push_back(c.wrap(c.materialise(v.v.t), 0));
    v = tensor_value(hold.back());
  }
  rb::check(rb::host->decompose(c.c, values.data(), c.nargs, c.rets, c.nrets));
}

void random(Call& c) {
  if (c.frame.randomness == RB_RANDOM_ERROR) {
    rb::fail(RB_E_STATE,
             "%s: vmap: called random operation while in randomness error mode. Please either use "
             "the 'same' or 'different' randomness flags on vmap or perform the randomness "
             "operation out of vmap",
             c.info.name);
  }
  (c.frame.randomness == RB_RANDOM_SAME ? same : different)(c);
}

}  // namespace batch

// How tangents pass through an operator. The records say it: a `jvp` formula, linear or bilinear
// arguments, the derivative of an elementwise operator, and for all others the transposed vjp.
#include <algorithm>

#include "engine.h"
#include "forward.h"
#include "operators.h"

namespace tape {

namespace {

int32_t apply1(const RbOp* op, RbTensor* t, Ref& out) {
  const RbValue arg = tensor_value(t);
  return call1(op, &arg, 1, out);
}
int32_t conj_of(RbTensor* t, Ref& out) {
  if (!is_complex(t->dtype_id)) {
    out = Ref::share(t);
    return RB_OK;
  }
  return apply1(ops().conj, t, out);
}
int32_t zeros_as(RbTensor* t, Ref& out) {
  const RbValue args[3] = {tensor_value(t), RbValue{}, RbValue{}};
  return call1(ops().zeros_like, args, 3, out);
}

bool same_shape(const RbTensor* a, const RbTensor* b) {
  return a->ndim == b->ndim && std::equal(a->shape, a->shape + a->ndim, b->shape);
}

// Cast and expand to what `like` is.
int32_t fit(Ref& t, const RbTensor* like) {
  if (is_complex(t.get()->dtype_id) && !is_complex(like->dtype_id)) {
    Ref part;
    if (int32_t rc = apply1(ops().real, t.get(), part)) return rc;
    t = std::move(part);
  }
  if (t.get()->dtype_id != like->dtype_id) {
    const RbValue args[2] = {tensor_value(t.get()), dtype_value(like->dtype_id)};
    Ref cast;
    if (int32_t rc = call1(ops().cast, args, 2, cast)) return rc;
    t = std::move(cast);
  }
  if (!same_shape(t.get(), like)) {
    const RbValue args[2] = {tensor_value(t.get()),
                             ints_value(like->shape, static_cast<uint32_t>(like->ndim))};
    Ref wide;
    if (int32_t rc = call1(ops().expand, args, 2, wide)) return rc;
    t = std::move(wide);
  }
  return RB_OK;
}

int32_t accumulate(Ref& sum, Ref term) {
  if (!sum) {
    sum = std::move(term);
    return RB_OK;
  }
  const RbValue args[3] = {tensor_value(sum.get()), tensor_value(term.get()), int_value(1)};
  Ref total;
  if (int32_t rc = call1(ops().add, args, 3, total)) return rc;
  sum = std::move(total);
  return RB_OK;
}

bool all_flagged(const DualCall& c, uint32_t flag) {
  for (uint64_t rest = c.moving; rest; rest &= rest - 1) {
    if (!(RB_ARG(c.info, __builtin_ctzll(rest))->flags & flag)) return false;
  }
  return true;
}
// Movement keeps values as they are: it is linear in what it moves.
bool moves_first(const DualCall& c) {
  return c.info->kind == RB_KIND_MOVEMENT && (c.info->flags & RB_OP_VIEW) && c.moving == 1;
}
bool all_linear_move(const DualCall& c) {
  for (int32_t i = 0; i < c.info->nargs; ++i) {
    if ((RB_ARG(c.info, i)->flags & RB_ARG_LINEAR) && c.args[i].tag != RB_NONE &&
        !(c.moving >> i & 1))
      return false;
  }
  return true;
}

// The results as the derivatives of the wanted arguments read them: values, or shape and dtype.
struct Results {
  Results(const DualCall& c, uint64_t wanted) {
    uint64_t read = 0;
    for (; wanted; wanted &= wanted - 1)
      read |= RB_ARG(c.info, __builtin_ctzll(wanted))->saves_rets;
    for (int32_t i = 0; i < c.nrets; ++i) {
      values[i] = c.rets[i];
      if (read >> i & 1) continue;
      const RbTensor* t = c.rets[i].v.t;
      metas[i] = rb::meta_of(t);
      values[i] = RbValue{};
      values[i].tag = RB_META;
      values[i].v.meta = &metas[i];
    }
  }
  RbValue values[kMaxRets];
  RbMeta metas[kMaxRets];
};

enum class Rule { kFormula, kLinear, kBilinear, kPointwise, kTransposed, kNone };

Rule rule_of(const DualCall& c) {
  if (c.info->flags & RB_OP_HAS_JVP) return Rule::kFormula;
  const bool pointwise = c.info->kind == RB_KIND_ELEMENTWISE && all_flagged(c, RB_ARG_HAS_VJP);
  if (moves_first(c)) return Rule::kLinear;
  if (all_flagged(c, RB_ARG_LINEAR) && (!pointwise || all_linear_move(c))) return Rule::kLinear;
  if (all_flagged(c, RB_ARG_BILINEAR)) return Rule::kBilinear;
  if (pointwise) return Rule::kPointwise;
  if (c.info->flags & RB_OP_HAS_DECOMP) return Rule::kNone;
  return c.info->flags & RB_OP_HAS_VJP ? Rule::kTransposed : Rule::kNone;
}

// The operator itself, of the tangents; where an argument has none, of zeros.
int32_t linear(const DualCall& c, RbTensor** out) {
  RbValue args[kMaxArgs];
  std::copy(c.args, c.args + c.nargs, args);
  std::vector<Ref> made;
  std::vector<std::vector<RbTensor*>> lists;
  for (int32_t i = 0; i < c.nargs; ++i) {
    const bool moves = c.moving >> i & 1;
    if (!moves && !(RB_ARG(c.info, i)->flags & RB_ARG_LINEAR)) continue;
    if (args[i].tag == RB_TENSOR) {
      if (!moves) {
        made.emplace_back();
        if (int32_t rc = zeros_as(args[i].v.t, made.back())) return rc;
      }
      args[i] = moves ? c.tangents[i] : tensor_value(made.back().get());
    } else if (args[i].tag == RB_TENSORS) {
      lists.emplace_back(args[i].len, nullptr);
      for (uint32_t j = 0; j < args[i].len; ++j) {
        RbTensor* t = moves ? c.tangents[i].v.ts[j] : nullptr;
        if (!t && c.args[i].v.ts[j]) {
          made.emplace_back();
          if (int32_t rc = zeros_as(c.args[i].v.ts[j], made.back())) return rc;
          t = made.back().get();
        }
        lists.back()[j] = t;
      }
      args[i].v.ts = lists.back().data();
    } else if (args[i].tag != RB_NONE) {
      args[i] = int_value(0);
    }
  }
  Ref result;
  if (int32_t rc = call1(c.call->op, args, c.nargs, result)) return rc;
  out[0] = result.take();
  return RB_OK;
}

// A sum: each term has one argument replaced by its tangent.
int32_t bilinear(const DualCall& c, RbTensor** out) {
  Ref sum;
  for (uint64_t rest = c.moving; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    RbValue args[kMaxArgs];
    std::copy(c.args, c.args + c.nargs, args);
    args[i] = c.tangents[i];
    Ref term;
    if (int32_t rc = call1(c.call->op, args, c.nargs, term)) return rc;
    if (int32_t rc = accumulate(sum, std::move(term))) return rc;
  }
  out[0] = sum.take();
  return RB_OK;
}

// The derivative of an elementwise operator is a factor for each element: for the gradient V(g) of
// an argument, conj(V(conj(t))) is its part of the tangent.
int32_t pointwise(const DualCall& c, RbTensor** out) {
  Ref sum;
  for (uint64_t rest = c.moving; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    Ref t;
    if (int32_t rc = conj_of(c.tangents[i].v.t, t)) return rc;
    const RbValue grad = tensor_value(t.get());
    const Results outs(c, 1ull << i);
    RbValue given[kMaxArgs];
    if (int32_t rc =
            host->vjp(c.call->op, 1ull << i, c.args, c.nargs, outs.values, c.nrets, &grad, given))
      return rc;
    if (given[i].tag != RB_TENSOR) continue;
    const Ref part(given[i].v.t);
    Ref term;
    if (int32_t rc = conj_of(part.get(), term)) return rc;
    if (int32_t rc = accumulate(sum, std::move(term))) return rc;
  }
  out[0] = sum.take();
  return RB_OK;
}

int32_t formula(const DualCall& c, RbTensor** out) {
  RbValue given[kMaxRets];
  if (int32_t rc = host->jvp(c.call->op, c.args, c.nargs, c.rets, c.nrets, c.tangents, given))
    return rc;
  for (int32_t i = 0; i < c.nrets; ++i) out[i] = given[i].tag == RB_TENSOR ? given[i].v.t : nullptr;
  return RB_OK;
}

uint64_t latest(const RbValue& v) {
  uint64_t seq = 0;
  auto look = [&](const RbTensor* t) {
    const Meta* m = t ? meta_of(t) : nullptr;
    if (m && m->fn) seq = std::max(seq, m->fn->seq);
  };
  if (v.tag == RB_TENSOR) look(v.v.t);
  for (uint32_t j = 0; v.tag == RB_TENSORS && j < v.len; ++j) look(v.v.ts[j]);
  return seq;
}

// A gradient to differentiate with respect to: zeros, recorded at all levels, newer than `seq`.
int32_t probe(const RbTensor* like, uint64_t seq, Ref& out) {
  const RbValue args[3] = {ints_value(like->shape, static_cast<uint32_t>(like->ndim)),
                           dtype_value(like->dtype_id), rb::device_value(like)};
  if (int32_t rc = call1(ops().zeros, args, 3, out)) return rc;
  Meta* m = new_meta(out.get());
  m->requires_grad = true;
  m->depth = INT16_MAX;
  host->slot_set(out.get(), slot, m, 1);
  const Target target = gradient_target(out.get());
  if (!target.fn) return fail(RB_E_OOM, "out of memory while recording");
  target.fn->seq = seq + 1;
  target.fn->nest = UINT16_MAX;
  node_release(target.fn);
  return RB_OK;
}

// v -> vjp(v) is linear; its transpose, applied to the tangents, is the jvp.
int32_t transposed(const DualCall& c, RbTensor** out) {
  uint64_t seq = 0;
  for (int32_t i = 0; i < c.nargs; ++i) seq = std::max(seq, latest(c.args[i]));
  for (int32_t i = 0; i < c.nrets; ++i) seq = std::max(seq, latest(c.rets[i]));
  const ThreadGuard guard;
  host->layer_mode(layer, -1, 0);
  RbValue grads[kMaxRets], given[kMaxArgs];
  const Results outs(c, c.moving);
  std::vector<Ref> probes;
  std::vector<int32_t> which;
  for (int32_t i = 0; i < c.nrets; ++i) {
    grads[i] = RbValue{};
    grads[i].tag = RB_ZERO;
    if (!differentiable(c.rets[i].v.t->dtype_id)) continue;
    probes.emplace_back();
    if (int32_t rc = probe(c.rets[i].v.t, seq, probes.back())) return rc;
    which.push_back(i);
    grads[i] = tensor_value(probes.back().get());
  }
  if (int32_t rc =
          host->vjp(c.call->op, c.moving, c.args, c.nargs, outs.values, c.nrets, grads, given))
    return rc;
  std::vector<Ref> ys, ts;
  int32_t status = RB_OK;
  auto add = [&](RbTensor* y, RbTensor* t) {
    if (status != RB_OK || !y || !t || !is_recorded(meta_of(y))) return;
    Ref seed = Ref::share(t);
    status = fit(seed, y);
    ys.push_back(Ref::share(y));
    ts.push_back(std::move(seed));
  };
  for (uint64_t rest = c.moving; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    RbValue& v = given[i];
    if (v.tag == RB_TENSOR) add(v.v.t, c.tangents[i].v.t);
    for (uint32_t j = 0; v.tag == RB_TENSORS && j < v.len; ++j)
      add(v.v.ts[j], c.tangents[i].v.ts[j]);
    if (v.tag == RB_TENSOR || v.tag == RB_TENSORS) host->value_release(&v);
  }
  if (status != RB_OK || ys.empty()) return status;
  std::vector<RbTensor*> outputs, seeds, inputs, results(probes.size(), nullptr);
  for (const Ref& y : ys) outputs.push_back(y.get());
  for (const Ref& t : ts) seeds.push_back(t.get());
  for (const Ref& v : probes) inputs.push_back(v.get());
  const uint32_t create = guard.saved().exclude >> layer & 1 ? 0 : RB_BACKWARD_CREATE;
  status = run_backward(outputs.data(), seeds.data(), static_cast<int32_t>(outputs.size()),
                        inputs.data(), static_cast<int32_t>(inputs.size()),
                        create | RB_BACKWARD_ALLOW_UNUSED, results.data());
  for (size_t k = 0; status == RB_OK && k < which.size(); ++k) out[which[k]] = results[k];
  return status;
}

// A tangent must be a tensor of its own, dense where its primal is: both are written and viewed
// alike.
int32_t own_memory(const DualCall& c, const RbTensor* primal, Ref& t) {
  bool shares = false;
  auto compare = [&](const RbValue& v) {
    if (v.tag == RB_TENSOR) shares |= host->same_storage(v.v.t, t.get()) != 0;
    for (uint32_t j = 0; v.tag == RB_TENSORS && j < v.len; ++j)
      shares |= v.v.ts[j] && host->same_storage(v.v.ts[j], t.get());
  };
  for (int32_t i = 0; i < c.nargs; ++i) {
    compare(c.args[i]);
    compare(c.tangents[i]);
  }
  for (int i = 0; i < t.get()->ndim; ++i)
    shares |= t.get()->strides[i] == 0 && t.get()->shape[i] > 1;
  const bool sparse = (primal->flags & RB_T_CONTIGUOUS) && !(t.get()->flags & RB_T_CONTIGUOUS);
  if (!shares && !sparse) return RB_OK;
  Ref copy;
  if (int32_t rc = apply1(ops().contiguous_clone, t.get(), copy)) return rc;
  t = std::move(copy);
  return RB_OK;
}

}  // namespace

bool has_rule(const DualCall& c) { return rule_of(c) != Rule::kNone; }

int32_t tangents_of(const DualCall& c, RbTensor** out) {
  for (int32_t i = 0; i < c.nrets; ++i) out[i] = nullptr;
  int32_t status = RB_E_NOTIMPL;
  switch (rule_of(c)) {
    case Rule::kFormula:
      status = formula(c, out);
      break;
    case Rule::kLinear:
      status = linear(c, out);
      break;
    case Rule::kBilinear:
      status = bilinear(c, out);
      break;
    case Rule::kPointwise:
      status = pointwise(c, out);
      break;
    case Rule::kTransposed:
      status = transposed(c, out);
      break;
    case Rule::kNone:
      return fail(RB_E_NOTIMPL,
                  "%s has no derivative, but an argument has a tangent: add `jvp FORMULA` or `vjp "
                  "ARGUMENT FORMULA` to its record, or detach() the argument",
                  c.info->name);
  }
  const bool view = (c.info->flags & RB_OP_VIEW) != 0;
  for (int32_t i = 0; i < c.nrets; ++i) {
    if (!out[i]) continue;
    Ref t(out[i]);
    out[i] = nullptr;
    if (status != RB_OK || !differentiable(c.rets[i].v.t->dtype_id)) continue;
    if (!view) {
      status = fit(t, c.rets[i].v.t);
      if (status == RB_OK) status = own_memory(c, c.rets[i].v.t, t);
    }
    if (status == RB_OK) out[i] = t.take();
  }
  if (status != RB_OK) {
    for (int32_t i = 0; i < c.nrets; ++i) {
      if (out[i]) host->release(out[i]);
      out[i] = nullptr;
    }
  }
  return status;
}

}  // namespace tape

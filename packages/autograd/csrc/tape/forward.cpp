#include "forward.h"

#include <algorithm>

#include "grad_level.h"
#include "operators.h"

namespace tape {

namespace {

// RbWrap.bits of a dual whose tangent is not that of the tensor it is a view of (detach).
constexpr int64_t kCut = 1;

int32_t dual_layer = 0;

// Levels of this thread. The serial, known once the first dual was made, tells their tensors from
// those of an earlier level of the same number.
struct Level {
  int32_t number;
  uint64_t serial;
};
struct Levels {
  std::vector<Level> list;
};
thread_local Levels* levels_ __attribute__((tls_model("initial-exec"))) = nullptr;
std::vector<Level>& levels() {
  if (!levels_) levels_ = new Levels;  // kept for the thread's life: a few bytes
  return levels_->list;
}
Level* find_level(int32_t number) {
  for (Level& l : levels()) {
    if (l.number == number) return &l;
  }
  return nullptr;
}
int32_t no_level(const char* what, int32_t level) {
  return fail(RB_E_STATE, "%s: the thread is in no dual level %d: enter dual_level() first", what,
              level);
}

bool is_dual(const RbTensor* t, int32_t level) {
  return t->level == level && (t->flags & RB_T_WRAPPER);
}
RbWrap* dual_of(const RbTensor* t) {
  return const_cast<RbWrap*>(static_cast<const RbWrap*>(t->ext));
}

RbTensor* base_of(const RbTensor* t, bool* cut) {
  RbTensor* base = nullptr;
  *cut = (dual_of(t)->bits & kCut) != 0;
  for (RbTensor* up = host->view_parent(t); up && !*cut; up = host->view_parent(up)) {
    if (!is_dual(up, t->level)) break;
    base = up;
    *cut = (dual_of(up)->bits & kCut) != 0;
  }
  return base;
}

// The tangent of a dual, or null. A view made before its base got a tangent finds it here.
int32_t tangent_of(const RbTensor* t, RbTensor** out) {
  RbWrap* d = dual_of(t);
  *out = d->second;
  if (d->second || !(t->flags & RB_T_VIEW)) return RB_OK;
  bool cut = false;
  RbTensor* base = base_of(t, &cut);
  if (cut || !base || !dual_of(base)->second) return RB_OK;
  Ref whole = Ref::share(dual_of(base)->second), part;
  if (int32_t rc = rb::replay_view(t, whole, part)) return rc;
  host->release(dual_of(base)->second);
  dual_of(base)->second = whole.take();
  *out = d->second = part.take();
  return RB_OK;
}

int32_t wrap_dual(int32_t level, RbTensor* primal, RbTensor* tangent, int64_t bits,
                  RbTensor** out) {
  return host->tensor_wrap(level, primal, tangent, bits, primal->ndim, primal->shape,
                           primal->strides, out);
}

// The arguments of a call taken apart.
class Opened {
 public:
  int32_t open(const RbCall* call, const RbValue* args, int32_t nargs) {
    if (nargs > kMaxArgs) return fail(RB_E_ARG, "more than %d arguments", kMaxArgs);
    for (int32_t i = 0; i < nargs; ++i) {
      inner[i] = args[i];
      tangents[i] = RbValue{};
      tangents[i].tag = RB_ZERO;
      if (args[i].tag == RB_TENSOR && is_dual(args[i].v.t, call->level)) {
        RbTensor* t = nullptr;
        if (int32_t rc = tangent_of(args[i].v.t, &t)) return rc;
        inner[i].v.t = dual_of(args[i].v.t)->inner;
        if (!t) continue;
        tangents[i] = tensor_value(t);
        moving |= 1ull << i;
      } else if (args[i].tag == RB_TENSORS) {
        if (int32_t rc = open_list(call, args[i], i)) return rc;
      }
    }
    return RB_OK;
  }

  RbValue inner[kMaxArgs], tangents[kMaxArgs];
  uint64_t moving = 0;

 private:
  int32_t open_list(const RbCall* call, const RbValue& list, int32_t i) {
    std::vector<RbTensor*> values(list.v.ts, list.v.ts + list.len);
    std::vector<RbTensor*> ts(list.len, nullptr);
    bool some = false;
    for (uint32_t j = 0; j < list.len; ++j) {
      if (!values[j] || !is_dual(values[j], call->level)) continue;
      if (int32_t rc = tangent_of(values[j], &ts[j])) return rc;
      values[j] = dual_of(values[j])->inner;
      some |= ts[j] != nullptr;
    }
    lists_.push_back(std::move(values));
    inner[i].v.ts = lists_.back().data();
    if (!some) return RB_OK;
    lists_.push_back(std::move(ts));
    tangents[i].tag = RB_TENSORS;
    tangents[i].len = list.len;
    tangents[i].v.ts = lists_.back().data();
    moving |= 1ull << i;
    return RB_OK;
  }
  std::vector<std::vector<RbTensor*>> lists_;
};

// Results become duals where they can have a tangent.
int32_t wrap_results(const RbCall* call, RbValue* rets, int32_t nrets, RbTensor** tangents,
                     int64_t bits) {
  int32_t status = RB_OK;
  auto wrap = [&](RbTensor*& t, RbTensor* tangent) {
    const Ref hold(tangent);
    if (status != RB_OK || !t || !differentiable(t->dtype_id) || t->level >= call->level) return;
    RbTensor* made = nullptr;
    status = wrap_dual(call->level, t, tangent, bits, &made);
    if (status != RB_OK) return;
    host->release(t);
    t = made;
  };
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag == RB_TENSOR) wrap(rets[i].v.t, tangents ? tangents[i] : nullptr);
    for (uint32_t j = 0; rets[i].tag == RB_TENSORS && j < rets[i].len; ++j)
      wrap(const_cast<RbTensor**>(rets[i].v.ts)[j], nullptr);
  }
  if (status != RB_OK) {
    for (int32_t i = 0; i < nrets; ++i) host->value_release(&rets[i]);
  }
  return status;
}

bool writes_arguments(const RbOpInfo* info) {
  for (int32_t i = 0; i < info->nargs; ++i) {
    if (RB_ARG(info, i)->flags & RB_ARG_MUTATED) return true;
  }
  return false;
}

// A call that makes new results.
int32_t run_functional(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                       const Opened& o, RbValue* rets, int32_t nrets) {
  const bool detached = (info->flags & RB_OP_DETACHED) != 0;
  DualCall c{call, info, o.inner, nargs, o.tangents, o.moving, rets, nrets};
  const bool decomposes =
      !detached && (info->flags & RB_OP_HAS_DECOMP) && (!o.moving || !has_rule(c));
  if (decomposes && (o.moving || !(info->flags & RB_OP_HAS_VJP)))
    return host->decompose(call, args, nargs, rets, nrets);
  if (int32_t rc = host->call(call->op, o.inner, nargs, rets, nrets, 0)) return rc;
  if (detached || !o.moving) {
    const bool cut = detached && (info->flags & RB_OP_VIEW);
    return wrap_results(call, rets, nrets, nullptr, cut ? kCut : 0);
  }
  bool any = false;
  for (int32_t i = 0; i < nrets; ++i)
    any |= rets[i].tag == RB_TENSOR && differentiable(rets[i].v.t->dtype_id);
  if (!any) return RB_OK;
  RbTensor* tangents[kMaxRets];
  if (int32_t rc = tangents_of(c, tangents)) {
    for (int32_t i = 0; i < nrets; ++i) host->value_release(&rets[i]);
    return rc;
  }
  return wrap_results(call, rets, nrets, tangents, 0);
}

int32_t write(const RbOp* op, RbTensor* to, const RbValue& value) {
  const RbValue args[2] = {tensor_value(to), value};
  RbValue out = tensor_value(to);
  return host->call(op, args, 2, &out, 1, RB_CALL_OUT);
}

// Give a dual that was written a new tangent (null: zero), which its views and its base see too.
int32_t set_tangent(RbTensor* t, RbTensor* tangent) {
  RbTensor* now = nullptr;
  if (int32_t rc = tangent_of(t, &now)) return rc;
  if (!tangent) return now ? write(ops().fill, now, int_value(0)) : RB_OK;
  if (now) return write(ops().copy, now, tensor_value(tangent));
  if (t->flags & RB_T_VIEW) {
    bool cut = false;
    RbTensor* base = base_of(t, &cut);
    if (base && cut) {
      return fail(RB_E_STATE,
                  "a value with a tangent cannot be written to a view of a detached tensor");
    }
    if (base) {
      RbWrap* d = dual_of(base);
      const RbValue args[3] = {tensor_value(d->inner), RbValue{}, RbValue{}};
      Ref zeros;
      if (int32_t rc = call1(ops().zeros_like, args, 3, zeros)) return rc;
      d->second = zeros.take();
      if (int32_t rc = tangent_of(t, &now)) return rc;
      return write(ops().copy, now, tensor_value(tangent));
    }
  }
  host->retain(tangent);
  dual_of(t)->second = tangent;
  return RB_OK;
}

bool recorded(const RbTensor* t) { return t && (t->keys[0] & layer_key); }

// Where something is recorded, put copies of the duals that share the target's memory in their
// place.
int32_t keep_values(int32_t level, const RbTensor* target, RbValue* args, int32_t nargs,
                    std::vector<Ref>& copies) {
  bool some = false;
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR) continue;
    const RbTensor* t = args[i].v.t;
    some |= is_dual(t, level) ? recorded(dual_of(t)->inner) || recorded(dual_of(t)->second)
                              : recorded(t);
  }
  for (int32_t i = 0; some && i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR || !is_dual(args[i].v.t, level) ||
        !host->same_storage(args[i].v.t, target))
      continue;
    copies.emplace_back();
    if (int32_t rc = call1(ops().contiguous_clone, &args[i], 1, copies.back())) return rc;
    args[i] = tensor_value(copies.back().get());
  }
  return RB_OK;
}

// A call that writes to its first argument.
int32_t run_in_place(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                     const Opened& o, RbValue* rets, int32_t nrets) {
  RbTensor* target = rets[0].v.t;
  const bool in_place =
      nrets == 1 && nargs > 0 && args[0].tag == RB_TENSOR && args[0].v.t == target;
  if (!in_place) {
    return fail(RB_E_STATE, "%s: out= does not support forward mode, but an argument is a dual",
                info->name);
  }
  if (!is_dual(target, call->level)) {
    RbValue out = tensor_value(target);
    if (!o.moving) return host->call(call->op, o.inner, nargs, &out, 1, RB_CALL_OUT);
    return fail(RB_E_STATE,
                "%s_: a tensor from outside forward mode cannot take values that have a tangent; "
                "write to a copy made by an operator of a dual, such as zeros_like(dual)",
                info->name);
  }
  Ref tangent;
  if (o.moving && !(info->flags & RB_OP_DETACHED)) {
    RbCall plain = *call;
    plain.flags &= ~uint32_t{RB_CALL_OUT};
    // What the tape saves of the target must not be overwritten.
    RbValue given[kMaxArgs];
    std::copy(args, args + nargs, given);
    std::vector<Ref> copies;
    if (int32_t rc = keep_values(call->level, target, given, nargs, copies)) return rc;
    Opened kept;
    if (int32_t rc = kept.open(call, given, nargs)) return rc;
    RbValue fresh{};
    if (int32_t rc = run_functional(&plain, info, given, nargs, kept, &fresh, 1)) return rc;
    const Ref hold(fresh.v.t);
    RbTensor* t = nullptr;
    if (is_dual(fresh.v.t, call->level)) {
      if (int32_t rc = tangent_of(fresh.v.t, &t)) return rc;
    }
    tangent = Ref::share(t);
  }
  RbValue out = tensor_value(dual_of(target)->inner);
  if (int32_t rc = host->call(call->op, o.inner, nargs, &out, 1, RB_CALL_OUT)) return rc;
  return set_tangent(target, tangent.get());
}

int32_t handle_dual(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const RbOpInfo* info = host->op_info(call->op);
  if (nrets > kMaxRets) return fail(RB_E_ARG, "%s: more than %d results", info->name, kMaxRets);
  Opened o;
  if (int32_t rc = o.open(call, args, nargs)) return rc;
  if (o.moving && writes_arguments(info)) {
    return fail(RB_E_STATE, "%s: writes its arguments, which forward mode does not follow",
                info->name);
  }
  if (call->flags & RB_CALL_OUT) return run_in_place(call, info, args, nargs, o, rets, nrets);
  return run_functional(call, info, args, nargs, o, rets, nrets);
}

}  // namespace

int32_t add_dual_layer(RbTxn* txn) {
  static const char* const none[] = {nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = "jvp";
  desc.phase = 450;
  desc.on_missing = RB_L_FALLBACK;
  desc.before = none;
  desc.after = none;
  desc.fallback = handle_dual;
  return host->add_layer(txn, &desc, &dual_layer);
}

int32_t dual_enter(int32_t* level) {
  if (int32_t rc = host->transform_push(dual_layer, nullptr, RB_X_READABLE, level)) return rc;
  levels().push_back({*level, 0});
  return RB_OK;
}

int32_t dual_exit(int32_t level) {
  std::vector<Level>& list = levels();
  if (list.empty() || list.back().number != level) return no_level("exit_dual_level", level);
  if (int32_t rc = host->transform_pop(level)) return rc;
  list.pop_back();
  return RB_OK;
}

int32_t dual_make(int32_t level, RbTensor* primal, RbTensor* tangent, int32_t linked,
                  RbTensor** out) {
  Level* at = find_level(level);
  if (!at) return no_level("make_dual", level);
  if (!differentiable(primal->dtype_id)) {
    return fail(RB_E_TYPE,
                "make_dual: only tensors of floating or complex dtype can have a tangent");
  }
  if (tangent && (tangent->dtype_id != primal->dtype_id || tangent->backend != primal->backend ||
                  tangent->device.id != primal->device.id)) {
    return fail(RB_E_TYPE, "make_dual: the tangent needs the dtype and device of its primal");
  }
  if (tangent && (tangent->ndim != primal->ndim ||
                  !std::equal(primal->shape, primal->shape + primal->ndim, tangent->shape))) {
    return fail(RB_E_ARG,
                "make_dual: Trying to set a forward gradient that has a different size than that "
                "of the original Tensor, this is not supported. Tensor is of size %s while the "
                "given forward gradient is of size %s.",
                rb::shape_text(primal).c_str(), rb::shape_text(tangent).c_str());
  }
  if (is_dual(primal, level)) {
    return fail(RB_E_STATE, "make_dual: the tensor is a dual of level %d already; unpack it first",
                level);
  }
  Ref own = Ref::share(tangent);
  bool overlaps = false;
  for (int i = 0; tangent && i < tangent->ndim; ++i)
    overlaps |= tangent->strides[i] == 0 && tangent->shape[i] > 1;
  if (overlaps ||
      (tangent && (primal->flags & RB_T_CONTIGUOUS) && !(tangent->flags & RB_T_CONTIGUOUS))) {
    const RbValue arg = tensor_value(tangent);
    if (int32_t rc = call1(ops().contiguous_clone, &arg, 1, own)) return rc;
  }
  Ref made;
  if (int32_t rc = wrap_dual(level, primal, own.get(), 0, made.out())) return rc;
  at->serial = dual_of(made.get())->serial;
  if (linked) {
    int32_t status = RB_OK;
    const Meta* m = current_meta(primal, &status);
    if (status != RB_OK) return status;
    if (is_recorded(m)) {
      const int16_t depth = std::max(m->depth, static_cast<int16_t>(level));
      if (int32_t rc = link_identity(made.get(), primal, depth, no_nest)) return rc;
    }
  }
  *out = made.take();
  return RB_OK;
}

int32_t dual_unpack(int32_t level, RbTensor* t, RbTensor** primal, RbTensor** tangent) {
  const Level* at = find_level(level);
  if (!at) return no_level("unpack_dual", level);
  *tangent = nullptr;
  if (!is_dual(t, level)) {
    host->retain(t);
    *primal = t;
    return RB_OK;
  }
  const RbWrap* d = dual_of(t);
  if (d->serial != at->serial)
    return fail(RB_E_STATE, "unpack_dual: the tensor is a dual of a level that was left");
  RbTensor* found = nullptr;
  if (int32_t rc = tangent_of(t, &found)) return rc;
  host->retain(d->inner);
  *primal = d->inner;
  if (found) host->retain(found);
  *tangent = found;
  return RB_OK;
}

int32_t is_dual_level(int32_t level) { return find_level(level) != nullptr; }

bool duals_above(const RbTensor* t, int32_t level) {
  while (t->level > level) {
    const RbWrap* w = wrap_of(t);
    const Level* at = find_level(t->level);
    if (!w || !at || at->serial != w->serial) return false;
    t = w->inner;
  }
  return true;
}

}  // namespace tape

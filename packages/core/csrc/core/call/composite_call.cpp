#include "call/composite_call.h"

#include <algorithm>
#include <string>

#include "call/check_results.h"
#include "call/composite.h"
#include "call/composite_views.h"
#include "call/destinations.h"
#include "call/dry_run.h"
#include "call/kernel_arguments.h"
#include "call/run_backend.h"
#include "layer/layers.h"
#include "layer/transforms.h"
#include "rules/checks.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

template <class Visit>
void each_composite(const RbValue* args, int32_t nargs, int bit, const Visit& visit) {
  const auto one = [&](RbTensor* t) {
    if (t && t->flags & RB_T_COMPOSITE && body_of(t).layer == bit) visit(t);
  };
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) one(args[i].v.t);
    for (uint32_t j = 0; args[i].tag == RB_TENSORS && j < args[i].len; ++j) one(args[i].v.ts[j]);
  }
}

class CompositeCall {
 public:
  CompositeCall(const CallPlan& c, const LayerEntry& layer, const RbValue* args, int32_t nargs,
                RbValue* rets, int32_t nrets)
      : c_(c),
        op_(*impl(c.op)),
        layer_(layer),
        args_(args),
        nargs_(nargs),
        rets_(rets),
        nrets_(nrets),
        shown_(kMaxRets) {
    for (int32_t i = 0; i < nrets; ++i) {
      targets_[i] = writes() ? rets[i].v.t : nullptr;
      if (!writes()) rets[i] = value_none();
    }
  }

  bool writes() const { return (c_.flags & RB_CALL_OUT) != 0; }
  /// Core makes such a view of others: its own arguments cannot be kept for a view record.
  bool is_decomposed() const {
    return (op_.info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW)) != 0 && op_.has_decomp() &&
           is_composite(args_[0]) && !can_be_recorded(args_, nargs_);
  }

  void check_before() {
    each_composite(args_, nargs_, layer_.bit, [&](RbTensor* t) {
      check_current(t, op_.name.c_str());
      check_parts(t);
    });
    each_written([&](RbTensor* t, const char* what) {
      if (is_mine(t)) check_protection(op_, t, what);
    });
    if (!layer_.has_composites || is_decomposed()) return;
    if (writes() && op_.is_view())
      fail(RB_E_ARG, "%s: a view has no in-place or out= form", op_.name.c_str());
    // In the order in which plain tensors are checked, so that the first error is the same.
    const uint64_t backends = c_.keys[0] & kBackendMask;
    const bool has_kernel = backends && op_.table[__builtin_ctzll(backends)].fn;
    if (op_.has_decomp() && !has_kernel) validate(op_, args_, nargs_);
    if (op_.has_checks()) check_arguments(op_, args_, nargs_);
    foretell();
    for (int32_t i = 0; writes() && says_ && i < nrets_; ++i) {
      const RbTensor* t = targets_[i];
      if (is_mine(t))
        check_destination(op_, t, inferred_.rets[i], t->backend, t->device.id, args_, nargs_);
    }
    int n = 0;
    each_written([&](RbTensor* t, const char*) { versions_[n++] = version_of(t); });
  }

  void check_after() {
    if (writes()) return check_written();
    for (int32_t i = 0; i < nrets_; ++i) check_there(i);
    if (layer_.has_composites) {
      compare();
      replace_arguments();
    }
    finish_views(layer_, op_, args_, nargs_, rets_, nrets_, [&] { return whose(); });
  }

  // The handler failed: the error says why, at least who failed.
  void name_failure(int32_t rc) const {
    if (thread_state().error.code != RB_OK) return;
    set_error(rc, op_.name + ": " + whose() + " failed with code " + std::to_string(rc) +
                      " and left no message");
  }

  void drop_results() {
    for (int32_t i = 0; !writes() && i < nrets_; ++i) value_release(&rets_[i]);
  }

 private:
  bool is_mine(const RbTensor* t) const {
    return t && t->flags & RB_T_COMPOSITE && body_of(t).layer == layer_.bit;
  }
  bool is_composite(const RbValue& v) const { return v.tag == RB_TENSOR && is_mine(v.v.t); }

  std::string whose() const {
    const Handler& exact = op_.table[layer_.bit];
    return (exact.fn ? "the kernel of the layer '" : "the fallback of the layer '") + layer_.name +
           "' [" + (exact.fn && exact.provider ? exact.provider : layer_.provider) + "]";
  }

  // Destinations, and arguments that the record says are written.
  template <class Visit>
  void each_written(const Visit& visit) const {
    for (int32_t i = 0; writes() && i < nrets_; ++i) visit(targets_[i], "the destination");
    for (int32_t i = 0; op_.mutates && i < nargs_; ++i) {
      if (op_.params[i].flags & RB_ARG_MUTATED && args_[i].tag == RB_TENSOR)
        visit(args_[i].v.t, op_.params[i].name);
    }
  }

  // What the layers of differentiation know of a part takes no part in the call.
  void check_parts(const RbTensor* t) const {
    const uint64_t watching = differentiation_above(layer_.bit) & ~thread_state().exclude;
    const Body& body = body_of(t);
    for (uint32_t i = 0; i < body.nparts; ++i) {
      const RbTensor* part = body.parts()[i];
      if (part && keys_of(part) & watching) fail_part_requires_grad(op_.name.c_str(), layer_, i);
    }
  }

  // What the record says of the results; throws where the arguments do not fit it.
  void foretell() {
    if (op_.is_view_primitive() && is_composite(args_[0])) {
      const RbTensor* t = args_[0].v.t;
      const TensorRef twin(tensor_shown(t->dtype_id, t->ndim, t->shape, t->strides));
      RbValue given[RB_MAX_ARGS];
      std::copy(args_, args_ + nargs_, given);
      given[0] = value_tensor(twin.get());
      shown_.values[0] = value_tensor(make_view(op_, given, nargs_));
    } else if (op_.is_view()) {
      dry_run(op_, args_, nargs_, shown_.values, nrets_);
    } else if (says_results(op_)) {
      infer(op_, args_, nargs_, inferred_);
      says_ = true;
    }
  }

  void check_written() {
    bool replaced = false;
    for (int32_t i = 0; i < nrets_; ++i) {
      if (rets_[i].tag == RB_TENSOR && rets_[i].v.t == targets_[i]) continue;
      value_release(&rets_[i]);
      rets_[i] = value_tensor(targets_[i]);
      replaced = true;
    }
    if (replaced) {
      fail(RB_E_PLUGIN,
           "%s: %s put another tensor in the place of the destination; write to the destination "
           "(RB_CALL_OUT)",
           op_.name.c_str(), whose().c_str());
    }
    if (!layer_.has_composites) return;
    int n = 0;
    each_written([&](RbTensor* t, const char*) {
      if (version_of(t) == versions_[n++]) bump_version(t);
    });
  }

  // A result that is one of the arguments, which would get the history of the result.
  void replace_arguments() {
    if (op_.info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW)) return;
    for (int32_t i = 0; i < nrets_; ++i) {
      if (rets_[i].tag != RB_TENSOR || !is_argument(rets_[i].v.t)) continue;
      RbTensor* alias = tensor_alias(rets_[i].v.t);
      release(rets_[i].v.t);
      rets_[i].v.t = alias;
    }
  }
  bool is_argument(const RbTensor* t) const {
    return std::any_of(args_, args_ + nargs_,
                       [&](const RbValue& v) { return v.tag == RB_TENSOR && v.v.t == t; });
  }

  void check_there(int32_t i) const {
    const RbValue& r = rets_[i];
    if (op_.returns_list ? r.tag == RB_TENSORS && (!r.len || r.v.ts) : r.tag == RB_TENSOR && r.v.t)
      return;
    const bool nothing = r.tag == RB_NONE || (r.tag == RB_TENSOR && !r.v.t);
    if (nothing) rets_[i] = value_none();
    fail(RB_E_PLUGIN, "%s: %s returned %s where a %s is due (%s)", op_.name.c_str(),
         whose().c_str(), nothing ? "nothing" : "another kind of value",
         op_.returns_list ? "list of tensors" : "tensor", op_.ret_names[i].c_str());
  }

  void compare() const {
    const auto named = [&] { return whose(); };
    const RbTensor* first =
        op_.first_tensor >= 0 && args_[op_.first_tensor].tag == RB_TENSOR && !takes_device(op_)
            ? args_[op_.first_tensor].v.t
            : nullptr;
    for (int32_t i = 0; i < nrets_; ++i) {
      if (op_.returns_list) {
        compare_lists(rets_[i], shown_.values[i], i);
        continue;
      }
      const RbTensor& got = *rets_[i].v.t;
      if (first) check_result_device(op_, named, i, got, *first);
      if (says_) check_result(op_, named, i, got, inferred_.rets[i]);
      const RbValue& view = shown_.values[i];
      if (view.tag == RB_TENSOR) check_result(op_, named, i, got, spec_of(view.v.t));
    }
  }
  void compare_lists(const RbValue& got, const RbValue& due, int32_t i) const {
    if (due.tag != RB_TENSORS) return;
    if (got.len != due.len) {
      fail(RB_E_PLUGIN, "%s: %s returned %u tensors, by the record there are %u", op_.name.c_str(),
           whose().c_str(), got.len, due.len);
    }
    for (uint32_t k = 0; k < got.len; ++k) {
      if (!got.v.ts[k] || !due.v.ts[k])
        fail(RB_E_PLUGIN, "%s: %s returned no tensor %u", op_.name.c_str(), whose().c_str(), k);
      check_result(op_, [&] { return whose(); }, i, *got.v.ts[k], spec_of(due.v.ts[k]));
    }
  }

  const CallPlan& c_;
  const Op& op_;
  const LayerEntry& layer_;
  const RbValue* args_;
  int32_t nargs_;
  RbValue* rets_;
  int32_t nrets_;
  RbTensor* targets_[kMaxRets];
  uint32_t versions_[kMaxRets + RB_MAX_ARGS];
  bool says_ = false;
  Inferred inferred_;
  Results shown_;  // of a view: tensors without memory that show the same
};

}  // namespace

int32_t run_composite_handler(const CallPlan& c, int bit, RbFn fn, void* self, const RbValue* args,
                              int32_t nargs, RbValue* rets, int32_t nrets) {
  const LayerEntry& layer = layer_entry(bit);
  bool concerned = false;
  each_composite(args, nargs, bit, [&](RbTensor*) { concerned = true; });
  if (!concerned || nrets > kMaxRets || nargs > RB_MAX_ARGS)
    return fn(self, &c, args, nargs, rets, nrets);
  CompositeCall call(c, layer, args, nargs, rets, nrets);
  int32_t rc = guarded([&] { call.check_before(); });
  if (rc != RB_OK) return rc;
  if (call.is_decomposed()) return guarded([&] { decompose(&c, args, nargs, rets, nrets); });
  thread_state().error.code = RB_OK;  // an earlier error is not this call's
  if (layer.has_composites && impl(c.op)->table[bit].fn) {
    const WithoutDifferentiation below(bit);
    rc = fn(self, &c, args, nargs, rets, nrets);
  } else {
    rc = fn(self, &c, args, nargs, rets, nrets);
  }
  if (rc != RB_OK) {
    call.name_failure(rc);
    return rc;
  }
  rc = guarded([&] { call.check_after(); });
  if (rc != RB_OK) call.drop_results();
  return rc;
}

}  // namespace rabbet

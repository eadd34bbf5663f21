// The layer: a call that writes becomes one that makes a new value; what it should have written
// gets that value.
#include <algorithm>

#include "functionalize.h"
#include "level.h"

namespace functional {

Operators ops;

namespace {

using Hold = std::vector<Ref>;

class Call {
 public:
  const RbCall* c;
  const RbOpInfo& info;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
  int32_t nrets;
  Frame& f;

  bool is_out() const { return (c->flags & RB_CALL_OUT) != 0; }
};

// The call's arguments, each tensor changed by `change`.
class Changed {
 public:
  template <class F>
  Changed(const Call& c, const F& change) : v(c.args, c.args + c.nargs) {
    for (RbValue& arg : v) {
      if (arg.tag == RB_TENSOR) arg.v.t = seen(arg.v.t, change);
      if (arg.tag != RB_TENSORS) continue;
      lists_.push_back(std::make_unique<RbTensor*[]>(arg.len + 1));
      for (uint32_t j = 0; j < arg.len; ++j)
        lists_.back()[j] = arg.v.ts[j] ? seen(arg.v.ts[j], change) : nullptr;
      arg.v.ts = lists_.back().get();
    }
  }
  std::vector<RbValue> v;
  std::vector<RbTensor*> given, made;  // the tensors before and after

 private:
  template <class F>
  RbTensor* seen(RbTensor* t, const F& change) {
    given.push_back(t);
    made.push_back(change(t));
    return made.back();
  }
  std::vector<std::unique_ptr<RbTensor*[]>> lists_;
};

Changed values(const Call& c) {
  return Changed(c, [&](RbTensor* t) {
    if (c.f.mine(t)) return current(c.f, t);
    return outdated(c.f, t) ? current(c.f, adopt(c.f, t)) : t;
  });
}

RbTensor* inside(Frame& f, RbTensor* t) { return f.mine(t) ? t : adopt(f, t); }

struct Results {
  explicit Results(int32_t n) : v(n, none_value()) {}
  ~Results() {
    for (RbValue& r : v) rb::host->value_release(&r);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  // Each tensor is replaced by what `change` returns.
  template <class F>
  void each(const F& change) {
    for (RbValue& r : v) {
      if (r.tag == RB_TENSOR) r.v.t = change(r.v.t);
      for (uint32_t j = 0; r.tag == RB_TENSORS && j < r.len; ++j) {
        RbTensor*& t = const_cast<RbTensor**>(r.v.ts)[j];
        if (t) t = change(t);
      }
    }
  }
  void give(RbValue* rets) {
    std::copy(v.begin(), v.end(), rets);
    v.assign(v.size(), none_value());
  }
  std::vector<RbValue> v;
};

[[noreturn]] void refuse_writer(const Call& c) {
  rb::fail(RB_E_NOTIMPL,
           "%s: functionalize: the operator writes to its arguments, and there is no form of it "
           "that makes new tensors",
           c.info.name);
}

bool writes_arguments(const RbOpInfo& info) {
  for (int32_t i = 0; i < info.nargs; ++i) {
    if (rb::arg_info(info, i).flags & RB_ARG_MUTATED) return true;
  }
  return false;
}

// ---- destinations

// Whether the tensor can be written and the result's shape and dtype fit it is for core to say: of
// the same call on tensors without data.
void check_like_core(const Call& c, const RbTensor* target) {
  std::vector<Ref> hold;
  const Changed shapes(c, [&](RbTensor* t) {
    hold.push_back(geometry(t));
    return hold.back().get();
  });
  Ref to = geometry(target);
  for (int32_t i = 0; i < c.nargs; ++i) {  // core resizes what is no argument
    if (c.args[i].tag == RB_TENSOR && c.args[i].v.t == target) to = Ref::share(shapes.v[i].v.t);
  }
  RbValue ret = tensor_value(to);
  rb::check(below_all(kMeta, [&] {
    return rb::host->call(c.c->op, shapes.v.data(), c.nargs, &ret, 1, RB_CALL_OUT);
  }));
}

bool same_shape(const RbTensor* a, const RbTensor* b) {
  return a->ndim == b->ndim && std::equal(a->shape, a->shape + a->ndim, b->shape);
}

bool repeats(const RbTensor* t) {
  if (t->numel == 0) return false;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->strides[d] == 0 && t->shape[d] > 1) return true;
  }
  return false;
}

Ref fitting(const Call& c, const RbTensor* target, Ref made) {
  const bool same = same_shape(target, made.get());
  if (same && target->dtype_id == made->dtype_id && !repeats(target)) return made;
  if (c.nrets == 1) check_like_core(c, target);
  if (!same || repeats(target)) {
    rb::fail(RB_E_ARG,
             "%s: functionalize: the destination does not have the shape of the result, and a "
             "tensor cannot be resized",
             c.info.name);
  }
  return call(ops.cast, {tensor_value(made), dtype_value(target->dtype_id)});
}

void check_destination(const Call& c, const RbTensor* t) {
  if (t->level <= c.f.level) return;
  rb::fail(RB_E_STATE,
           "%s: functionalize: the destination belongs to an inner transform, but no argument does",
           c.info.name);
}

// ---- the ways to a result

bool shared(const Changed& args, const RbTensor* t) {
  return std::any_of(args.made.begin(), args.made.end(),
                     [&](const RbTensor* a) { return a != t && rb::host->same_storage(a, t); });
}
// The argument that `t` is, as it was given.
RbTensor* same_as(const Changed& args, const RbTensor* t) {
  const auto at = std::find(args.made.begin(), args.made.end(), t);
  return at == args.made.end() ? nullptr : args.given[at - args.made.begin()];
}

void view_call(Call& c) {
  RbTensor* t = inside(c.f, c.args[0].v.t);
  c.rets[0] = tensor_value(view(c.f, t, c.c->op, c.args, c.nargs).take());
}

// In steps, which are calls of this level: they tell what is an alias of what.
void in_steps(Call& c) {
  const Changed args(c, [&](RbTensor* t) { return inside(c.f, t); });
  if (c.is_out()) {
    std::vector<RbValue> targets(c.rets, c.rets + c.nrets);
    for (RbValue& t : targets) t.v.t = inside(c.f, t.v.t);
    return rb::check(rb::host->decompose(c.c, args.v.data(), c.nargs, targets.data(), c.nrets));
  }
  Results results(c.nrets);
  rb::check(rb::host->decompose(c.c, args.v.data(), c.nargs, results.v.data(), c.nrets));
  results.each([&](RbTensor* t) {
    if (c.f.mine(t)) return t;
    const Ref plain(t);
    if (RbTensor* there = known(c.f, t)) return Ref::share(there).take();
    return fresh(c.f, Ref::share(t)).take();
  });
  results.give(c.rets);
}

// The call on tensors without data. False: it needs the data.
class WithoutData {
 public:
  explicit WithoutData(const Call& c)
      : args(c,
             [&](RbTensor* t) {
               hold_.push_back(geometry(t));
               return hold_.back().get();
             }),
        results(c.nrets) {
    ran = below_all(kMeta, [&] {
            return rb::host->call(c.c->op, args.v.data(), c.nargs, results.v.data(), c.nrets, 0);
          }) == RB_OK;
    if (!ran) rb::host->err_clear();
  }

 private:
  Hold hold_;

 public:
  Changed args;
  Results results;
  bool ran;
};

// Whether a composite operator returns an argument or a view of one.
bool returns_alias(const Call& c) {
  WithoutData run(c);
  bool alias = false;
  if (!run.ran) return alias;
  run.results.each([&](RbTensor* t) {
    alias = alias || same_as(run.args, t) || shared(run.args, t);
    return t;
  });
  return alias;
}

// The strides that results have in plain execution, where values do not lie in memory as the
// arguments are shown; empty where they do, or where only the data tell.
std::vector<Dims> plain_strides(const Call& c, const Changed& args) {
  bool differ = false;
  for (size_t i = 0; i < args.given.size(); ++i) {
    const RbTensor *shown = args.given[i], *real = args.made[i];
    differ = differ || !std::equal(shown->strides, shown->strides + shown->ndim, real->strides);
  }
  std::vector<Dims> all;
  if (!differ) return all;
  WithoutData run(c);
  if (!run.ran) return all;
  run.results.each([&](RbTensor* t) {
    all.emplace_back(t->strides, t->strides + t->ndim);
    return t;
  });
  return all;
}

void new_results(Call& c) {
  Results results(c.nrets);
  {
    const Changed args = values(c);
    rb::check(rb::host->call(c.c->op, args.v.data(), c.nargs, results.v.data(), c.nrets, 0));
    bool alias = false;
    results.each([&](RbTensor* t) {
      alias = alias || shared(args, t);
      return t;
    });
    if (!alias || !(c.info.flags & RB_OP_HAS_DECOMP)) {
      const std::vector<Dims> strides = plain_strides(c, args);
      size_t at = 0;
      results.each([&](RbTensor* t) {
        Ref made(t);
        const size_t i = at++;
        if (RbTensor* given = same_as(args, t)) return Ref::share(inside(c.f, given)).take();
        if (shared(args, t)) made = call(ops.clone, {tensor_value(made)});
        return fresh(c.f, std::move(made), i < strides.size() ? &strides[i] : nullptr).take();
      });
      return results.give(c.rets);
    }
  }
  in_steps(c);
}

void written_results(Call& c) {
  for (int32_t i = 0; i < c.nrets; ++i) check_destination(c, c.rets[i].v.t);
  Results results(c.nrets);
  const Changed args = values(c);
  rb::check(rb::host->call(c.c->op, args.v.data(), c.nargs, results.v.data(), c.nrets, 0));
  Hold made;
  for (int32_t i = 0; i < c.nrets; ++i) {
    Ref result = Ref::share(results.v[i].v.t);
    if (same_as(args, result.get()) || shared(args, result.get()))
      result = call(ops.clone, {tensor_value(result)});
    made.push_back(fitting(c, c.rets[i].v.t, std::move(result)));
  }
  for (int32_t i = 0; i < c.nrets; ++i) write(c.f, inside(c.f, c.rets[i].v.t), std::move(made[i]));
}

void run(Call& c) {
  const bool steps = (c.info.flags & RB_OP_HAS_DECOMP) != 0;
  if (writes_arguments(c.info)) return steps ? in_steps(c) : refuse_writer(c);
  const bool views = (c.info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW)) != 0;
  if (views && !steps && !c.is_out()) return view_call(c);
  if (steps && (views || (c.f.copies && c.info.kind == RB_KIND_COMPOSITE && returns_alias(c))))
    return in_steps(c);
  (c.is_out() ? written_results : new_results)(c);
}

int32_t handle(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
               int32_t nrets) {
  if (!(call->flags & RB_CALL_OUT)) std::fill(rets, rets + nrets, none_value());
  return rb::guarded([&] {
    Call c{call,  *rb::host->op_info(call->op),     args, nargs, rets,
           nrets, *static_cast<Frame*>(call->frame)};
    run(c);
  });
}

int32_t refresh(void* frame, RbTensor* wrapper) {
  return rb::guarded([&] { current(*static_cast<Frame*>(frame), wrapper); });
}

}  // namespace

int32_t add(const RbHost* h, RbTxn* txn) {
  ops = Operators{h->find_op("reshape"),
                  h->find_op("index"),
                  h->find_op("index_put"),
                  h->find_op("arange"),
                  h->find_op("full"),
                  h->find_op("add"),
                  h->find_op("mul"),
                  h->find_op("as_strided"),
                  h->find_op("strided_view"),
                  h->find_op("as_strided_copy"),
                  h->find_op("contiguous_clone"),
                  h->find_op("cast"),
                  h->find_op("permute"),
                  h->find_op("view")};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, refresh);
  desc.name = "functionalize";
  desc.phase = 450;
  desc.on_missing = RB_L_FALLBACK;
  desc.fallback = handle;
  desc.refresh = refresh;
  return add_level(h, txn, desc);
}

}  // namespace functional

// Rules that follow from an operator's record: its kind, the types of its arguments, its signature.
#include <algorithm>

#include "batch.h"

namespace batch {

namespace {

/// A call's arguments as they are changed for the inner call, and what keeps them alive. A few of
/// each kind need no memory of their own.
class Values {
 public:
  explicit Values(const Call& c) : n(c.nargs) {
    if (n > kMaxArgs) rb::fail(RB_E_ARG, "%s: too many arguments", c.info.name);
    std::copy(c.args, c.args + n, v);
  }
  RbTensor* keep(Ref t) {
    if (tensors_ < kFew) {
      few_tensors_[tensors_] = std::move(t);
      return few_tensors_[tensors_++].get();
    }
    more_tensors_.push_back(std::move(t));
    return more_tensors_.back().get();
  }
  void set(int i, Ref t) { v[i] = tensor_value(keep(std::move(t))); }
  void set(int i, const Dims& dims) {
    Dims* place = lists_ < kFew ? &few_lists_[lists_++] : nullptr;
    if (!place) {
      more_lists_.push_back(std::make_unique<Dims>());
      place = more_lists_.back().get();
    }
    *place = dims;
    v[i] = list(*place);
  }
  /// The tensors of argument i, each changed by `f`.
  template <class F>
  void set_each(int i, const F& f) {
    arrays_.push_back(std::make_unique<RbTensor*[]>(v[i].len + 1));
    for (uint32_t j = 0; j < v[i].len; ++j)
      arrays_.back()[j] = v[i].v.ts[j] ? keep(f(v[i].v.ts[j])) : nullptr;
    v[i].v.ts = arrays_.back().get();
  }

  RbValue v[kMaxArgs];
  int n;

 private:
  static constexpr int kFew = 3;
  int tensors_ = 0, lists_ = 0;
  Ref few_tensors_[kFew];
  Dims few_lists_[kFew];
  std::vector<Ref> more_tensors_;
  std::vector<std::unique_ptr<Dims>> more_lists_;
  std::vector<std::unique_ptr<RbTensor*[]>> arrays_;
};

/// Results of an inner call; released unless taken.
class Results {
 public:
  Results(const Call& c, const Values& a) : n(c.nrets) {
    std::fill(v, v + n, none_value());
    rb::check(rb::host->call(c.c->op, a.v, a.n, v, n, 0));
  }
  ~Results() {
    for (int i = 0; i < n; ++i) rb::host->value_release(&v[i]);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  Ref take(int i) {
    Ref t(v[i].v.t);
    v[i] = none_value();
    return t;
  }

  /// All of them, with the examples in front.
  void give_all(Call& c) {
    for (int i = 0; i < n; ++i) c.give(i, take(i), 0);
  }

  RbValue v[kMaxArgs];
  int n;
};

bool is_dim(int type) { return type == RB_A_DIM || type == RB_A_DIMS || type == RB_A_NEWDIM; }

// ---- promotion: an example of a batch of numbers takes part in it as a 0-d tensor

int category(int dtype) {
  return dtype == RB_BOOL8 ? 0 : dtype < RB_F16 ? 1 : dtype < RB_C64 ? 2 : 3;
}

bool takes_part(const Call& c, int i) {
  return c.args[i].tag == RB_TENSOR && (c.info.args[i].flags & RB_ARG_COMPUTED) != 0;
}

// The dtype that a 0-d tensor of `dtype` is used in beside the arguments with dimensions.
int used_dtype(const Call& c, int dtype) {
  int best = -1;
  for (int i = 0; i < c.nargs; ++i) {
    if (!takes_part(c, i) || c.args[i].v.t->ndim == 0) continue;
    const int other = c.args[i].v.t->dtype_id;
    if (best < 0 || category(other) > category(best)) best = other;
  }
  if (best < 0) return dtype;
  if (category(best) >= category(dtype)) return best;
  if (category(best) == 2) return best == RB_F64 ? +RB_C128 : +RB_C64;
  return dtype;
}

Ref cast(const Ref& t, int dtype) { return call(ops.cast, {tensor_value(t), dtype_value(dtype)}); }

bool other_dtypes(const Call& c, int dtype) {
  for (int i = 0; i < c.nargs; ++i) {
    if (takes_part(c, i) && c.args[i].v.t->dtype_id != dtype) return true;
  }
  return false;
}

// ---- what broadcasts: dimensions before those of the signature

// `x`, with the examples in front, as of `ndim` dimensions after them.
Ref pad_rank(Ref x, int ndim) {
  if (x->ndim - 1 >= ndim) return x;
  Dims shape{x->shape[0]};
  shape.insert(shape.end(), ndim - (x->ndim - 1), 1);
  shape.insert(shape.end(), x->shape + 1, x->shape + x->ndim);
  return call(ops.view, {tensor_value(x), list(shape)});
}

// What the arguments of an aligned call have in common.
struct Loops {
  int ndim = 0;          // dimensions that broadcast
  bool numbers = false;  // some batched argument is 0-d
};

Loops loops_of(const Call& c) {
  Loops loops;
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag != RB_TENSOR) continue;
    const RbTensor* t = c.args[i].v.t;
    const RbArgInfo& arg = c.info.args[i];
    if (t->ndim < arg.core_ndim && !(arg.flags & RB_ARG_OPTIONAL)) c.refuse();
    loops.ndim = std::max(loops.ndim, t->ndim - arg.core_ndim);
    loops.numbers = loops.numbers || (t->ndim == 0 && c.mine(t));
  }
  return loops;
}

// Whether a batched argument goes into the inner call as it lies: examples in front, full rank.
bool lies_ready(const RbTensor* t, int ndim) {
  return Call::wrap_of(t).bits == 0 && t->ndim >= ndim;
}

// The usual call, whose arguments all go in as they are or as they lie: nothing is made for it.
bool align_ready(Call& c, const Loops& loops) {
  if (c.is_out() || c.nrets != 1 || c.nargs > kMaxArgs) return false;
  RbValue values[kMaxArgs];
  for (int i = 0; i < c.nargs; ++i) {
    values[i] = c.args[i];
    if (c.args[i].tag != RB_TENSOR) continue;
    const RbTensor* t = c.args[i].v.t;
    if (c.mine(t)) {
      if (!lies_ready(t, loops.ndim + c.info.args[i].core_ndim)) return false;
      values[i].v.t = Call::wrap_of(t).inner;
    } else if (t->ndim == 0 && loops.numbers) {
      return false;
    }
  }
  RbValue result = none_value();
  rb::check(rb::host->call(c.c->op, values, c.nargs, &result, 1, 0));
  c.give(0, Ref(result.v.t), 0);
  return true;
}

void align(Call& c, bool repeat) {
  const Loops shared = loops_of(c);
  if (!repeat && align_ready(c, shared)) return;
  const int loops = shared.ndim;
  const bool numbers = shared.numbers;
  Values a(c);
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag != RB_TENSOR) continue;
    RbTensor* t = c.args[i].v.t;
    const int ndim = loops + c.info.args[i].core_ndim;
    if (!c.mine(t) && !repeat) {
      // Beside examples that are 0-d it must not count for less than they do.
      if (numbers && loops == 0 && t->ndim == 0 && takes_part(c, i) &&
          other_dtypes(c, t->dtype_id)) {
        const Dims one{1};
        a.set(i, call(ops.view, {tensor_value(t), list(one)}));
      }
      continue;
    }
    if (c.mine(t) && lies_ready(t, ndim)) {
      a.v[i].v.t = Call::wrap_of(t).inner;
      continue;
    }
    Ref x = pad_rank(c.materialise(t), ndim);
    if (t->ndim == 0 && loops > 0 && takes_part(c, i)) {
      const int dtype = used_dtype(c, t->dtype_id);
      if (dtype != t->dtype_id) x = cast(x, dtype);
    }
    a.set(i, std::move(x));
  }
  if (!c.is_out()) return Results(c, a).give_all(c);
  RbTensor* target = c.rets[0].v.t;
  const Ref inner = c.front(target);
  RbValue ret = tensor_value(inner);
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_TENSOR && c.args[i].v.t == target && a.v[i].v.t->ndim == inner->ndim)
      a.v[i].v.t = inner.get();
  }
  rb::check(rb::host->call(c.c->op, a.v, a.n, &ret, 1, RB_CALL_OUT));
}

// ---- what works along dimensions: they move by one

Dims all_dims(int ndim) {
  Dims dims;
  for (int d = 0; d < ndim; ++d) dims.push_back(d + 1);
  return dims;
}

void shift_dims(Values& a, int i, int type) {
  if (type != RB_A_DIMS) {
    if (a.v[i].tag == RB_INT) a.v[i].v.i += 1;
  } else if (a.v[i].tag == RB_INTS) {
    Dims dims(a.v[i].v.is, a.v[i].v.is + a.v[i].len);
    for (int64_t& d : dims) ++d;
    a.set(i, dims);
  }
}

void prepend_size(const Call& c, Values& a, int i) {
  if (a.v[i].tag != RB_INTS) return;
  Dims size{c.size()};
  size.insert(size.end(), a.v[i].v.is, a.v[i].v.is + a.v[i].len);
  a.set(i, size);
}

int first_tensor(const Call& c) {
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_TENSOR) return i;
  }
  return -1;
}

// Batch the arguments in `which` (a bit each). A 0-d example gets a dimension that `dim` can name.
void shift(Call& c, uint64_t which, int follow) {
  bool along = false;
  for (int i = 0; i < c.nargs; ++i) {
    const int type = c.info.args[i].type;
    along = along || (is_dim(type) && (c.args[i].tag == RB_INT || c.args[i].len > 0));
  }
  Values a(c);
  bool lifted = false;
  for (int i = 0; i < c.nargs; ++i) {
    const int type = c.info.args[i].type;
    if (is_dim(type)) shift_dims(a, i, type);
    if (type == RB_A_SIZE) prepend_size(c, a, i);
    if (!(which >> i & 1)) continue;
    if (c.args[i].tag == RB_TENSORS) a.set_each(i, [&](RbTensor* t) { return c.materialise(t); });
    if (c.args[i].tag != RB_TENSOR) continue;
    Ref x = c.materialise(c.args[i].v.t);
    const bool lift = along && x->ndim == 1;
    if (lift) x = pad_rank(std::move(x), 1);
    if (i == follow) lifted = lift;
    a.set(i, std::move(x));
  }
  Results results(c, a);
  for (int i = 0; i < results.n; ++i) {
    Ref r = results.take(i);
    c.give(i, lifted && r->ndim == 2 ? squeeze(r, 1) : std::move(r), 0);
  }
}

// ---- views: one tensor

// `expand` names every dimension of the result; those of the input are its last ones.
void expand_sizes(const Call& c, Values& a, int i, Ref& x) {
  const RbValue& sizes = c.args[i];
  const int lead = static_cast<int>(sizes.len) - (x->ndim - 1);
  for (int d = 0; d < lead; ++d) {
    if (sizes.v.is[d] < 0)
      rb::fail(RB_E_ARG, "%s: size -1 is not allowed for the new leading dimension %d", c.info.name,
               d);
  }
  if (lead > 0) x = pad_rank(std::move(x), static_cast<int>(sizes.len));
  prepend_size(c, a, i);
}

// Sizes with at most one -1, which stands for what is left of an example.
void view_sizes(const Call& c, Values& a, int i) {
  Dims size{c.size()};
  int64_t known = 1;
  int unknown = -1;
  for (uint32_t k = 0; k < c.args[i].len; ++k) {
    const int64_t s = c.args[i].v.is[k];
    if (s == -1 && unknown < 0) {
      unknown = static_cast<int>(k) + 1;
    } else {
      known *= s;
    }
    size.push_back(s);
  }
  const int64_t numel = c.args[0].v.t->numel;
  if (unknown > 0 && known > 0 && numel % known == 0) {
    size[unknown] = numel / known;
  } else if (unknown > 0) {
    rb::fail(RB_E_ARG, "%s: the sizes do not fit an input of %lld elements", c.info.name,
             static_cast<long long>(numel));
  }
  a.set(i, size);
}

void view_of_number(Call& c) {  // a dimension is named, and there is none: the operator may refuse
  c.check_example();
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_alias(c.args[0].v.t, &out));
  c.give(0, Ref(out));
}

// ---- example by example

bool warned(const RbOp* op) {
  static std::vector<const RbOp*> known;
  static std::atomic_flag busy = ATOMIC_FLAG_INIT;
  while (busy.test_and_set(std::memory_order_acquire)) {
  }
  const bool found = std::find(known.begin(), known.end(), op) != known.end();
  if (!found) known.push_back(op);
  busy.clear(std::memory_order_release);
  return found;
}

void announce_loop(const Call& c) {
  if (c.frame.strict) {
    rb::fail(RB_E_NOTIMPL,
             "%s: vmap: there is no batching rule, and strict=True allows no loop over the "
             "examples; give the operator's record a `decomp` or `batch` line, or register a "
             "kernel for the layer 'vmap'",
             c.info.name);
  }
  if (!warn || warned(c.c->op)) return;
  const std::string message =
      std::string("vmap: '") + c.info.name +
      "' has no batching rule and runs once per example, which is slow; strict=True makes this an "
      "error";
  rb::check(warn(message.c_str()));
}

// The results j of all examples, stacked.
Ref stacked(const std::vector<Owned>& all, int i, int j) {
  std::vector<RbTensor*> parts;
  for (const Owned& example : all)
    parts.push_back(j < 0 ? example.values[i].v.t : example.values[i].v.ts[j]);
  return call(ops.stack, {rb::tensors_value(parts.data(), parts.size()), int_value(0)});
}

RbValue stacked_list(Call& c, const std::vector<Owned>& examples, int i) {
  const uint32_t n = examples[0].values[i].len;
  std::vector<Ref> parts;
  for (uint32_t j = 0; j < n; ++j)
    parts.push_back(c.wrap(stacked(examples, i, static_cast<int>(j)), 0));
  RbTensor** ts = rb::host->tensors_new(n);
  for (uint32_t j = 0; j < n; ++j) ts[j] = parts[j].take();
  return rb::tensors_value(ts, n);
}

// Lists that are written: an example of a list is a list of examples.
void written_lists(Call& c) {
  Values a(c);
  bool whole = true;
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag != RB_TENSORS) continue;
    for (uint32_t j = 0; j < c.args[i].len; ++j) {
      const RbTensor* t = c.args[i].v.ts[j];
      whole = whole && t && c.mine(t);
    }
  }
  if (!whole) {
    rb::fail(RB_E_STATE, "%s: vmap: it writes to its arguments, which must all be batched then",
             c.info.name);
  }
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_TENSORS) a.set_each(i, [&](RbTensor* t) { return c.front(t); });
  }
  rb::check(rb::host->call(c.c->op, a.v, a.n, nullptr, 0, 0));
}

}  // namespace

void aligned(Call& c) { align(c, false); }
void aligned_full(Call& c) { align(c, true); }

void shifted(Call& c) { shift(c, ~uint64_t{0}, first_tensor(c)); }
void shifted_as(Call& c, int follow, uint64_t which) { shift(c, which, follow); }

void leading(Call& c) {
  uint64_t which = 0;
  for (int i = 0; i < c.nargs; ++i) {
    if (c.info.args[i].flags & RB_ARG_LEADING) which |= uint64_t{1} << i;
  }
  shift(c, which, first_tensor(c));
}

void fold(Call& c) {
  Values a(c);
  for (int i = 0; i < c.nargs; ++i) {
    if (c.info.args[i].type == RB_A_SIZE && a.v[i].tag == RB_INTS && a.v[i].len) {
      Dims size(a.v[i].v.is, a.v[i].v.is + a.v[i].len);
      size[0] *= c.size();
      a.set(i, size);
    }
    if (!(c.info.args[i].flags & RB_ARG_FOLD) || c.args[i].tag != RB_TENSOR) continue;
    const Ref x = c.materialise(c.args[i].v.t);
    if (x->ndim == 1) c.refuse();  // there is no item
    Dims shape(x->shape + 1, x->shape + x->ndim);
    shape[0] *= x->shape[0];
    a.set(i, reshape(x, shape));
  }
  Results results(c, a);
  for (int i = 0; i < results.n; ++i) {
    const Ref r = results.take(i);
    Dims shape{c.size(), c.size() ? r->shape[0] / c.size() : 0};
    shape.insert(shape.end(), r->shape + 1, r->shape + r->ndim);
    c.give(i, reshape(r, shape), 0);
  }
}

void reduction(Call& c) {
  RbTensor* x = c.args[0].v.t;
  Values a(c);
  Ref inner = c.front(x);
  bool flat = false;
  for (int i = 1; i < c.nargs; ++i) {
    const int type = c.info.args[i].type;
    if (type == RB_A_DIM && a.v[i].tag == RB_NONE) {  // of the flattened example
      inner = reshape(inner, {c.size(), x->numel});
      a.v[i] = int_value(1);
      flat = true;
    } else if (type == RB_A_DIMS && (a.v[i].tag == RB_NONE || a.v[i].len == 0)) {
      a.set(i, all_dims(std::max(x->ndim, 1)));
    } else if (is_dim(type)) {
      shift_dims(a, i, type);
    }
  }
  if (x->ndim == 0 && !flat) inner = pad_rank(std::move(inner), 1);
  a.set(0, std::move(inner));
  Results results(c, a);
  for (int i = 0; i < results.n; ++i) {
    Ref r = results.take(i);
    if (flat && r->ndim == 2) {  // keepdim
      Dims shape(1 + x->ndim, 1);
      shape[0] = c.size();
      r = reshape(r, shape);
    } else if (x->ndim == 0 && r->ndim == 2) {
      r = squeeze(r, 1);
    }
    c.give(i, std::move(r), 0);
  }
}

void movement(Call& c) {
  RbTensor* t = c.args[0].v.t;
  Values a(c);
  Ref x = c.front(t);
  for (int i = 1; i < c.nargs; ++i) {
    const int type = c.info.args[i].type;
    if (type == RB_A_DIM && t->ndim == 0) return view_of_number(c);
    if (type == RB_A_DIMS && a.v[i].tag == RB_NONE) {
      a.set(i, all_dims(t->ndim));
    } else if (type == RB_A_DIMS && t->ndim == 0) {
      a.set(i, Dims{});
    } else if (is_dim(type)) {
      shift_dims(a, i, type);
    } else if (type == RB_A_PERM) {
      shift_dims(a, i, RB_A_DIMS);
      Dims order(a.v[i].v.is, a.v[i].v.is + a.v[i].len);
      order.insert(order.begin(), 0);
      a.set(i, order);
    } else if (type == RB_A_SIZE) {
      view_sizes(c, a, i);
    } else if (type == RB_A_BSIZE) {
      expand_sizes(c, a, i, x);
    }
  }
  a.set(0, std::move(x));
  Results(c, a).give_all(c);
}

void decompose(Call& c) { rb::check(rb::host->decompose(c.c, c.args, c.nargs, c.rets, c.nrets)); }

void loop(Call& c) {
  if (c.nrets == 0) return written_lists(c);
  announce_loop(c);
  if (c.size() == 0) {
    rb::fail(RB_E_NOTIMPL, "%s: vmap: there is no batching rule, and no example to run it on",
             c.info.name);
  }
  std::vector<Owned> examples;
  for (int64_t b = 0; b < c.size(); ++b) examples.push_back(c.call_example(b));
  for (int i = 0; i < c.nrets; ++i) {
    if (examples[0].values[i].tag == RB_TENSORS) {
      c.rets[i] = stacked_list(c, examples, i);
    } else {
      c.give(i, stacked(examples, i, -1), 0);
    }
  }
}

bool writes_directly(Rule rule) { return rule == aligned || rule == decompose || rule == random; }

Rule derived_rule(const Call& c) {
  const RbOpInfo& info = c.info;
  if (info.kind == RB_KIND_RANDOM) return random;
  if (info.flags & RB_OP_DATA_SHAPE) {
    rb::fail(RB_E_NOTIMPL,
             "%s: vmap: the shape of the result depends on the data, so that the examples' results "
             "do not fit one tensor; use a form of fixed shape, such as where() with a mask",
             info.name);
  }
  if (!c.any_mine() && !c.is_out()) return random_steps;
  bool aligns = true, flagged = false, fits = true;
  for (int i = 0; i < c.nargs; ++i) {
    const RbArgInfo& arg = info.args[i];
    if (arg.type != RB_A_TENSOR && arg.type != RB_A_TENSORS) continue;
    aligns = aligns && arg.core_ndim >= 0;
    const bool may = (arg.flags & (RB_ARG_LEADING | RB_ARG_FOLD)) != 0;
    flagged = flagged || may;
    if (!may && c.mine(c.args[i])) fits = false;
  }
  if (aligns && info.nrets > 0) return aligned;
  if (flagged && fits) {
    for (int i = 0; i < c.nargs; ++i) {
      if (info.args[i].flags & RB_ARG_FOLD) return fold;
    }
    return leading;
  }
  if (flagged) return info.flags & RB_OP_HAS_DECOMP ? decompose : loop;
  switch (info.kind) {
    case RB_KIND_REDUCTION:
      return reduction;
    case RB_KIND_ALONG:
    case RB_KIND_INDEXING:
    case RB_KIND_CREATION:
      return shifted;
    case RB_KIND_MOVEMENT:
      return movement;
    default:
      return info.flags & RB_OP_HAS_DECOMP ? decompose : loop;
  }
}

}  // namespace batch

// Rules that follow from an operator's record: its kind, the types of its arguments, its signature.
#include <algorithm>

#include "inner.h"

namespace batch {

namespace {

bool is_dim(int type) { return type == RB_A_DIM || type == RB_A_DIMS || type == RB_A_NEWDIM; }

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
    const int type = rb::arg_info(c.info, i).type;
    along = along || (is_dim(type) && (c.args[i].tag == RB_INT || c.args[i].len > 0));
  }
  Values a(c);
  bool lifted = false;
  for (int i = 0; i < c.nargs; ++i) {
    const int type = rb::arg_info(c.info, i).type;
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

[[noreturn]] void refuse_data_shape(const Call& c) {
  rb::fail(RB_E_NOTIMPL,
           "%s: vmap: the shape of the result depends on the data, so that the examples' results "
           "do not fit one tensor; use a form of fixed shape, such as where() with a mask",
           c.info.name);
}

// The results j of all examples, stacked.
Ref stacked(const Call& c, const std::vector<Owned>& all, int i, int j) {
  std::vector<RbTensor*> parts;
  for (const Owned& example : all) {
    parts.push_back(j < 0 ? example.values[i].v.t : example.values[i].v.ts[j]);
    if (!(shape_of(parts.back()) == shape_of(parts[0]))) refuse_data_shape(c);
  }
  return call(ops.stack, {rb::tensors_value(parts.data(), parts.size()), int_value(0)});
}

RbValue stacked_list(Call& c, const std::vector<Owned>& examples, int i) {
  const uint32_t n = examples[0].values[i].len;
  const auto missing = [&](const Owned& example, uint32_t j) { return !example.values[i].v.ts[j]; };
  std::vector<Ref> parts(n);
  for (uint32_t j = 0; j < n; ++j) {
    const auto count = std::count_if(examples.begin(), examples.end(),
                                     [&](const Owned& e) { return missing(e, j); });
    if (count != 0 && count != c.size()) {
      rb::fail(RB_E_STATE,
               "%s: vmap: result %u is None for %lld of %lld examples; it must be a tensor or None "
               "for all of them",
               c.info.name, j, static_cast<long long>(count), static_cast<long long>(c.size()));
    }
    if (count == 0) parts[j] = c.wrap(stacked(c, examples, i, static_cast<int>(j)), 0);
  }
  RbTensor** ts = nullptr;
  rb::check(rb::host->tensors_new(n, &ts));
  for (uint32_t j = 0; j < n; ++j) ts[j] = parts[j].take();
  return rb::tensors_value(ts, n);
}

// Each example has numbers of its own beside the lists.
void written_examples(Call& c) {
  announce_loop(c);
  for (int64_t b = 0; b < c.size(); ++b) c.call_example(b);
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
    if (c.args[i].tag == RB_TENSOR && c.mine(c.args[i])) return written_examples(c);
    if (c.args[i].tag == RB_TENSORS) a.set_each(i, [&](RbTensor* t) { return c.front(t); });
  }
  rb::check(rb::host->call(c.c->op, a.v, a.n, nullptr, 0, 0));
}

}  // namespace

void shifted(Call& c) { shift(c, ~uint64_t{0}, first_tensor(c)); }
void shifted_as(Call& c, int follow, uint64_t which) { shift(c, which, follow); }

void leading(Call& c) {
  uint64_t which = 0;
  for (int i = 0; i < c.nargs; ++i) {
    if (rb::arg_info(c.info, i).flags & RB_ARG_LEADING) which |= uint64_t{1} << i;
  }
  shift(c, which, first_tensor(c));
}

void fold(Call& c) {
  Values a(c);
  for (int i = 0; i < c.nargs; ++i) {
    if (rb::arg_info(c.info, i).type == RB_A_SIZE && a.v[i].tag == RB_INTS && a.v[i].len) {
      Dims size(a.v[i].v.is, a.v[i].v.is + a.v[i].len);
      size[0] *= c.size();
      a.set(i, size);
    }
    if (!(rb::arg_info(c.info, i).flags & RB_ARG_FOLD) || c.args[i].tag != RB_TENSOR) continue;
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
    const int type = rb::arg_info(c.info, i).type;
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
    const int type = rb::arg_info(c.info, i).type;
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

void decompose_or_loop(Call& c) {
  try {
    decompose(c);
  } catch (const rb::Stored&) {
    // The steps read values: the results of the examples may still have one shape.
    if (c.frame.strict || c.size() == 0) throw;
    rb::host->err_clear();
    loop(c);
  }
}

namespace {
// Whether the operator writes to a list. A tensor that it writes must be batched: each example
// writes to its own.
bool writes_lists(const Call& c) {
  for (int i = 0; i < c.nargs; ++i) {
    const RbArgInfo& arg = rb::arg_info(c.info, i);
    if (!(arg.flags & RB_ARG_MUTATED)) continue;
    if (c.args[i].tag == RB_TENSORS) return true;
    if (c.args[i].tag == RB_TENSOR && !c.mine(c.args[i])) {
      rb::fail(RB_E_STATE, "%s: vmap: it writes to its argument '%s', which must be batched then",
               c.info.name, arg.name);
    }
  }
  return false;
}
}  // namespace

void loop(Call& c) {
  if (c.nrets == 0 && writes_lists(c)) return written_lists(c);
  announce_loop(c);
  if (c.size() == 0 && c.nrets) {
    rb::fail(RB_E_NOTIMPL, "%s: vmap: there is no batching rule, and no example to run it on",
             c.info.name);
  }
  std::vector<Owned> examples;
  for (int64_t b = 0; b < c.size(); ++b) examples.push_back(c.call_example(b));
  for (int i = 0; i < c.nrets; ++i) {
    if (examples[0].values[i].tag == RB_TENSORS) {
      c.rets[i] = stacked_list(c, examples, i);
    } else {
      c.give(i, stacked(c, examples, i, -1), 0);
    }
  }
}

bool writes_directly(Rule rule) { return rule == aligned || rule == decompose || rule == random; }

namespace {
// Whether the first argument is the only one with tensors, and is one tensor.
bool is_of_one_tensor(const Call& c) {
  for (int i = 1; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_TENSOR || c.args[i].tag == RB_TENSORS) return false;
  }
  return c.args[0].tag == RB_TENSOR;
}
}  // namespace

Rule derived_rule(const Call& c) {
  const RbOpInfo& info = c.info;
  if (info.kind == RB_KIND_RANDOM) return random;
  const bool composite = info.kind == RB_KIND_COMPOSITE;
  if (info.flags & RB_OP_DATA_SHAPE && !composite) refuse_data_shape(c);
  bool any = false, aligns = true, flagged = false, fits = true;
  for (int i = 0; i < c.nargs; ++i) {
    const RbArgInfo& arg = rb::arg_info(info, i);
    if (arg.type != RB_A_TENSOR && arg.type != RB_A_TENSORS) continue;
    aligns = aligns && arg.core_ndim >= 0;
    const bool may = (arg.flags & (RB_ARG_LEADING | RB_ARG_FOLD)) != 0;
    const bool mine = c.mine(c.args[i]);
    flagged = flagged || may;
    any = any || mine;
    if (!may && mine) fits = false;
  }
  if (!any && !c.is_out()) return random_steps;
  // What is made of elementwise operators is done at once where a kernel may do it at once.
  if (composite && aligns && !one_floating_dtype(c)) return decompose;
  if (aligns && info.nrets > 0) return aligned;
  if (flagged && fits) {
    for (int i = 0; i < c.nargs; ++i) {
      if (rb::arg_info(info, i).flags & RB_ARG_FOLD) return fold;
    }
    return leading;
  }
  const bool decomposes = (info.flags & RB_OP_HAS_DECOMP) != 0;
  if (decomposes && info.flags & RB_OP_DATA_SHAPE && !c.is_out()) return decompose_or_loop;
  const Rule without = decomposes ? decompose : loop;
  if (flagged) return without;
  switch (info.kind) {
    case RB_KIND_REDUCTION:
      return is_of_one_tensor(c) ? reduction : without;
    case RB_KIND_ALONG:
    case RB_KIND_INDEXING:
      return shifted;
    case RB_KIND_CREATION:
      return decomposes ? decompose : shifted;
    case RB_KIND_MOVEMENT:
      return is_of_one_tensor(c) ? movement : without;
    default:
      return without;
  }
}

}  // namespace batch

// Rules that no record gives: products, convolutions, indices that differ between examples, and
// operators whose arguments mean something else for a tensor of another rank.
#include <algorithm>
#include <functional>
#include <numeric>

#include "batch.h"

namespace batch {

namespace {

RbTensor* tensor(const Call& c, int i) {
  return c.args[i].tag == RB_TENSOR ? c.args[i].v.t : nullptr;
}
bool batched(const Call& c, int i) { return c.mine(c.args[i]); }

Ref alias(RbTensor* t) {
  RbTensor* out = nullptr;
  rb::check(rb::host->tensor_alias(t, &out));
  return Ref(out);
}

// `x` with dimensions of size 1 put in at place `at`, to have `ndim`.
Ref pad(const Ref& x, int at, int ndim) {
  Dims shape = shape_of(x.get());
  if (static_cast<int>(shape.size()) < ndim)
    shape.insert(shape.begin() + at, ndim - shape.size(), 1);
  return reshape(x, shape);
}
// Dimensions `at` and the next one joined; dimension `at` split in two, the first of size `n`.
Ref join(const Ref& x, int at) {
  Dims shape = shape_of(x.get());
  shape[at] *= shape[at + 1];
  shape.erase(shape.begin() + at + 1);
  return reshape(x, shape);
}
Ref part(const Ref& x, int at, int64_t n) {
  Dims shape = shape_of(x.get());
  shape[at] = n ? shape[at] / n : 0;
  shape.insert(shape.begin() + at, n);
  return reshape(x, shape);
}

// ---- views

void t_rule(Call& c) {
  RbTensor* x = tensor(c, 0);
  if (x->ndim > 2) return c.refuse();
  if (x->ndim < 2) return c.give(0, alias(x));
  c.give(0, call(ops.transpose, {tensor_value(c.front(x)), int_value(1), int_value(2)}), 0);
}
void matrix_transpose(Call& c) { tensor(c, 0)->ndim < 2 ? c.refuse() : movement(c); }

Dims with_first(int64_t first, const RbValue& rest) {
  Dims all{first};
  all.insert(all.end(), rest.v.is, rest.v.is + rest.len);
  return all;
}

void strided_view(Call& c) {
  const Ref x = c.front(tensor(c, 0));
  const int64_t n = c.size(), step = x->strides[0];
  const Dims size = with_first(n, c.args[1]), stride = with_first(step, c.args[2]);
  const Dims input_size = with_first(n, c.args[4]), input_stride = with_first(step, c.args[5]);
  c.give(0,
         call(c.c->op, {tensor_value(x), list(size), list(stride), c.args[3], list(input_size),
                        list(input_stride)}),
         0);
}

void roll(Call& c) {
  RbTensor* x = tensor(c, 0);
  if (c.args[2].len) return shifted(c);
  const Ref flat = reshape(c.front(x), {c.size(), x->numel});
  const Dims dim{1};
  if (c.args[1].len != 1) return c.refuse();
  const Ref rolled = call(ops.roll, {tensor_value(flat), c.args[1], list(dim)});
  Dims shape = shape_of(x);
  shape.insert(shape.begin(), c.size());
  c.give(0, reshape(rolled, shape), 0);
}

// ---- products

Ref product(const Ref& a, const Ref& b) {
  return call(ops.matmul, {tensor_value(a), tensor_value(b)});
}

// Whichever operand is a vector for all examples, one product does for all of them.
void matmul_left(Call& c) {  // the first operand alone is batched
  RbTensor *a = tensor(c, 0), *b = tensor(c, 1);
  const Ref x = c.front(a);
  const Ref y = Ref::share(b);
  if (b->ndim <= 2) return c.give(0, product(x, y), 0);
  if (a->ndim == 1) return c.give(0, product(x, y), b->ndim - 2);  // (B, k) @ (..., k, m)
  c.give(0, product(pad(x, 1, std::max(a->ndim, b->ndim) + 1), y), 0);
}
void matmul_right(Call& c) {
  RbTensor *a = tensor(c, 0), *b = tensor(c, 1);
  const Ref x = Ref::share(a);
  const Ref y = c.front(b);
  if (b->ndim == 1 && a->ndim == 1) return c.give(0, product(y, x), 0);
  if (b->ndim == 1) return c.give(0, product(x, move_dim(Ref::share(y.get()), 0, 1)), a->ndim - 1);
  c.give(0, product(x, pad(y, 1, std::max(a->ndim, b->ndim) + 1)), 0);
}
void matmul_both(Call& c) {
  RbTensor *a = tensor(c, 0), *b = tensor(c, 1);
  const bool row = a->ndim == 1, column = b->ndim == 1;
  const int loops = std::max({a->ndim - 2, b->ndim - 2, 0});
  Ref x = c.front(a), y = c.front(b);
  if (row) x = pad(x, 1, 3);
  if (column) y = pad(y, 2, 3);
  Ref r = product(pad(x, 1, loops + 3), pad(y, 1, loops + 3));
  if (column) r = squeeze(r, r->ndim - 1);
  if (row) r = squeeze(r, r->ndim - (column ? 1 : 2));
  c.give(0, r, 0);
}
void matmul(Call& c) {
  const RbTensor *a = tensor(c, 0), *b = tensor(c, 1);
  if (a->ndim == 0 || b->ndim == 0 ||
      a->shape[a->ndim - 1] != b->shape[b->ndim == 1 ? 0 : b->ndim - 2])
    return c.refuse();
  (!batched(c, 1) ? matmul_left : !batched(c, 0) ? matmul_right : matmul_both)(c);
}

// ---- linear maps: examples with weights of their own are a batch of products

// The rows of the input as (B, rows, in).
Ref input_rows(const Call& c, RbTensor* x) {
  const Ref all = c.materialise(x);
  if (x->ndim == 2) return Ref::share(all.get());
  const int64_t in = x->shape[x->ndim - 1];
  const int64_t rows =
      std::accumulate(x->shape, x->shape + x->ndim - 1, int64_t{1}, std::multiplies<int64_t>());
  return reshape(all, {c.size(), rows, in});
}

void linear(Call& c) {
  if (!batched(c, 1)) return batched(c, 2) ? decompose(c) : leading(c);
  RbTensor *x = tensor(c, 0), *w = tensor(c, 1), *bias = tensor(c, 2);
  if (w->ndim != 2 || x->ndim == 0 || x->shape[x->ndim - 1] != w->shape[1] ||
      (bias && (bias->ndim != 1 || bias->shape[0] != w->shape[0])))
    return c.refuse();
  const Ref rows = input_rows(c, x);
  const Ref columns = call(ops.transpose, {tensor_value(c.front(w)), int_value(1), int_value(2)});
  Ref y;
  if (bias) {
    const Ref added = batched(c, 2) ? pad(c.front(bias), 1, 3) : Ref::share(bias);
    y = call(ops.baddbmm, {tensor_value(added), tensor_value(rows), tensor_value(columns)});
  } else {
    y = product(rows, columns);
  }
  if (x->ndim == 2) return c.give(0, std::move(y), 0);
  Dims shape{c.size()};
  shape.insert(shape.end(), x->shape, x->shape + x->ndim - 1);
  shape.push_back(w->shape[0]);
  c.give(0, reshape(y, shape), 0);
}

// ---- convolutions: examples with kernels of their own are groups of channels

void add_bias(Call& c) {
  std::vector<RbValue> values(c.args, c.args + c.nargs);
  values[2] = none_value();
  RbValue out = none_value();
  rb::check(rb::host->call(c.c->op, values.data(), c.nargs, &out, 1, 0));
  const Ref y(out.v.t);
  Dims shape(y->ndim - 1, 1);
  shape[0] = -1;
  const Ref bias = call(ops.view, {c.args[2], list(shape)});
  c.give(0, call(ops.add, {tensor_value(y), tensor_value(bias)}));
}

// The examples' channels (dimension 1) side by side.
Ref channels(const Call& c, int i) { return join(move_dim(c.materialise(tensor(c, i)), 0, 1), 1); }

RbValue times(const Call& c, int i) { return int_value(c.args[i].v.i * c.size()); }

void convolution(Call& c) {
  const RbTensor *x = tensor(c, 0), *w = tensor(c, 1);
  if (x->ndim != w->ndim || x->ndim < 3) return c.refuse();
  const bool bias = tensor(c, 2) != nullptr;
  if (!batched(c, 1) && !(bias && batched(c, 2))) return fold(c);
  if (bias) return add_bias(c);
  const bool shared = !batched(c, 0) && c.args[6].v.i == 1;  // one group sees all kernels
  const Ref kernels = join(c.front(tensor(c, 1)), 0);
  const Ref input = shared ? Ref::share(tensor(c, 0)) : channels(c, 0);
  const Ref y = call(c.c->op, {tensor_value(input), tensor_value(kernels), none_value(), c.args[3],
                               c.args[4], c.args[5], shared ? c.args[6] : times(c, 6)});
  c.give(0, part(y, 1, c.size()), 1);
}

Dims scaled(const Call& c, int i, int at) {
  Dims shape(c.args[i].v.is, c.args[i].v.is + c.args[i].len);
  if (static_cast<int>(shape.size()) <= at)
    rb::fail(RB_E_ARG, "%s: 'shape' has too few entries", c.info.name);
  shape[at] *= c.size();
  return shape;
}

void convolution_dx(Call& c) {
  const RbTensor *g = tensor(c, 0), *w = tensor(c, 1);
  if (g->ndim != w->ndim || g->ndim < 3) return c.refuse();
  if (!batched(c, 1)) return fold(c);
  const Ref grads = channels(c, 0), kernels = join(c.front(tensor(c, 1)), 0);
  const Dims shape = scaled(c, 2, 1);
  const Ref dx = call(c.c->op, {tensor_value(grads), tensor_value(kernels), list(shape), c.args[3],
                                c.args[4], c.args[5], times(c, 6)});
  c.give(0, part(dx, 1, c.size()), 1);
}

void convolution_dw(Call& c) {
  const RbTensor *x = tensor(c, 0), *g = tensor(c, 1);
  if (x->ndim != g->ndim || x->ndim < 3) return c.refuse();
  const Ref input = channels(c, 0), grads = channels(c, 1);
  const Dims shape = scaled(c, 2, 0);
  const Ref dw = call(c.c->op, {tensor_value(input), tensor_value(grads), list(shape), c.args[3],
                                c.args[4], c.args[5], times(c, 6)});
  c.give(0, part(dw, 0, c.size()), 0);
}

// A mask follows the batch dimensions of the others and has none of its own. Examples that share a
// seed drop the same weights, so that it is repeated.
void attention(Call& c) {
  const bool drops = c.args[8].tag == RB_TENSOR;
  (!drops && (batched(c, 0) || batched(c, 1) || batched(c, 2)) ? aligned : aligned_full)(c);
}

// ---- indices

void gather(Call& c) { shifted_as(c, 2); }

// Example-wise 1-d `index`, shaped to go along dimension `dim` of a tensor of `shape` (the examples
// in front).
Ref spread(const Call& c, RbTensor* index, const Dims& shape, int dim) {
  const Ref own = c.front(index);
  Dims ones(shape.size(), 1);
  ones[0] = c.size();
  ones[dim] = index->numel;
  const Ref placed = reshape(own, ones);
  return expand(placed.get(), shape);
}

void index_select(Call& c) {
  if (!batched(c, 2)) return shifted_as(c, 0, 1);
  RbTensor *x = tensor(c, 0), *index = tensor(c, 2);
  if (index->ndim > 1 || (x->ndim == 0 && index->numel != 1)) return c.refuse();
  const int64_t dim = c.args[1].v.i;
  if (!batched(c, 0) && x->ndim > 0) {  // the indices of all examples in one list
    const Ref flat = reshape(c.front(index), {c.size() * index->numel});
    const Ref r = call(c.c->op, {c.args[0], c.args[1], tensor_value(flat)});
    return c.give(0, part(r, static_cast<int>(dim), c.size()), static_cast<int>(dim));
  }
  Ref input = c.materialise(x);
  if (x->ndim == 0) input = pad(input, 1, 2);
  Dims shape = shape_of(input.get());
  shape[dim + 1] = index->numel;
  const Ref at = spread(c, index, shape, static_cast<int>(dim) + 1);
  const Ref r = call(ops.gather, {tensor_value(input), int_value(dim + 1), tensor_value(at)});
  c.give(0, x->ndim == 0 ? squeeze(r, 1) : Ref::share(r.get()), 0);
}

void index_add(Call& c) {
  RbTensor *x = tensor(c, 0), *index = tensor(c, 2), *source = tensor(c, 3);
  if (!batched(c, 2)) return shifted_as(c, 0, 1 | 8);
  const int64_t dim = c.args[1].v.i;
  if (index->ndim > 1 || source->ndim != x->ndim ||
      (x->ndim ? source->shape[dim] : 1) != index->numel)
    return c.refuse();
  Ref input = c.materialise(x), from = c.materialise(source);
  if (x->ndim == 0) {
    input = pad(input, 1, 2);
    from = pad(from, 1, 2);
  }
  RbValue alpha = c.args[4];
  if (alpha.tag == RB_FLOAT && !rb::is_differentiable(source->dtype_id))  // as the kernel reads it
    alpha = int_value(static_cast<int64_t>(alpha.v.f));
  const bool scaled = alpha.tag != RB_INT || alpha.v.i != 1;
  if (scaled) {
    from = call(ops.mul, {tensor_value(from), alpha});
    if (from->dtype_id != source->dtype_id)
      from = call(ops.cast, {tensor_value(from), rb::dtype_value(source->dtype_id)});
  }
  const Ref at = spread(c, index, shape_of(from.get()), static_cast<int>(dim) + 1);
  const Ref r = call(ops.scatter_add, {tensor_value(input), int_value(dim + 1), tensor_value(at),
                                       tensor_value(from)});
  c.give(0, x->ndim == 0 ? squeeze(r, 1) : Ref::share(r.get()), 0);
}

/// The list of indices for the inner call of `index` and `index_put`, and where the joined
/// dimensions stand in an example and in the inner result.
struct Indices {
  std::vector<Ref> hold;
  std::vector<RbTensor*> list;
  int joined = 0;         // dimensions that the indices have together
  int first = -1;         // the first dimension that is indexed
  bool adjacent = true;   // the joined dimensions stand at `first`, else in front
  bool numbered = false;  // the first index counts the examples

  Indices(const Call& c, bool input_batched) {
    const RbValue& given = c.args[1];
    bool any = false;
    int last = -1;
    for (uint32_t i = 0; i < given.len; ++i) {
      const RbTensor* t = given.v.ts[i];
      if (!t) continue;
      joined = std::max(joined, t->ndim);
      any = any || c.mine(t);
      if (last >= 0 && static_cast<int>(i) != last + 1) adjacent = false;
      if (first < 0) first = static_cast<int>(i);
      last = static_cast<int>(i);
    }
    numbered = input_batched && (any || !adjacent);
    if (numbered) {
      add(reshape(call(ops.arange, {int_value(c.size()), none_value(), int_value(1),
                                    dtype_value(RB_I64), rb::device_value(tensor(c, 0))}),
                  numbers(c)));
    } else if (input_batched) {
      list.push_back(nullptr);
    }
    for (uint32_t i = 0; i < given.len; ++i) {
      RbTensor* t = given.v.ts[i];
      if (t && c.mine(t)) {
        add(pad(c.front(t), 1, joined + 1));
      } else {
        list.push_back(t);
      }
    }
  }
  RbValue value() const { return rb::tensors_value(list.data(), list.size()); }

 private:
  void add(Ref t) {
    list.push_back(t.get());
    hold.push_back(std::move(t));
  }
  Dims numbers(const Call& c) const {
    Dims shape(joined + 1, 1);
    shape[0] = c.size();
    return shape;
  }
};

// The order of dimensions that takes (B, joined, before, after) to (B, before, joined, after).
Dims joined_back(int ndim, int joined, int before) {
  Dims order{0};
  for (int d = 0; d < before; ++d) order.push_back(1 + joined + d);
  for (int d = 0; d < joined; ++d) order.push_back(1 + d);
  for (int d = 1 + joined + before; d < ndim; ++d) order.push_back(d);
  return order;
}

void index(Call& c) {
  RbTensor* x = tensor(c, 0);
  if (static_cast<int>(c.args[1].len) > x->ndim) return c.refuse();
  const Indices at(c, batched(c, 0));
  const Ref input = batched(c, 0) ? c.front(x) : Ref::share(x);
  Ref r = call(c.c->op, {tensor_value(input), at.value()});
  if (!batched(c, 0)) return c.give(0, r, at.adjacent ? at.first : 0);
  if (at.numbered && at.adjacent && at.first > 0)
    r = permute(r, joined_back(r->ndim, at.joined, at.first));
  c.give(0, r, 0);
}

void index_put(Call& c) {
  RbTensor *x = tensor(c, 0), *values = tensor(c, 2);
  if (static_cast<int>(c.args[1].len) > x->ndim) return c.refuse();
  const Indices at(c, true);
  const Ref input = c.materialise(x);
  int indexed = 0;
  for (uint32_t i = 0; i < c.args[1].len; ++i) indexed += c.args[1].v.ts[i] != nullptr;
  const int ndim = x->ndim - indexed + at.joined;  // of what an example's indices name
  RbValue written = c.args[2];
  Ref own;
  if (values && (values->ndim > 0 || batched(c, 2))) {
    if (values->ndim > ndim) return c.refuse();
    own = batched(c, 2) ? pad(c.front(values), 1, ndim + 1) : pad(Ref::share(values), 0, ndim + 1);
    if (at.numbered && at.adjacent && at.first > 0) {  // (B, before, joined, after): joined first
      const Dims back = joined_back(ndim + 1, at.joined, at.first);
      Dims order(back.size(), 0);
      for (size_t d = 0; d < back.size(); ++d) order[back[d]] = static_cast<int64_t>(d);
      own = permute(own, order);
    }
    written = tensor_value(own);
  }
  c.give(0, call(c.c->op, {tensor_value(input), at.value(), written, c.args[3]}), 0);
}

// Examples with tables of their own; the row at padding_idx must get no gradient.
void embedding(Call& c) {
  if (!batched(c, 0)) return leading(c);
  RbTensor* weight = tensor(c, 0);
  if (weight->ndim != 2) return c.refuse();
  const int64_t padding = c.args[2].v.i;
  if (padding < 0) return decompose(c);
  const RbValue first = int_value(padding), last = int_value(padding + 1), one = int_value(1);
  const Ref row = call(ops.slice, {c.args[0], int_value(0), first, last, one});
  const Ref cut = call(ops.detach, {tensor_value(row)});
  const Ref table =
      call(ops.slice_scatter, {c.args[0], tensor_value(cut), int_value(0), first, last, one});
  const RbValue args[3] = {tensor_value(table), c.args[1], int_value(-1)};
  Call plain{c.c, c.info, args, 3, c.rets, c.nrets, c.frame};
  decompose(plain);
}

// With one mask for all examples the results have one shape.
void masked_select(Call& c) {
  if (batched(c, 1)) {
    rb::fail(RB_E_NOTIMPL,
             "%s: vmap: the shape of the result depends on the data, so that the examples' results "
             "do not fit one tensor; use where() with the mask",
             c.info.name);
  }
  RbTensor *x = tensor(c, 0), *mask = tensor(c, 1);
  const int rank = std::max(x->ndim, mask->ndim);
  Dims shape;
  int64_t places = 1;
  for (int d = -rank; d < 0; ++d) {
    const int64_t have = x->ndim + d < 0 ? 1 : x->shape[x->ndim + d],
                  want = mask->ndim + d < 0 ? 1 : mask->shape[mask->ndim + d];
    if (have != want && have != 1 && want != 1) return c.refuse();
    shape.push_back(have == 1 ? want : have);
    places *= have == 1 ? want : have;
  }
  const Ref chosen = call(ops.nonzero, {tensor_value(reshape(expand(mask, shape), {places}))});
  shape.insert(shape.begin(), c.size());
  const Ref all = reshape(expand(pad_rank(c.front(x), rank).get(), shape), {c.size(), places});
  const Ref at = reshape(chosen, {chosen->shape[0]});
  c.give(0, call(ops.index_select, {tensor_value(all), int_value(1), tensor_value(at)}), 0);
}

// Empty 1-d tensors join anything; with the examples in front they would not. Their dtypes count.
void cat(Call& c) {
  const RbValue& tensors = c.args[0];
  std::vector<RbTensor*> kept;
  std::vector<Ref> empty;
  for (uint32_t i = 0; i < tensors.len; ++i) {
    RbTensor* t = tensors.v.ts[i];
    if (t->ndim != 1 || t->shape[0] != 0)
      kept.push_back(t);
    else
      empty.push_back(c.mine(t) ? reshape(c.front(t), {0}) : Ref::share(t));
  }
  if (kept.empty() || empty.empty()) return shifted(c);
  RbValue args[2] = {tensors, c.args[1]};
  args[0].v.ts = kept.data();
  args[0].len = static_cast<uint32_t>(kept.size());
  RbValue ret = none_value();
  Call fewer{c.c, c.info, args, 2, &ret, 1, c.frame};
  if (fewer.any_mine())
    shifted(fewer);
  else
    rb::check(rb::host->call(c.c->op, args, 2, &ret, 1, 0));
  Ref joined(ret.v.t);
  const bool batched = c.mine(joined.get());
  if (batched) joined = c.front(joined.get());
  std::vector<RbTensor*> parts{joined.get()};
  for (const Ref& t : empty) parts.push_back(t.get());
  args[0].v.ts = parts.data();
  args[0].len = static_cast<uint32_t>(parts.size());
  Ref whole = call(c.c->op, {args[0], int_value(0)});
  if (batched)
    c.give(0, std::move(whole), 0);
  else
    c.give(0, std::move(whole));
}

struct Exact {
  const char* op;
  Rule rule;
};
const Exact kRules[] = {{"t", t_rule},
                        {"new_empty", shifted},
                        {"mT", matrix_transpose},
                        {"strided_view", strided_view},
                        {"roll", roll},
                        {"matmul", matmul},
                        {"linear", linear},
                        {"convolution", convolution},
                        {"convolution_dx", convolution_dx},
                        {"convolution_dw", convolution_dw},
                        {"attention", attention},
                        {"attention_backward", aligned_full},
                        {"attention_dropout", aligned_full},
                        {"gather", gather},
                        {"index_select", index_select},
                        {"index_add", index_add},
                        {"index", index},
                        {"index_put", index_put},
                        {"embedding", embedding},
                        {"masked_select", masked_select},
                        {"cat", cat}};

}  // namespace

int32_t add_exact_rules(const RbHost* host, RbTxn* txn) {
  for (const Exact& exact : kRules) {
    const rb::KernelSpec spec{exact.op, run_exact, 0, 0, &exact.rule};
    if (int32_t rc = rb::add_kernels(host, txn, "vmap", &spec, 1)) return rc;
  }
  return RB_OK;
}

}  // namespace batch

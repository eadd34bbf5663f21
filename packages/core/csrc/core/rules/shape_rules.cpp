#include "rules/shape_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rules/shape_helpers.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

int64_t checked_sum(const std::string& op, int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out))
    fail(RB_E_ARG, "%s: sizes %lld and %lld are too large together", op.c_str(), (long long)a,
         (long long)b);
  return out;
}

int64_t checked_product(const std::string& op, int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out))
    fail(RB_E_ARG, "%s: sizes %lld and %lld are too large together", op.c_str(), (long long)a,
         (long long)b);
  return out;
}

namespace {

// An empty 1-d tensor, which PyTorch's `cat` skips beside tensors of any shape.
bool joins_anything(const RbTensor& t) { return t.ndim == 1 && t.shape[0] == 0; }

}  // namespace

const RbTensor* first_joined(const RbValue& list) {
  for (uint32_t i = 0; i < list.len; ++i) {
    if (list.v.ts[i] && !joins_anything(*list.v.ts[i])) return list.v.ts[i];
  }
  return list.v.ts[0];
}

namespace {

// ---- joining and indexing

void cat(const Op& op, const RbValue* args, int, Inferred& out) {
  if (args[0].len == 0) fail(RB_E_ARG, "%s: expected at least one tensor", op.name.c_str());
  const int64_t dim = args[1].v.i;
  const RbTensor* first = first_joined(args[0]);
  if (first->ndim == 0)
    fail(RB_E_ARG, "%s: 0-dimensional tensors cannot be joined; use stack()", op.name.c_str());
  copy_shape(*first, out.rets[0]);
  out.rets[0].shape[dim] = 0;
  for (uint32_t i = 0; i < args[0].len; ++i) {
    const RbTensor& t = *args[0].v.ts[i];
    if (joins_anything(t)) continue;
    bool fits = t.ndim == first->ndim;
    for (int d = 0; fits && d < t.ndim; ++d) fits = d == dim || t.shape[d] == first->shape[d];
    if (!fits) {
      fail(RB_E_ARG,
           "%s: sizes must match except in dimension %lld: tensor 0 has shape %s, tensor %u has "
           "shape %s",
           op.name.c_str(), (long long)dim, text(*first).c_str(), i, text(t).c_str());
    }
    out.rets[0].shape[dim] += t.shape[dim];
  }
}

void pad(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  copy_shape(x, out.rets[0]);
  if (args[1].len % 2 || static_cast<int>(args[1].len / 2) > x.ndim) {
    fail(RB_E_ARG, "%s: expected (before, after) pairs for at most %d dimensions, got %u numbers",
         op.name.c_str(), x.ndim, args[1].len);
  }
  for (uint32_t i = 0; i < args[1].len / 2; ++i) {
    int64_t& size = out.rets[0].shape[x.ndim - 1 - static_cast<int>(i)];
    const int64_t before = args[1].v.is[2 * i], after = args[1].v.is[2 * i + 1];
    // Both ends are cropped first: what is added at one end does not make up for the other.
    const int64_t crop =
        checked_sum(op.name, std::min<int64_t>(before, 0), std::min<int64_t>(after, 0));
    const bool too_much = size + crop < 0;
    size = checked_sum(op.name, size, checked_sum(op.name, before, after));
    if (too_much) {
      fail(RB_E_ARG, "%s: the padding crops more than dimension %d of shape %s has",
           op.name.c_str(), x.ndim - 1 - static_cast<int>(i), text(x).c_str());
    }
  }
}

void roll(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const uint32_t shifts = args[1].len, dims = args[2].len;
  if (dims != shifts && !(dims == 0 && shifts == 1)) {
    fail(RB_E_ARG, "%s: expected one entry of 'shifts' for each of the %u in 'dims', got %u",
         op.name.c_str(), dims, shifts);
  }
  if (x.ndim == 0 && dims)
    fail(RB_E_INDEX, "%s: a 0-dimensional tensor has no dim", op.name.c_str());
  copy_shape(x, out.rets[0]);
}

bool is_index_dtype(int dtype) { return dtype == RB_I64 || dtype == RB_I32; }
void need_index(const Op& op, const RbTensor& t, int arg) {
  if (t.dtype_id != RB_I64) {
    fail(RB_E_TYPE, "%s: '%s' must have dtype int64, got %s", op.name.c_str(), op.params[arg].name,
         kDTypes[t.dtype_id].name);
  }
}

void index_select(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const RbTensor& index = *args[2].v.t;
  if (index.ndim > 1)
    fail(RB_E_ARG, "%s: 'index' must have 1 dimension, got shape %s", op.name.c_str(),
         text(index).c_str());
  if (!is_index_dtype(index.dtype_id)) need_index(op, index, 2);
  if (x.ndim == 0 && index.numel != 1)
    fail(RB_E_INDEX, "%s: a 0-dimensional input has one element to select, 'index' has %lld",
         op.name.c_str(), (long long)index.numel);
  copy_shape(x, out.rets[0]);
  if (x.ndim) out.rets[0].shape[args[1].v.i] = index.numel;
}

void index(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const RbValue& list = args[1];
  if (static_cast<int>(list.len) > x.ndim) {
    fail(RB_E_INDEX, "%s: %u indices for a tensor of %d dimensions", op.name.c_str(), list.len,
         x.ndim);
  }
  TensorSpec joined;
  joined.ndim = 0;
  int first = -1, last = -1;
  bool adjacent = true;
  for (uint32_t i = 0; i < list.len; ++i) {
    const RbTensor* t = list.v.ts[i];
    if (!t) continue;
    if (!is_index_dtype(t->dtype_id)) need_index(op, *t, 1);
    broadcast_into(op, t->ndim, t->shape, joined);
    if (last >= 0 && static_cast<int>(i) != last + 1) adjacent = false;
    if (first < 0) first = static_cast<int>(i);
    last = static_cast<int>(i);
  }
  // The joined shape stands where the indices are if they are adjacent, else in front (NumPy's
  // rule).
  TensorSpec& to = out.rets[0];
  to.ndim = 0;
  auto put_joined = [&] {
    for (int d = 0; d < joined.ndim; ++d) to.shape[to.ndim++] = joined.shape[d];
  };
  if (x.ndim + joined.ndim > kMaxDims)
    fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  if (first >= 0 && !adjacent) put_joined();
  for (int d = 0; d < x.ndim; ++d) {
    const bool indexed = d < static_cast<int>(list.len) && list.v.ts[d];
    if (!indexed)
      to.shape[to.ndim++] = x.shape[d];
    else if (d == first && adjacent)
      put_joined();
  }
}

// ---- products

// The product of arguments `first` and `first + 1`.
void product(const Op& op, const RbValue* args, int first, Inferred& out) {
  const RbTensor &a = *args[first].v.t, &b = *args[first + 1].v.t;
  const char *name_a = op.params[first].name, *name_b = op.params[first + 1].name;
  if (a.ndim == 0 || b.ndim == 0) {
    fail(RB_E_ARG, "%s: both arguments need at least 1 dimension: %s is %s, %s is %s",
         op.name.c_str(), name_a, text(a).c_str(), name_b, text(b).c_str());
  }
  const int64_t inner_a = a.shape[a.ndim - 1], inner_b = b.shape[b.ndim == 1 ? 0 : b.ndim - 2];
  if (inner_a != inner_b) {
    fail(RB_E_ARG, "%s: inner sizes differ: %s is %s, %s is %s", op.name.c_str(), name_a,
         text(a).c_str(), name_b, text(b).c_str());
  }
  TensorSpec& to = out.rets[0];
  to.ndim = 0;
  if (a.ndim > 2) broadcast_into(op, a.ndim - 2, a.shape, to);
  if (b.ndim > 2) broadcast_into(op, b.ndim - 2, b.shape, to);
  if (a.ndim > 1) to.shape[to.ndim++] = a.shape[a.ndim - 2];
  if (b.ndim > 1) to.shape[to.ndim++] = b.shape[b.ndim - 1];
}

void product_of_ranks(const Op& op, const RbValue* args, int first, int rank_a, int rank_b,
                      Inferred& out) {
  need_rank(op, *args[first].v.t, rank_a, first);
  need_rank(op, *args[first + 1].v.t, rank_b, first + 1);
  product(op, args, first, out);
}

void product_of_batches(const Op& op, const RbValue* args, int first, Inferred& out) {
  const RbTensor &a = *args[first].v.t, &b = *args[first + 1].v.t;
  need_rank(op, a, 3, first);
  need_rank(op, b, 3, first + 1);
  if (a.shape[0] != b.shape[0]) {
    fail(RB_E_ARG, "%s: batch sizes differ: %s is %s, %s is %s", op.name.c_str(),
         op.params[first].name, text(a).c_str(), op.params[first + 1].name, text(b).c_str());
  }
  product(op, args, first, out);
}

// Of `input`, which is added to the product: its shape, and the numbers beta and alpha.
void check_added(const Op& op, const RbValue* args, const TensorSpec& product) {
  const RbTensor& input = *args[0].v.t;
  if (!broadcasts_to(input, product)) {
    fail(RB_E_ARG, "%s: '%s' of shape %s does not broadcast to the product's shape %s",
         op.name.c_str(), op.params[0].name, text(input).c_str(),
         shape_text(product.ndim, product.shape).c_str());
  }
  for (int i = 0; i < 3; ++i) {
    if (!is_integral(args[i].v.t->dtype_id)) return;
  }
  for (int i = 3; i < 5; ++i) {
    if (args[i].tag == RB_FLOAT || args[i].tag == RB_COMPLEX) {
      fail(RB_E_TYPE, "%s: '%s' must be an integer, as the tensors' elements are", op.name.c_str(),
           op.params[i].name);
    }
  }
}

void matmul(const Op& op, const RbValue* args, int, Inferred& out) { product(op, args, 0, out); }
void mm(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_ranks(op, args, 0, 2, 2, out);
}
void mv(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_ranks(op, args, 0, 2, 1, out);
}
void dot(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_ranks(op, args, 0, 1, 1, out);
}
void bmm(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_batches(op, args, 0, out);
}
void addmm(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_ranks(op, args, 1, 2, 2, out);
  check_added(op, args, out.rets[0]);
}
void baddbmm(const Op& op, const RbValue* args, int, Inferred& out) {
  product_of_batches(op, args, 1, out);
  check_added(op, args, out.rets[0]);
}
void outer(const Op& op, const RbValue* args, int, Inferred& out) {
  need_rank(op, *args[0].v.t, 1, 0);
  need_rank(op, *args[1].v.t, 1, 1);
  set(out.rets[0], {args[0].v.t->shape[0], args[1].v.t->shape[0]});
}

void linear(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor &x = *args[0].v.t, &w = *args[1].v.t;
  const RbTensor* bias = tensor(args[2]);
  need_rank(op, w, 2, 1);
  if (x.ndim == 0 || x.shape[x.ndim - 1] != w.shape[1]) {
    fail(RB_E_ARG, "%s: inner sizes differ: input is %s, weight is %s (out_features, in_features)",
         op.name.c_str(), text(x).c_str(), text(w).c_str());
  }
  if (bias && (bias->ndim != 1 || bias->shape[0] != w.shape[0])) {
    fail(RB_E_ARG, "%s: expected 'bias' of shape (%lld,), got %s", op.name.c_str(),
         (long long)w.shape[0], text(*bias).c_str());
  }
  copy_shape(x, out.rets[0]);
  out.rets[0].shape[x.ndim - 1] = w.shape[0];
}

void linear_activation(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  linear(op, args, nargs, out);
  const char* name = args[3].v.s;
  for (const char* known : {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}) {
    if (!std::strcmp(name, known)) return;
  }
  fail(RB_E_ARG, "%s: 'activation' must be relu, gelu, gelu_tanh, silu, tanh or sigmoid, got '%s'",
       op.name.c_str(), name);
}

// ---- windows

// Sizes of windows are given once or for each of `rank` directions.
int64_t size_at(const RbValue& v, int i) { return v.v.is[v.len == 1 ? 0 : i]; }

void need_sizes(const Op& op, const RbValue* args, int arg, int rank, int64_t least) {
  const RbValue& v = args[arg];
  if (v.tag != RB_INTS || (v.len != 1 && v.len != static_cast<uint32_t>(rank))) {
    fail(RB_E_ARG, "%s: '%s' must be 1 or %d integers, got %d", op.name.c_str(),
         op.params[arg].name, rank, v.tag == RB_INTS ? static_cast<int>(v.len) : 0);
  }
  for (int i = 0; i < rank; ++i) {
    if (size_at(v, i) < least) {
      fail(RB_E_ARG, "%s: '%s' must be at least %lld, got %lld", op.name.c_str(),
           op.params[arg].name, (long long)least, (long long)size_at(v, i));
    }
  }
}

void convolution(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor &x = *args[0].v.t, &w = *args[1].v.t;
  const RbTensor* bias = tensor(args[2]);
  if (w.ndim < 3 || w.ndim > 5) {
    fail(RB_E_ARG, "%s: 'weight' must have 3, 4 or 5 dimensions, got shape %s", op.name.c_str(),
         text(w).c_str());
  }
  const int rank = w.ndim - 2;
  need_rank(op, x, w.ndim, 0);
  need_sizes(op, args, 3, rank, 1);
  need_sizes(op, args, 4, rank, 0);
  need_sizes(op, args, 5, rank, 1);
  const int64_t groups = args[6].v.i;
  if (groups < 1 || x.shape[1] % groups || w.shape[0] % groups) {
    fail(RB_E_ARG,
         "%s: groups=%lld must be positive and divide the %lld input and %lld output channels",
         op.name.c_str(), (long long)groups, (long long)x.shape[1], (long long)w.shape[0]);
  }
  if (x.shape[1] != checked_product(op.name, w.shape[1], groups)) {
    fail(RB_E_ARG, "%s: weight %s with groups=%lld expects %lld input channels, but input is %s",
         op.name.c_str(), text(w).c_str(), (long long)groups, (long long)(w.shape[1] * groups),
         text(x).c_str());
  }
  if (bias && (bias->ndim != 1 || bias->shape[0] != w.shape[0])) {
    fail(RB_E_ARG, "%s: expected 'bias' of shape (%lld,), got %s", op.name.c_str(),
         (long long)w.shape[0], text(*bias).c_str());
  }
  out.rets[0].ndim = x.ndim;
  out.rets[0].shape[0] = x.shape[0];
  out.rets[0].shape[1] = w.shape[0];
  for (int i = 0; i < rank; ++i) {
    if (w.shape[2 + i] < 1) {
      fail(RB_E_ARG, "%s: the kernel of shape %s has no elements", op.name.c_str(),
           text(w).c_str());
    }
    const int64_t reach =
        checked_sum(op.name, checked_product(op.name, size_at(args[5], i), w.shape[2 + i] - 1), 1);
    const int64_t padded =
        checked_sum(op.name, x.shape[2 + i], checked_product(op.name, 2, size_at(args[4], i)));
    const int64_t room = padded - reach;
    if (room < 0) {
      fail(RB_E_ARG,
           "%s: the kernel covers %lld elements, but the padded input %s has only %lld in "
           "dimension %d",
           op.name.c_str(), (long long)reach, text(x).c_str(), (long long)padded, 2 + i);
    }
    out.rets[0].shape[2 + i] = room / size_at(args[3], i) + 1;
  }
}

// The number of directions: as many as there are sizes in argument `arg`.
int pool_rank(const Op& op, const RbValue* args, int arg) {
  const RbTensor& x = *args[0].v.t;
  const int rank = args[arg].tag == RB_INTS ? static_cast<int>(args[arg].len) : 0;
  if (rank < 1 || rank > 3) {
    fail(RB_E_ARG, "%s: '%s' must be 1, 2 or 3 integers, got %d", op.name.c_str(),
         op.params[arg].name, rank);
  }
  if (x.ndim != rank + 1 && x.ndim != rank + 2) {
    static const char* const kShapes[] = {"(N, C, L) or (C, L)", "(N, C, H, W) or (C, H, W)",
                                          "(N, C, D, H, W) or (C, D, H, W)"};
    fail(RB_E_ARG, "%s: expected an input %s, got shape %s", op.name.c_str(), kShapes[rank - 1],
         text(x).c_str());
  }
  return rank;
}

void same_for_all_results(const Op& op, Inferred& out) {
  for (int r = 1; r < op.info.nrets; ++r) {
    out.rets[r].ndim = out.rets[0].ndim;
    std::copy(out.rets[0].shape, out.rets[0].shape + out.rets[0].ndim, out.rets[r].shape);
  }
}

void pool(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const int rank = pool_rank(op, args, 1);
  need_sizes(op, args, 1, rank, 1);
  const RbValue& stride = args[2].tag == RB_INTS && args[2].len ? args[2] : args[1];
  if (args[2].tag == RB_INTS && args[2].len) need_sizes(op, args, 2, rank, 1);
  need_sizes(op, args, 3, rank, 0);
  const int dilation = param_index(op, "dilation"), ceil_mode = param_index(op, "ceil_mode");
  if (dilation >= 0) need_sizes(op, args, dilation, rank, 1);
  copy_shape(x, out.rets[0]);
  for (int i = 0; i < rank; ++i) {
    const int64_t kernel = size_at(args[1], i), p = size_at(args[3], i), s = size_at(stride, i);
    const int64_t spread = dilation >= 0 ? size_at(args[dilation], i) : 1;
    const int64_t reach = checked_sum(op.name, checked_product(op.name, spread, kernel - 1), 1);
    if (p > reach / 2) {
      fail(RB_E_ARG, "%s: padding %lld is more than half of the kernel size %lld", op.name.c_str(),
           (long long)p, (long long)reach);
    }
    const int64_t size = x.shape[x.ndim - rank + i];
    const int64_t room = checked_sum(op.name, size, 2 * p) - reach;
    const int64_t reachable = args[ceil_mode].v.i ? checked_sum(op.name, room, s - 1) : room;
    int64_t n = reachable < 0 ? 0 : reachable / s + 1;
    if (args[ceil_mode].v.i && (n - 1) * s >= size + p) --n;  // a window begins in the input
    if (n < 1 || size < 1) {
      fail(RB_E_ARG, "%s: the kernel of size %lld does not fit the input %s in dimension %d",
           op.name.c_str(), (long long)kernel, text(x).c_str(), x.ndim - rank + i);
    }
    out.rets[0].shape[x.ndim - rank + i] = n;
  }
  same_for_all_results(op, out);
}

void adaptive_pool(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const int rank = pool_rank(op, args, 1);
  need_sizes(op, args, 1, rank, 0);
  copy_shape(x, out.rets[0]);
  for (int i = 0; i < rank; ++i) {
    const int64_t size = size_at(args[1], i);
    if (size > 0 && x.shape[x.ndim - rank + i] == 0) {
      fail(RB_E_ARG, "%s: no window of the input %s has elements", op.name.c_str(),
           text(x).c_str());
    }
    out.rets[0].shape[x.ndim - rank + i] = size;
  }
  same_for_all_results(op, out);
}

// ---- creation

double number(const RbValue& v) { return v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i); }

bool whole(const RbValue& v) { return v.tag == RB_INT || v.tag == RB_BOOL; }

void arange(const Op& op, const RbValue* args, int, Inferred& out) {
  const bool only_end = args[1].tag == RB_NONE;
  const RbValue &first = only_end ? value_int(0) : args[0], &last = args[only_end ? 0 : 1];
  const double start = number(first), end = number(last), step = number(args[2]);
  int64_t span = 0;
  if (whole(first) && whole(last) && whole(args[2]) && args[2].v.i &&
      !__builtin_sub_overflow(last.v.i, first.v.i, &span) && span != INT64_MIN) {
    // Integers exactly: doubles cannot tell neighbours beyond 2 ** 53 apart.
    const int64_t by = args[2].v.i;
    if (span == 0 || (span < 0) == (by < 0))
      return set(out.rets[0], {span / by + (span % by != 0)});
  }
  const double count = std::ceil((end - start) / step);
  if (step == 0 || !(count >= 0) || !(count < 9e18)) {
    fail(RB_E_ARG, "%s: start %g, end %g and step %g give no finite range", op.name.c_str(), start,
         end, step);
  }
  set(out.rets[0], {static_cast<int64_t>(count)});
}

void linspace(const Op& op, const RbValue* args, int, Inferred& out) {
  if (args[2].v.i < 0)
    fail(RB_E_ARG, "%s: steps must not be negative, got %lld", op.name.c_str(),
         (long long)args[2].v.i);
  set(out.rets[0], {args[2].v.i});
}

const ShapeFunction kRules[] = {{"cat", cat},
                                {"pad", pad},
                                {"roll", roll},
                                {"index_select", index_select},
                                {"index", index},
                                {"matmul", matmul},
                                {"mm", mm},
                                {"mv", mv},
                                {"dot", dot},
                                {"bmm", bmm},
                                {"addmm", addmm},
                                {"baddbmm", baddbmm},
                                {"outer", outer},
                                {"linear", linear},
                                {"linear_activation", linear_activation},
                                {"convolution", convolution},
                                {"pool", pool},
                                {"adaptive_pool", adaptive_pool},
                                {"arange", arange},
                                {"linspace", linspace}};

}  // namespace

void run_shape_rule(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  if (const void* known = __atomic_load_n(&op.rule, __ATOMIC_ACQUIRE)) {
    return static_cast<const ShapeFunction*>(known)->fn(op, args, nargs, out);
  }
  const char* name = op.shape_text.c_str() + std::strlen("function ");
  const ShapeFunction* found = nullptr;
  for (const ShapeFunction& rule : kRules) {
    if (!std::strcmp(rule.name, name)) found = &rule;
  }
  for (const auto* more : {&nn_shape_functions(), &layer_shape_functions()}) {
    for (const ShapeFunction& rule : *more) {
      if (!std::strcmp(rule.name, name)) found = &rule;
    }
  }
  if (!found)
    fail(RB_E_INTERNAL, "%s: %s: no shape function '%s'", op.file.c_str(), op.name.c_str(), name);
  __atomic_store_n(&const_cast<Op&>(op).rule, found, __ATOMIC_RELEASE);
  found->fn(op, args, nargs, out);
}

void check_reducible(const Op& op, const RbTensor& x, const bool* gone) {
  if (x.numel != 0) return;
  static const char* const without_identity[] = {"amax",    "amin",   "max.dim",
                                                 "min.dim", "argmax", "argmin"};
  for (const char* name : without_identity) {
    if (op.name != name) continue;
    for (int d = 0; d < x.ndim; ++d) {
      if (gone[d] && x.shape[d] == 0) {
        fail(RB_E_ARG,
             "%s: dimension %d of shape %s is empty, and a maximum or minimum over nothing does "
             "not exist",
             op.name.c_str(), d, text(x).c_str());
      }
    }
  }
}

void check_arguments(const Op& op, const RbValue* args, int nargs) {
  if (op.info.kind != RB_KIND_INDEXING) return;
  const int at = param_index(op, "index");
  if (at < 0 || at >= nargs || args[at].tag != RB_TENSOR) return;
  const RbTensor &x = *args[0].v.t, &idx = *args[at].v.t;
  need_index(op, idx, at);
  if (op.base == "index_add") {
    if (idx.ndim > 1)
      fail(RB_E_ARG, "%s: 'index' must have 1 dimension, got shape %s", op.name.c_str(),
           text(idx).c_str());
    const RbTensor& src = *args[3].v.t;
    const int64_t dim = args[1].v.i;
    bool fits = src.ndim == x.ndim && (x.ndim > 0 || idx.numel == 1);
    for (int d = 0; fits && d < x.ndim; ++d)
      fits = src.shape[d] == (d == dim ? idx.numel : x.shape[d]);
    if (!fits) {
      fail(RB_E_ARG,
           "%s: 'source' has shape %s, expected that of the input %s with size %lld in dimension "
           "%lld",
           op.name.c_str(), text(src).c_str(), text(x).c_str(), (long long)idx.numel,
           (long long)dim);
    }
    return;
  }
  if (std::max(idx.ndim, 1) != std::max(x.ndim, 1)) {
    fail(RB_E_ARG,
         "%s: 'index' and the input must have as many dimensions: index is %s, input is %s",
         op.name.c_str(), text(idx).c_str(), text(x).c_str());
  }
  const RbTensor* src = at + 1 < nargs ? tensor(args[at + 1]) : nullptr;
  for (int d = 0; d < std::min(idx.ndim, x.ndim); ++d) {
    const bool along = d == args[1].v.i;
    if ((!along && idx.shape[d] > x.shape[d]) ||
        (src && (src->ndim != idx.ndim || idx.shape[d] > src->shape[d]))) {
      fail(RB_E_ARG, "%s: 'index' of shape %s reaches beyond %s of shape %s in dimension %d",
           op.name.c_str(), text(idx).c_str(),
           src && idx.shape[d] <= x.shape[d] ? op.params[at + 1].name : op.params[0].name,
           src && idx.shape[d] <= x.shape[d] ? text(*src).c_str() : text(x).c_str(), d);
    }
  }
}

void check_accepted(const Op& op, const RbValue*, int, int dtype) {
  if (op.accepts.empty()) return;
  const bool ok = op.accepts == "int"     ? is_integral(dtype)
                  : op.accepts == "float" ? is_floating(dtype)
                                          : !is_complex(dtype);
  if (ok) return;
  fail(RB_E_TYPE, "%s: expected %s dtypes, got %s", op.name.c_str(),
       op.accepts == "int"     ? "integer or bool"
       : op.accepts == "float" ? "floating"
                               : "real",
       kDTypes[dtype].name);
}

}  // namespace rabbet

#include "rules/shape_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formula/formula_value.h"
#include "rules/shape_helpers.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

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

void need_index(const Op& op, const RbTensor& t, int arg) {
  if (t.dtype_id == RB_I64 || t.dtype_id == RB_I32) return;
  fail(RB_E_TYPE, "%s: '%s' must have dtype int64 or int32, got %s", op.name.c_str(),
       op.params[arg].name, kDTypes[t.dtype_id].name);
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
    need_index(op, *t, 1);
    broadcast_into(op, t->ndim, t->shape, joined, RB_E_INDEX);
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

// ---- creation

double number(const RbValue& v) { return v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i); }

bool whole(const RbValue& v) { return v.tag == RB_INT || v.tag == RB_BOOL; }

void arange(const Op& op, const RbValue* args, int, Inferred& out) {
  const bool only_end = args[1].tag == RB_NONE;
  RbValue first = only_end ? value_int(0) : args[0], last = args[only_end ? 0 : 1],
          by_value = args[2];
  for (RbValue* v : {&first, &last, &by_value}) {
    if (v->tag == RB_COMPLEX)
      fail(RB_E_TYPE, "%s: start, end and step must be real numbers", op.name.c_str());
  }
  if ((number(last) - number(first)) * number(by_value) < 0) {
    fail(RB_E_ARG,
         "%s: upper bound and lower bound inconsistent with step sign: start %g, end %g, step %g",
         op.name.c_str(), number(first), number(last), number(by_value));
  }
  for (RbValue* v : {&first, &last, &by_value}) {
    // Numbers of an int64 range lose their fractions first, as in PyTorch; of narrower integers
    // only the elements do.
    if (args[3].tag == RB_DTYPE && args[3].v.i == RB_I64 && !whole(*v) &&
        std::fabs(number(*v)) < 9e18)
      *v = value_int(static_cast<int64_t>(number(*v)));
  }
  const double start = number(first), end = number(last), step = number(by_value);
  int64_t span = 0;
  if (whole(first) && whole(last) && whole(by_value) && by_value.v.i &&
      !__builtin_sub_overflow(last.v.i, first.v.i, &span) && span != INT64_MIN) {
    // Integers exactly: doubles cannot tell neighbours beyond 2 ** 53 apart.
    const int64_t by = by_value.v.i;
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

// ---- writes into a part of a tensor

void set_like_input(const RbValue* args, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  out.rets[0].ndim = x.ndim;
  std::copy(x.shape, x.shape + x.ndim, out.rets[0].shape);
}

// The source has the shape of the view that it is written to.
void check_part(const Op& op, const char* view, const RbValue* args, int nargs,
                const RbTensor& src) {
  const TensorRef part(make_view(*find_op(view), args, nargs));
  if (part->ndim == src.ndim && std::equal(src.shape, src.shape + src.ndim, part->shape)) return;
  fail(RB_E_ARG, "%s: expected 'src' of shape %s, got %s", op.name.c_str(),
       shape_text(part->ndim, part->shape).c_str(), shape_text(src.ndim, src.shape).c_str());
}

void slice_scatter(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  if (x.ndim == 0) fail(RB_E_INDEX, "%s: expected at least 1 dimension", op.name.c_str());
  if (args[5].v.i <= 0)
    fail(RB_E_ARG, "%s: 'step' must be positive, got %lld", op.name.c_str(),
         (long long)args[5].v.i);
  const RbValue slice[5] = {args[0], args[2], args[3], args[4], args[5]};
  check_part(op, "slice", slice, 5, *args[1].v.t);
  set_like_input(args, out);
}

void diagonal_scatter(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  if (x.ndim < 2 || args[3].v.i == args[4].v.i)
    fail(RB_E_ARG, "%s: expected two different dimensions of %d, got %lld and %lld",
         op.name.c_str(), x.ndim, (long long)args[3].v.i, (long long)args[4].v.i);
  const RbValue diagonal[4] = {args[0], args[2], args[3], args[4]};
  check_part(op, "diagonal", diagonal, 4, *args[1].v.t);
  set_like_input(args, out);
}

void index_put(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  index(op, args, nargs, out);
  const TensorSpec& places = out.rets[0];
  if (args[2].tag == RB_TENSOR) {
    // Leading dimensions of size 1 may be more than the places have.
    const RbTensor& values = *args[2].v.t;
    const int extra = values.ndim - places.ndim;
    for (int k = 0; k < values.ndim; ++k) {
      const int d = k - extra;
      if (values.shape[k] == 1 || (d >= 0 && values.shape[k] == places.shape[d])) continue;
      fail(RB_E_ARG, "%s: 'values' of shape %s do not broadcast to the indexed places of shape %s",
           op.name.c_str(), shape_text(values.ndim, values.shape).c_str(),
           shape_text(places.ndim, places.shape).c_str());
    }
  }
  set_like_input(args, out);
}

// How many elements of a matrix lie on and below a diagonal.
int64_t count_tril(int64_t rows, int64_t columns, int64_t offset) {
  offset = std::clamp(offset, -rows - 1, columns);
  // Row r has min(columns, r + offset + 1) of them: first rows with none, then a triangle, then
  // whole rows.
  const int64_t first = std::clamp<int64_t>(-offset, 0, rows);
  const int64_t whole = std::clamp<int64_t>(columns - offset - 1, first, rows);
  const int64_t triangle = whole - first;
  const int64_t in_triangle = triangle * (first + offset + 1) + triangle * (triangle - 1) / 2;
  return in_triangle + (rows - whole) * columns;
}

void tril_indices(const Op&, const RbValue* args, int, Inferred& out) {
  set(out.rets[0], {2, count_tril(args[0].v.i, args[1].v.i, args[2].v.i)});
}

void triu_indices(const Op&, const RbValue* args, int, Inferred& out) {
  const int64_t rows = args[0].v.i, columns = args[1].v.i;
  const int64_t below = std::max(args[2].v.i, -rows) - 1;
  set(out.rets[0], {2, rows * columns - count_tril(rows, columns, below)});
}

const ShapeFunction kRules[] = {{"arange", arange},
                                {"cat", cat},
                                {"diagonal_scatter", diagonal_scatter},
                                {"index", index},
                                {"index_put", index_put},
                                {"pad", pad},
                                {"slice_scatter", slice_scatter},
                                {"tril_indices", tril_indices},
                                {"triu_indices", triu_indices}};

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
  for (const ShapeFunction& rule : layer_shape_functions()) {
    if (!std::strcmp(rule.name, name)) found = &rule;
  }
  if (!found) fail_formula(op.name, std::string("no shape function '") + name + "'");
  __atomic_store_n(&const_cast<Op&>(op).rule, found, __ATOMIC_RELEASE);
  found->fn(op, args, nargs, out);
}

}  // namespace rabbet

// Decompositions that do not fit a formula, `decomp function NAME`.
#include "call/decomp_functions.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "call/decomp_recurrent.h"
#include "call/dispatch.h"
#include "formula/formula.h"
#include "rules/infer.h"
#include "rules/rule_functions.h"
#include "rules/shape_helpers.h"
#include "rules/shape_rules.h"
#include "thread/error.h"

namespace rabbet {

namespace {

TensorRef view(RbTensor* t, const int64_t* shape, int ndim) {
  static const Op* const op = find_op("view");
  const RbValue args[2] = {value_tensor(t), value_ints(shape, ndim)};
  return call1(op, args, 2);
}

// A row-major copy, recorded like any other operator.
TensorRef row_major_clone(RbTensor* t) {
  static const Op* const contiguous_clone = find_op("contiguous_clone");
  const RbValue arg = value_tensor(t);
  return call1(contiguous_clone, &arg, 1);
}

void reshape(const Op& op, const RbValue* args, int, RbValue* rets, int) {
  RbTensor* x = args[0].v.t;
  const int ndim = static_cast<int>(args[1].len);
  if (ndim > kMaxDims) fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  int64_t shape[kMaxDims], strides[kMaxDims];
  std::copy(args[1].v.is, args[1].v.is + ndim, shape);
  resolve_size("reshape", x->numel, ndim, shape);
  TensorRef source =
      view_strides(*x, ndim, shape, strides) ? TensorRef::share(x) : row_major_clone(x);
  rets[0] = value_tensor(view(source.get(), shape, ndim).release_ownership());
}

void contiguous(const Op&, const RbValue* args, int, RbValue* rets, int) {
  RbTensor* x = args[0].v.t;
  TensorRef out = x->flags & RB_T_CONTIGUOUS ? TensorRef::share(x) : row_major_clone(x);
  rets[0] = value_tensor(out.release_ownership());
}

// expand to (repeats, size) pairs of dimensions, then join each pair
void repeat(const Op& op, const RbValue* args, int, RbValue* rets, int) {
  static const Op* const expand = find_op("expand");
  RbTensor* x = args[0].v.t;
  const int n = static_cast<int>(args[1].len);
  if (n < x->ndim || 2 * n > kMaxDims) {
    fail(RB_E_ARG, "%s: expected at least %d repeats (one per dimension) and at most %d, got %d",
         op.name.c_str(), x->ndim, kMaxDims / 2, n);
  }
  int64_t apart[kMaxDims], pairs[kMaxDims], joined[kMaxDims];
  for (int i = 0; i < n; ++i) {
    const int64_t times = args[1].v.is[i], size = i < n - x->ndim ? 1 : x->shape[i - (n - x->ndim)];
    if (times < 0)
      fail(RB_E_ARG, "%s: repeats must not be negative, got %lld", op.name.c_str(),
           (long long)times);
    apart[2 * i] = 1;
    apart[2 * i + 1] = pairs[2 * i + 1] = size;
    pairs[2 * i] = times;
    joined[i] = checked_product(op.name, times, size);
  }
  static const Op* const reshape_op = find_op("reshape");
  const RbValue first[2] = {value_tensor(x), value_ints(apart, 2 * n)};
  TensorRef spread = call1(reshape_op, first, 2);
  const RbValue second[2] = {value_tensor(spread.get()), value_ints(pairs, 2 * n)};
  TensorRef tiled = call1(expand, second, 2);
  const TensorRef copy = row_major_clone(tiled.get());  // also where a view would do
  rets[0] = value_tensor(view(copy.get(), joined, n).release_ownership());
}

// unsqueeze each tensor, then join them; what does not fit is told by the shapes that came
void stack(const Op& op, const RbValue* args, int, RbValue* rets, int) {
  static const Op* const unsqueeze = find_op("unsqueeze");
  static const Op* const cat = find_op("cat");
  const uint32_t n = args[0].len;
  if (n == 0) fail(RB_E_ARG, "%s expects a non-empty list of tensors", op.name.c_str());
  const RbTensor& first = *args[0].v.ts[0];
  for (uint32_t i = 1; i < n; ++i) {
    const RbTensor& t = *args[0].v.ts[i];
    if (t.ndim == first.ndim && std::equal(t.shape, t.shape + t.ndim, first.shape)) continue;
    fail(RB_E_ARG,
         "%s expects each tensor to be equal size, but got %s at entry 0 and %s at entry %u",
         op.name.c_str(), text(first).c_str(), text(t).c_str(), i);
  }
  std::vector<TensorRef> rows;
  std::vector<RbTensor*> parts;
  for (uint32_t i = 0; i < n; ++i) {
    const RbValue with_dim[2] = {value_tensor(args[0].v.ts[i]), args[1]};
    rows.push_back(call1(unsqueeze, with_dim, 2));
    parts.push_back(rows.back().get());
  }
  const RbValue joined[2] = {value_tensors(parts.data(), n), args[1]};
  rets[0] = value_tensor(call1(cat, joined, 2).release_ownership());
}

// The tensor in whose memory `t` lies, as far as wrappers lie there like what they wrap; null where
// one does not.
const RbTensor* innermost(const RbTensor* t) {
  while (t->flags & RB_T_WRAPPER) {
    const RbTensor* inner = static_cast<const RbWrap*>(t->ext)->inner;
    if (inner->ndim != t->ndim || !std::equal(t->shape, t->shape + t->ndim, inner->shape) ||
        !std::equal(t->strides, t->strides + t->ndim, inner->strides))
      return nullptr;
    t = inner;
  }
  return t->flags & RB_T_COMPOSITE ? nullptr : t;
}

// What the derivative asks about the input becomes part of the call.
void as_strided(const Op& op, const RbValue* args, int, RbValue* rets, int) {
  static const Op* const strided_view = find_op("strided_view");
  RbTensor* x = args[0].v.t;
  int64_t offset = 0;  // from the tensor's first element on
  if (args[3].tag != RB_NONE) {
    if (args[3].v.i < 0)
      fail(RB_E_ARG, "%s: storage_offset must not be negative, got %lld", op.name.c_str(),
           (long long)args[3].v.i);
    // A composite tensor, such as an example inside vmap, begins at offset 0.
    const RbTensor* inner = innermost(x);
    offset = args[3].v.i - (inner ? offset_in_storage(*inner) : 0);
  }
  const RbValue all[6] = {args[0],
                          args[1],
                          args[2],
                          value_int(offset),
                          value_ints(x->shape, x->ndim),
                          value_ints(x->strides, x->ndim)};
  rets[0] = value_tensor(call1(strided_view, all, 6).release_ownership());
}

struct Entry {
  const char* name;
  DecompFn fn;
};
const Entry kFunctions[] = {{"as_strided", as_strided},
                            {"reshape", reshape},
                            {"contiguous", contiguous},
                            {"repeat", repeat},
                            {"stack", stack},
                            {"recurrent_layer", recurrent_layer_decomp},
                            {"recurrent_layer_backward", recurrent_layer_backward_decomp}};

std::atomic<DecompLoader> loader{nullptr};

}  // namespace

void attach_decomp(Op& op) {
  const char* name = decomp_function(op);
  for (const Entry& entry : kFunctions) {
    if (name && !std::strcmp(entry.name, name)) op.core_decomp = entry.fn;
  }
}

void check_decomp_functions(const std::vector<std::unique_ptr<Op>>& ops) {
  for (const auto& op : ops) {
    attach_decomp(*op);
    if (is_loaded_decomp(*op))
      fail(RB_E_PLUGIN, "%s: %s: no decomposition function '%s'", op->file.c_str(),
           op->name.c_str(), decomp_function(*op));
  }
}

void set_decomp_loader(DecompLoader load) { loader.store(load); }

void run_decomp_function(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  if (op.core_decomp) return op.core_decomp(op, args, nargs, rets, nrets);
  const char* name = decomp_function(op);
  const DecompLoader load = loader.load();
  if (!load)
    fail(RB_E_NOTIMPL, "%s: its decomposition is a Python function, and Python does not run",
         op.name.c_str());
  check(load(op.name.c_str(), op.family.c_str(), name));
  if (!op.rules[kDecompRule].fn)
    fail(RB_E_INTERNAL, "%s: no decomposition function '%s'", op.name.c_str(), name);
  run_decomp_rule(op, args, nargs, rets, nrets);
}

}  // namespace rabbet

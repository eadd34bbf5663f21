// Operators whose arguments broadcast: elementwise ones, and what has a signature of its own for
// the last dimensions.
#include "inner.h"

namespace batch {

namespace {

// ---- promotion: an example of a batch of numbers takes part in it as a 0-d tensor

int category(int dtype) {
  switch (rb::dtype_kind(dtype)) {
    case RB_CLASS_BOOL:
      return 0;
    case RB_CLASS_INT:
    case RB_CLASS_UINT:
      return 1;
    case RB_CLASS_FLOAT:
      return 2;
    default:
      return 3;
  }
}

bool takes_part(const Call& c, int i) {
  return c.args[i].tag == RB_TENSOR && (rb::arg_info(c.info, i).flags & RB_ARG_COMPUTED) != 0;
}

// What two dtypes of one category promote to.
int joined(int a, int b) {
  if (a == b) return a;
  const RbDTypeInfo x = rb::dtype_info(a), y = rb::dtype_info(b);
  if (x.kind == y.kind && x.bits != y.bits) return x.bits > y.bits ? a : b;
  if (x.kind == y.kind) return RB_F32;  // float16 and bfloat16
  const int bits = x.kind == RB_CLASS_INT ? x.bits : y.bits,
            unsigned_bits = x.kind == RB_CLASS_UINT ? x.bits : y.bits;
  if (bits > unsigned_bits) return x.kind == RB_CLASS_INT ? a : b;
  return unsigned_bits == 8 ? RB_I16 : unsigned_bits == 16 ? RB_I32 : RB_I64;
}

// The dtype that a 0-d tensor of `dtype` is used in beside the arguments with dimensions.
int used_dtype(const Call& c, int dtype) {
  int best = -1;
  for (int i = 0; i < c.nargs; ++i) {
    if (!takes_part(c, i) || c.args[i].v.t->ndim == 0) continue;
    const int other = c.args[i].v.t->dtype_id;
    if (best < 0 || category(other) > category(best)) best = other;
    if (category(other) == category(best)) best = joined(best, other);
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
    const RbArgInfo& arg = rb::arg_info(c.info, i);
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
      if (!lies_ready(t, loops.ndim + rb::arg_info(c.info, i).core_ndim)) return false;
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
    const int ndim = loops + rb::arg_info(c.info, i).core_ndim;
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

}  // namespace

bool one_floating_dtype(const Call& c) {
  int dtype = -1;
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag != RB_TENSOR) continue;
    const int own = c.args[i].v.t->dtype_id;
    if (category(own) != 2 || (dtype >= 0 && own != dtype)) return false;
    dtype = own;
  }
  return dtype >= 0;
}

void aligned(Call& c) { align(c, false); }
void aligned_full(Call& c) { align(c, true); }

}  // namespace batch

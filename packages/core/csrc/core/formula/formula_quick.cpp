#include "formula/formula_quick.h"

#include <algorithm>

#include "call/check_call.h"
#include "call/dispatch.h"
#include "formula/formula_value.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

struct Known {
  const Op *add, *sub, *mul, *div, *neg, *pow, *eq, *ne, *lt, *le, *gt, *ge, *conj, *real, *where,
      *mT;
};
const Known& known() {
  static const Known k = {find_op("add"),  find_op("sub"),  find_op("mul"),   find_op("div"),
                          find_op("neg"),  find_op("pow"),  find_op("eq"),    find_op("ne"),
                          find_op("lt"),   find_op("le"),   find_op("gt"),    find_op("ge"),
                          find_op("conj"), find_op("real"), find_op("where"), find_op("mT")};
  return k;
}

const Op* tensor_operator(Operator op) {
  const Known& k = known();
  switch (op) {
    case Operator::kAdd:
      return k.add;
    case Operator::kSub:
      return k.sub;
    case Operator::kMul:
      return k.mul;
    case Operator::kDiv:
      return k.div;
    case Operator::kPow:
      return k.pow;
    case Operator::kEq:
      return k.eq;
    case Operator::kNe:
      return k.ne;
    case Operator::kLt:
      return k.lt;
    case Operator::kLe:
      return k.le;
    case Operator::kGt:
      return k.gt;
    case Operator::kGe:
      return k.ge;
    default:
      return nullptr;
  }
}

bool is_real_number(const RbValue& v) { return v.tag >= RB_BOOL && v.tag <= RB_FLOAT; }
double real_value(const RbValue& v) {
  return v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i);
}

// Host data as a condition; false: it is none that is known here.
bool truth(const RbValue& v, bool* out) {
  if (v.tag == RB_NONE) {
    *out = false;
  } else if (v.tag == RB_BOOL || v.tag == RB_INT) {
    *out = v.v.i != 0;
  } else if (v.tag == RB_FLOAT) {
    *out = v.v.f != 0;
  } else if (v.tag == RB_STR || v.tag == RB_INTS) {
    *out = v.len != 0;
  } else {
    return false;
  }
  return true;
}

RbValue zero() {
  RbValue v = value_none();
  v.tag = RB_ZERO;
  return v;
}

}  // namespace

QuickFormula::~QuickFormula() {
  for (int i = 0; i < nowned_; ++i) release(owned_[i]);
}

bool QuickFormula::vjp(int arg, RbValue* result) {
  uint8_t* refused = &f_.refused[arg];
  if (__atomic_load_n(refused, __ATOMIC_RELAXED)) return false;
  nints_ = 0;
  RbValue v;
  if (!eval(f_.vjps[arg], &v)) {
    if (never_) __atomic_store_n(refused, uint8_t{1}, __ATOMIC_RELAXED);
    return false;
  }
  if (v.tag == RB_TENSOR) {
    *result = value_tensor(v.v.t);
    for (int i = nowned_ - 1; i >= 0; --i) {
      if (owned_[i] != v.v.t) continue;
      owned_[i] = owned_[--nowned_];  // handed over: a let that names it lives as long as `result`
      return true;
    }
    retain(v.v.t);
    return true;
  }
  if (v.tag != RB_ZERO && (!is_real_number(v) || real_value(v) != 0)) return false;
  *result = zero();
  return true;
}

bool QuickFormula::keep(RbTensor* owned, RbValue* out) {
  if (nowned_ == kOwned) {
    release(owned);
    return never();
  }
  owned_[nowned_++] = owned;
  *out = value_tensor(owned);
  return true;
}

bool QuickFormula::eval(int at, RbValue* out) {
  const Node& n = f_.nodes[at];
  switch (n.kind) {
    case NodeKind::kNumber:
      *out = n.value;
      break;
    case NodeKind::kString:
      *out = value_none();
      out->tag = RB_STR;
      out->len = static_cast<uint32_t>(n.text.size());
      out->v.s = n.text.c_str();
      break;
    case NodeKind::kArgument:
      *out = n.index < nargs_ ? args_[n.index] : op_.params[n.index].default_value;
      break;
    case NodeKind::kResult:
      if (n.index >= nouts_) return never();
      *out = outs_[n.index];
      break;
    case NodeKind::kGradient:
      *out = grads_[n.index];
      return out->tag != RB_TENSORS;
    case NodeKind::kLet:
      return let(n.index, out);
    case NodeKind::kDType:
      *out = value_int(n.index);
      out->tag = RB_DTYPE;
      break;
    case NodeKind::kUnary:
      return unary(n, out);
    case NodeKind::kBinary:
      return binary(n, out);
    case NodeKind::kCond: {
      RbValue condition;
      bool yes;
      return eval(n.kids[1], &condition) && truth(condition, &yes) &&
             eval(n.kids[yes ? 0 : 2], out);
    }
    case NodeKind::kCall:
      return call_op(n, out);
    case NodeKind::kList:
      return list(n, out);
    case NodeKind::kIndex:
      return index(n, out);
    case NodeKind::kAttribute:
      return attribute(n, out);
    case NodeKind::kZero:
      *out = zero();
      return true;
    default:  // kLocal, kHost, kComprehension, kSlice
      return never();
  }
  return out->tag != RB_TENSORS && out->tag != RB_COMPLEX && out->tag != RB_ZERO;
}

bool QuickFormula::let(int index, RbValue* out) {
  if (index >= kLets) return never();
  if (!(lets_done_ >> index & 1)) {
    if (!eval(f_.lets[index].root, &lets_[index])) return false;
    if (lets_[index].tag != RB_INTS) lets_done_ |= 1u << index;  // lists live for one formula
  }
  *out = lets_[index];
  return true;
}

bool QuickFormula::unary(const Node& n, RbValue* out) {
  RbValue x;
  if (!eval(n.kids[0], &x)) return false;
  if (n.op == Operator::kNot) {
    bool yes;
    if (!truth(x, &yes)) return false;
    *out = value_bool(!yes);
    return true;
  }
  if (x.tag == RB_ZERO) {
    *out = x;
    return true;
  }
  if (x.tag == RB_FLOAT) {
    *out = value_float(-x.v.f);
    return true;
  }
  if (is_real_number(x)) {
    *out = value_int(-x.v.i);
    return true;
  }
  return run(known().neg, &x, 1, out);
}

bool QuickFormula::binary(const Node& n, RbValue* out) {
  RbValue values[2];
  if (n.op == Operator::kAnd || n.op == Operator::kOr) {
    bool yes;
    if (!eval(n.kids[0], out) || !truth(*out, &yes)) return false;
    return yes == (n.op == Operator::kOr) || eval(n.kids[1], out);
  }
  if (!eval(n.kids[0], &values[0]) || !eval(n.kids[1], &values[1])) return false;
  const RbValue &x = values[0], &y = values[1];
  if (x.tag == RB_ZERO || y.tag == RB_ZERO) return with_zero(n.op, values, out);
  if (n.op == Operator::kIs || n.op == Operator::kIsNot) {
    *out = value_bool((x.tag == y.tag) == (n.op == Operator::kIs));
    return true;
  }
  const bool tensors = x.tag == RB_TENSOR || y.tag == RB_TENSOR;
  if (!tensors) {
    if (!is_real_number(x) || !is_real_number(y)) return false;
    *out = host_binary(n.op, Val::borrow(x), Val::borrow(y), op_.name).v;
    return is_real_number(*out);
  }
  if ((x.tag != RB_TENSOR && !is_real_number(x)) || (y.tag != RB_TENSOR && !is_real_number(y)))
    return false;
  const Op* op = tensor_operator(n.op);
  if (!op) return never();
  if (x.tag != RB_TENSOR && (n.op == Operator::kAdd || n.op == Operator::kMul))
    std::swap(values[0], values[1]);
  return run(op, values, 2, out);
}

// One of the two is a gradient that is known to be zero.
bool QuickFormula::with_zero(Operator op, RbValue* values, RbValue* out) {
  const bool x_zero = values[0].tag == RB_ZERO;
  if (op == Operator::kSub && x_zero && values[1].tag == RB_TENSOR)
    return run(known().neg, &values[1], 1, out);
  if (op == Operator::kAdd) {
    *out = values[x_zero ? 1 : 0];
  } else if ((op == Operator::kSub && !x_zero) || (op == Operator::kDiv && x_zero)) {
    *out = values[0];
  } else if (op == Operator::kMul) {
    *out = zero();
  } else {
    return false;
  }
  return true;
}

bool QuickFormula::list(const Node& n, RbValue* out) {
  const int count = static_cast<int>(n.kids.size());
  if (nints_ + count > kInts) return never();
  int64_t* to = ints_ + nints_;
  nints_ += count;
  for (int i = 0; i < count; ++i) {
    RbValue item;
    if (!eval(n.kids[i], &item)) return false;
    if (item.tag != RB_INT) return false;
    to[i] = item.v.i;
  }
  *out = value_none();
  out->tag = RB_INTS;
  out->len = static_cast<uint32_t>(count);
  out->v.is = to;
  return true;
}

bool QuickFormula::index(const Node& n, RbValue* out) {
  RbValue items, at;
  if (!eval(n.kids[0], &items) || !eval(n.kids[1], &at)) return false;
  if (items.tag != RB_INTS || at.tag != RB_INT) return false;
  const int64_t i = at.v.i < 0 ? at.v.i + items.len : at.v.i;
  if (i < 0 || i >= items.len) return false;
  *out = value_int(items.v.is[i]);
  return true;
}

bool QuickFormula::attribute(const Node& n, RbValue* out) {
  RbValue x;
  if (!eval(n.kids[0], &x)) return false;
  const Described d = describe(Val::borrow(x));
  if (!d.known) return false;
  switch (n.index) {
    case 0:
      *out = value_none();
      out->tag = RB_INTS;
      out->len = static_cast<uint32_t>(d.ndim);
      out->v.is = d.shape;
      return true;
    case 1:
      *out = value_int(d.ndim);
      return true;
    case 2:
      *out = value_int(d.dtype);
      out->tag = RB_DTYPE;
      return true;
    default:
      *out = value_none();
      out->tag = RB_DEVICE;
      out->v.dev.backend = d.backend;
      out->v.dev.index = d.device;
      return true;
  }
}

// ---- calls

// The value as this parameter takes it: one int as a list, an int as a float.
bool QuickFormula::as_parameter(const Param& p, RbValue* v) {
  if (v->tag == RB_META || v->tag == RB_ZERO) return false;
  const bool wants_list = p.type == RB_A_INTS || p.type == RB_A_DIMS || p.type == RB_A_SIZE;
  if (wants_list && v->tag == RB_INT) {
    const int count = p.fixed_len ? p.fixed_len : 1;
    if (nints_ + count > kInts) return never();
    std::fill(ints_ + nints_, ints_ + nints_ + count, v->v.i);
    v->tag = RB_INTS;
    v->len = static_cast<uint32_t>(count);
    v->v.is = ints_ + nints_;
    nints_ += count;
  } else if (p.type == RB_A_FLOAT && (v->tag == RB_INT || v->tag == RB_BOOL)) {
    *v = value_float(static_cast<double>(v->v.i));
  }
  return true;
}

namespace {
// What a formula is given may be of a type that it was not written for.
RbTensor* result_of(const Op* op, const RbValue* values, int count) {
  RbValue ret = value_none();
  check(check_call(op, values, count, &ret, 1, 0));
  check(call(op, values, count, &ret, 1));
  return ret.v.t;
}
}  // namespace

bool QuickFormula::run(const Op* op, RbValue* values, int given, RbValue* out) {
  const int n = static_cast<int>(op->params.size());
  RbValue all[32];
  for (int i = 0; i < given; ++i) {
    if (values[i].tag == RB_META || values[i].tag == RB_ZERO) return false;
    all[i] = values[i];
  }
  for (int i = given; i < n; ++i) all[i] = op->params[i].default_value;
  return keep(result_of(op, all, n), out);
}

// The last two dimensions swapped, without dispatch where no layer would see the call.
bool QuickFormula::transposed(RbTensor* t, RbValue* out) {
  RbValue x = value_tensor(t);
  const ThreadState& state = thread_state();
  constexpr uint64_t kBackends = (1ull << kBackendBits) - 1;
  const uint64_t layers = (t->keys[0] | state.include) & ~state.exclude & ~kBackends;
  if (layers || (t->flags & RB_T_VIEW)) return run(known().mT, &x, 1, out);
  Tensor* view = make_view(*known().mT, &x, 1);
  set_view_record(view, known().mT, &x, 1);
  return keep(view, out);
}

bool QuickFormula::call_op(const Node& n, RbValue* out) {
  const Op* callee = n.callee;
  const Known& k = known();
  if (callee->info.nrets != 1 || callee->returns_list) return never();
  const int count = static_cast<int>(n.kids.size());
  RbValue values[32];
  uint32_t given = 0;
  bool some_zero = false;
  for (int i = 0; i < count; ++i) {
    if (n.kids[i] < 0) {
      values[i] = callee->params[i].default_value;
      continue;
    }
    if (!eval(n.kids[i], &values[i])) return false;
    given |= 1u << i;
    if (values[i].tag == RB_ZERO) {
      if (callee->info.kind != RB_KIND_ELEMENTWISE || callee == k.conj || callee == k.real) {
        *out = values[i];
        return true;
      }
      some_zero = true;
      values[i] = value_float(0);
    }
    if (!as_parameter(callee->params[i], &values[i])) return false;
    if (i > 0) continue;
    if (callee == k.conj || callee == k.real) {  // free on what is real already
      const RbValue& x = values[0];
      if (is_real_number(x) || (x.tag == RB_TENSOR && !is_complex(x.v.t->dtype_id))) {
        *out = x;
        return true;
      }
    } else if (callee == k.mT && values[0].tag == RB_TENSOR) {
      return transposed(values[0].v.t, out);
    } else if (callee == k.where && values[0].tag != RB_TENSOR) {
      return false;
    }
  }
  if (some_zero && vanishes(*callee, values, given)) {
    *out = zero();
    return true;
  }
  // A function of numbers alone would be computed on the default device.
  if (callee->info.kind == RB_KIND_ELEMENTWISE &&
      std::none_of(values, values + count, [](const RbValue& v) { return v.tag == RB_TENSOR; }))
    return false;
  return keep(result_of(callee, values, count), out);
}

}  // namespace rabbet

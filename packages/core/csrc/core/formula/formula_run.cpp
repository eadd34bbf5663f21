// Evaluation of formulas: host data by Python's rules, tensors through the dispatcher.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "call/dispatch.h"
#include "device/backends.h"
#include "formula/formula.h"
#include "formula/formula_kernel.h"
#include "formula/formula_nodes.h"
#include "formula/formula_quick.h"
#include "formula/formula_value.h"
#include "rules/rule_functions.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

namespace {

// ---- operators that formulas write as symbols

struct Builtins {
  const Op *add, *sub, *mul, *div, *neg, *pow, *eq, *ne, *lt, *le, *gt, *ge, *bit_and, *bit_or,
      *conj, *real, *imag;
  const Op *zeros, *ones, *empty, *where;
};
const Builtins& builtins() {
  static const Builtins b = {find_op("add"),         find_op("sub"),        find_op("mul"),
                             find_op("div"),         find_op("neg"),        find_op("pow"),
                             find_op("eq"),          find_op("ne"),         find_op("lt"),
                             find_op("le"),          find_op("gt"),         find_op("ge"),
                             find_op("bitwise_and"), find_op("bitwise_or"), find_op("conj"),
                             find_op("real"),        find_op("imag"),       find_op("zeros"),
                             find_op("ones"),        find_op("empty"),      find_op("where")};
  return b;
}

class Runner {
 public:
  Runner(const Op& op, const Formula& f, const RbValue* args, int nargs)
      : op_(op),
        f_(f),
        args_(args),
        nargs_(nargs),
        lets_(f.lets.size()),
        let_done_(f.lets.size()),
        locals_(f.locals) {}

  void set_results(const RbValue* outs, int n) {
    outs_ = outs;
    nouts_ = n;
  }
  void set_gradients(const RbValue* grads) { grads_ = grads; }
  void set_tangents(const RbValue* tangents) { tangents_ = tangents; }

  Val eval(int at) {
    const Node& n = f_.nodes[at];
    switch (n.kind) {
      case NodeKind::kNumber:
        return Val::borrow(n.value);
      case NodeKind::kString: {
        RbValue v = value_none();
        v.tag = RB_STR;
        v.len = static_cast<uint32_t>(n.text.size());
        v.v.s = n.text.c_str();
        return Val::borrow(v);
      }
      case NodeKind::kArgument:
        return argument(n.index);
      case NodeKind::kResult:
        if (!outs_ || n.index >= nouts_) fail("the result is not known here");
        return Val::from(outs_[n.index]);
      case NodeKind::kGradient:
        if (!grads_) fail("a gradient is not known here");
        return Val::from(grads_[n.index]);
      case NodeKind::kTangent:
        if (!tangents_) fail("a tangent is not known here");
        return Val::from(tangents_[n.index]);
      case NodeKind::kLet:
        if (!let_done_[n.index]) {
          lets_[n.index] = eval(f_.lets[n.index].root);
          let_done_[n.index] = true;
        }
        return lets_[n.index];
      case NodeKind::kLocal:
        return locals_[n.index];
      case NodeKind::kDType:
        return Val::dtype(n.index);
      case NodeKind::kZero:
        return Val::zero();
      case NodeKind::kUnary:
        return unary(n);
      case NodeKind::kBinary:
        return binary(n);
      case NodeKind::kCond:
        return eval(truth(eval(n.kids[1])) ? n.kids[0] : n.kids[2]);
      case NodeKind::kCall:
        return call_op(n);
      case NodeKind::kHost: {
        std::vector<Val> values;
        for (int kid : n.kids) values.push_back(eval(kid));
        return run_host_function(n.text, values, where());
      }
      case NodeKind::kList: {
        Val list = Val::list();
        for (int kid : n.kids) list.items->push_back(eval(kid));
        return list;
      }
      case NodeKind::kComprehension:
        return comprehension(n);
      case NodeKind::kIndex:
        return index(n);
      case NodeKind::kSlice:
        return slice(n);
      case NodeKind::kAttribute:
        return attribute(n);
    }
    fail("a defect of the formula parser");
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    rabbet::fail(RB_E_INTERNAL, "%s: %s: %s", op_.file.c_str(), op_.name.c_str(), message.c_str());
  }
  std::string where() const { return op_.name; }

  Val argument(int i) {
    if (i >= nargs_) return Val::from(op_.params[i].default_value);
    return Val::from(args_[i]);
  }

  bool truth(const Val& v) const {
    switch (v.tag()) {
      case RB_NONE:
      case RB_ZERO:
        return false;
      case RB_BOOL:
      case RB_INT:
        return v.v.v.i != 0;
      case RB_FLOAT:
        return v.v.v.f != 0;
      case RB_STR:
        return v.v.len != 0;
      default:
        if (v.items) return !v.items->empty();
        fail("a condition must be host data, not a tensor");
    }
  }

  Val unary(const Node& n) {
    const Val x = eval(n.kids[0]);
    if (n.op == Operator::kNot) return Val::boolean(!truth(x));
    if (x.tag() == RB_ZERO) return x;
    if (x.is_number()) return negate_number(x);
    return call1(builtins().neg, {x});
  }

  static const Op* tensor_operator(Operator op) {
    const Builtins& b = builtins();
    switch (op) {
      case Operator::kAdd:
        return b.add;
      case Operator::kSub:
        return b.sub;
      case Operator::kMul:
        return b.mul;
      case Operator::kDiv:
        return b.div;
      case Operator::kPow:
        return b.pow;
      case Operator::kEq:
        return b.eq;
      case Operator::kNe:
        return b.ne;
      case Operator::kLt:
        return b.lt;
      case Operator::kLe:
        return b.le;
      case Operator::kGt:
        return b.gt;
      case Operator::kGe:
        return b.ge;
      case Operator::kBitAnd:
        return b.bit_and;
      case Operator::kBitOr:
        return b.bit_or;
      default:
        return nullptr;
    }
  }

  Val binary(const Node& n) {
    if (n.op == Operator::kAnd) {
      const Val x = eval(n.kids[0]);
      return truth(x) ? eval(n.kids[1]) : x;
    }
    if (n.op == Operator::kOr) {
      const Val x = eval(n.kids[0]);
      return truth(x) ? x : eval(n.kids[1]);
    }
    const Val x = eval(n.kids[0]), y = eval(n.kids[1]);
    if (n.op == Operator::kIs || n.op == Operator::kIsNot) {
      return Val::boolean((x.tag() == y.tag()) == (n.op == Operator::kIs));
    }
    if (x.tag() == RB_ZERO || y.tag() == RB_ZERO) return with_zero(n.op, x, y);
    if (!x.is_tensor() && !y.is_tensor()) return host_binary(n.op, x, y, where());
    // A host bool says "everywhere" or "nowhere" of a mask.
    if ((n.op == Operator::kBitAnd || n.op == Operator::kBitOr) &&
        (x.tag() == RB_BOOL || y.tag() == RB_BOOL)) {
      const Val &flag = x.tag() == RB_BOOL ? x : y, &mask = x.tag() == RB_BOOL ? y : x;
      const bool keeps_mask = (n.op == Operator::kBitAnd) == (flag.v.v.i != 0);
      return keeps_mask ? mask : flag;
    }
    const Op* op = tensor_operator(n.op);
    if (!op) fail("this operation needs host data, not tensors");
    if (!x.is_tensor()) return reflected(n.op, op, x, y);
    return call1(op, {x, y});
  }

  // number op tensor
  Val reflected(Operator o, const Op* op, const Val& x, const Val& y) {
    if (o == Operator::kAdd || o == Operator::kMul) return call1(op, {y, x});
    return call1(op, {x, y});
  }

  Val with_zero(Operator op, const Val& x, const Val& y) {
    const bool x_zero = x.tag() == RB_ZERO;
    switch (op) {
      case Operator::kAdd:
        return x_zero ? y : x;
      case Operator::kSub:
        if (!x_zero) return x;
        if (y.tag() == RB_ZERO) return y;
        return y.is_number() ? negate_number(y) : call1(builtins().neg, {y});
      case Operator::kMul:
        return Val::zero();
      case Operator::kDiv:
        if (x_zero) return x;
        fail("division by a zero gradient");
      default:
        fail("this operation does not take a zero gradient");
    }
  }

  // ---- calls

  Val call1(const Op* op, std::initializer_list<Val> given) {
    CallFrame frame(*op);
    int i = 0;
    for (const Val& v : given) frame.set(i++, v);
    frame.fill_defaults();
    return frame.run();
  }

  // conj and real are free on what is real already.
  const Val* free_of_charge(const Op* callee, const Val& x) const {
    if (callee != builtins().conj && callee != builtins().real) return nullptr;
    if (x.tag() == RB_ZERO || (x.is_number() && x.tag() != RB_COMPLEX)) return &x;
    return x.tag() == RB_TENSOR && !is_complex(x.v.v.t->dtype_id) ? &x : nullptr;
  }

  Val call_op(const Node& n) {
    CallFrame frame(*n.callee);
    bool some_zero = false;
    for (size_t i = 0; i < n.kids.size(); ++i) {
      if (n.kids[i] < 0) continue;
      Val v = eval(n.kids[i]);
      if (i == 0) {
        if (const Val* same = free_of_charge(n.callee, v)) return *same;
        if (v.tag() == RB_COMPLEX && n.callee == builtins().conj) return conj_number(v);
        if (v.tag() == RB_META) return like_meta(n.callee, v);
      }
      if (v.tag() == RB_ZERO) {
        some_zero = true;
        if (n.callee->info.kind != RB_KIND_ELEMENTWISE) return Val::zero();
        v = Val::number(0.0);
      }
      frame.set(static_cast<int>(i), std::move(v));
    }
    if (some_zero && vanishes(*n.callee, frame.values, frame.given)) return Val::zero();
    if (n.callee == builtins().where &&
        frame.values[0].tag == RB_BOOL) {  // a condition on host data
      return frame.kept(frame.values[0].v.i ? 1 : 2);
    }
    frame.fill_defaults();
    if (n.callee->info.kind == RB_KIND_ELEMENTWISE && !frame.has_tensors())
      return of_numbers(*n.callee, frame);
    return frame.run();
  }

  // A function of numbers is a number, whatever the device and dtype of the operator's tensors.
  Val of_numbers(const Op& callee, CallFrame& frame) {
    for (size_t i = 0; i < callee.params.size(); ++i) {
      const RbValue& v = frame.values[i];
      if (callee.params[i].type != RB_A_TENSOR || v.tag < RB_BOOL || v.tag > RB_COMPLEX) continue;
      TensorRef exact(tensor_new(default_backend(), 0, v.tag == RB_COMPLEX ? RB_C128 : RB_F64, 0,
                                 nullptr, nullptr));
      auto* parts = static_cast<double*>(exact->data);
      parts[0] = v.tag == RB_COMPLEX ? v.v.fs[0]
                 : v.tag == RB_FLOAT ? v.v.f
                                     : static_cast<double>(v.v.i);
      if (v.tag == RB_COMPLEX) parts[1] = v.v.fs[1];
      frame.set(static_cast<int>(i), Val::own(std::move(exact)));
    }
    Val result = frame.run();
    if (!result.is_tensor() || result.v.v.t->numel != 1) return result;
    const auto* parts = static_cast<const double*>(result.v.v.t->data);
    switch (result.v.v.t->dtype_id) {
      case RB_F64:
        return Val::number(parts[0]);
      case RB_C128:
        return Val::complex(parts[0], parts[1]);
      case RB_BOOL8:
        return Val::boolean(*static_cast<const uint8_t*>(result.v.v.t->data) != 0);
      default:
        return result;
    }
  }

  // zeros_like and its kin need only the shape and dtype of what was not kept.
  Val like_meta(const Op* callee, const Val& x) {
    const Builtins& b = builtins();
    const Op* creator = callee->name == "zeros_like"   ? b.zeros
                        : callee->name == "ones_like"  ? b.ones
                        : callee->name == "empty_like" ? b.empty
                                                       : nullptr;
    if (!creator) fail("'" + callee->name + "' needs a value that was not saved");
    const RbMeta& meta = *x.v.v.meta;
    RbValue args[3];
    args[0].tag = RB_INTS;
    args[0].len = static_cast<uint32_t>(meta.ndim);
    args[0].v.is = meta.shape;
    args[1].tag = RB_DTYPE;
    args[1].len = 0;
    args[1].v.i = meta.dtype_id;
    args[2].tag = RB_DEVICE;
    args[2].len = 0;
    args[2].v.dev.backend = meta.backend;
    args[2].v.dev.index = meta.device_index;
    return Val::own(rabbet::call1(creator, args, 3));
  }

  // ---- lists and attributes

  Val comprehension(const Node& n) {
    std::vector<Val> lists;
    size_t length = SIZE_MAX;
    for (int k = 0; k < n.count; ++k) {
      lists.push_back(as_list(eval(n.kids[k + 1]), where()));
      length = std::min(length, lists.back().items->size());
    }
    Val out = Val::list();
    for (size_t i = 0; i < length; ++i) {
      for (int k = 0; k < n.count; ++k) locals_[n.index + k] = (*lists[k].items)[i];
      out.items->push_back(eval(n.kids[0]));
    }
    return out;
  }

  Val index(const Node& n) {
    const Val list = eval(n.kids[0]), at = eval(n.kids[1]);
    if (list.tag() == RB_ZERO) return list;  // one of several gradients that are zero
    const Val items = as_list(list, where());
    const int64_t size = static_cast<int64_t>(items.items->size());
    int64_t i = at.v.v.i;
    if (i < 0) i += size;
    const Node& of = f_.nodes[n.kids[0]];
    if (size == 0 && of.kind == NodeKind::kAttribute && of.index == 0) {
      rabbet::fail(RB_E_INDEX, "%s: a 0-dimensional tensor has no dim %lld", op_.name.c_str(),
                   (long long)at.v.v.i);
    }
    if (i < 0 || i >= size) {
      rabbet::fail(RB_E_INDEX, "%s: index %lld is out of range for %lld entries", op_.name.c_str(),
                   (long long)at.v.v.i, (long long)size);
    }
    return (*items.items)[i];
  }

  Val slice(const Node& n) {
    const Val items = as_list(eval(n.kids[0]), where());
    const int64_t size = static_cast<int64_t>(items.items->size());
    auto bound = [&](int kid, int64_t absent) {
      if (kid < 0) return absent;
      const int64_t i = eval(kid).v.v.i;
      return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
    };
    const int64_t from = bound(n.kids[1], 0), to = bound(n.kids[2], size);
    Val out = Val::list();
    for (int64_t i = from; i < to; ++i) out.items->push_back((*items.items)[i]);
    return out;
  }

  Val attribute(const Node& n) {
    const Val x = eval(n.kids[0]);
    const Described d = describe(x);
    if (!d.known) {
      if (x.is_number() && n.index == 0) return Val::list();
      if (x.is_number() && n.index == 1) return Val::integer(0);
      fail("'.shape' and the like need a tensor");
    }
    switch (n.index) {
      case 0: {
        Val list = Val::list();
        for (int i = 0; i < d.ndim; ++i) list.items->push_back(Val::integer(d.shape[i]));
        return list;
      }
      case 1:
        return Val::integer(d.ndim);
      case 2:
        return Val::dtype(d.dtype);
      default: {
        RbValue v = value_none();
        v.tag = RB_DEVICE;
        v.v.dev.backend = d.backend;
        v.v.dev.index = d.device;
        return Val::borrow(v);
      }
    }
  }

  const Op& op_;
  const Formula& f_;
  const RbValue* args_;
  int nargs_;
  const RbValue* outs_ = nullptr;
  int nouts_ = 0;
  const RbValue *grads_ = nullptr, *tangents_ = nullptr;
  std::vector<Val> lets_;
  std::vector<bool> let_done_;
  std::vector<Val> locals_;
};

// Whether a derivative is known to be zero.
bool is_zero(const Val& v) {
  if (v.tag() == RB_ZERO || v.tag() == RB_NONE) return true;
  return v.is_number() && v.tag() != RB_COMPLEX && number_value(v) == 0;
}

int expect_dtype(const Op& op, const Val& v) {
  if (v.tag() == RB_DTYPE) return static_cast<int>(v.v.v.i);
  const Described d = describe(v);
  if (d.known) return d.dtype;
  if (v.is_number()) return number_dtype(v.v);
  fail(RB_E_INTERNAL, "%s: %s: a dtype rule gave no dtype", op.file.c_str(), op.name.c_str());
}

}  // namespace

const Formula& compiled(const Op& op) {
  static std::mutex mutex;
  Op& slot = const_cast<Op&>(op);
  if (const Formula* ready = __atomic_load_n(&slot.formula_ready, __ATOMIC_ACQUIRE)) return *ready;
  auto fresh = compile_formulas(op);
  std::lock_guard<std::mutex> lock(mutex);
  if (!slot.formula) {
    slot.formula = std::move(fresh);
    __atomic_store_n(&slot.formula_ready, slot.formula.get(), __ATOMIC_RELEASE);
  }
  return *slot.formula;
}

void run_decomp(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  if (op.rules[kDecompRule].fn) return run_decomp_rule(op, args, nargs, rets, nrets);
  if (decomp_function(op)) return run_decomp_function(op, args, nargs, rets, nrets);
  const Formula& f = compiled(op);
  Runner runner(op, f, args, nargs);
  Val result = runner.eval(f.decomp);
  if (op.returns_list) {
    rets[0] = take_tensors(result, op.name);
  } else if (nrets == 1) {
    rets[0] = take_tensor(result, op.name);
  } else {
    if (!result.items || static_cast<int>(result.items->size()) != nrets) {
      fail(RB_E_INTERNAL, "%s: the decomposition must give %d results", op.name.c_str(), nrets);
    }
    for (int i = 0; i < nrets; ++i) rets[i] = take_tensor((*result.items)[i], op.name);
  }
}

void run_vjp(const Op& op, uint64_t wanted, const RbValue* args, int nargs, const RbValue* outs,
             int nouts, const RbValue* grads, RbValue* results) {
  if (op.rules[kVjpRule].fn)
    return run_vjp_rule(op, wanted, args, nargs, outs, nouts, grads, results);
  const Formula& f = compiled(op);
  QuickFormula quick(op, f, args, nargs, outs, nouts, grads);
  std::optional<Runner> general;
  for (int i = 0; i < nargs; ++i) results[i] = value_none();
  try {
    for (int i = 0; i < nargs; ++i) {
      if (!(wanted >> i & 1)) continue;
      if (run_vjp_kernel(op, i, args, nargs, outs, grads, &results[i])) continue;
      if (f.vjps[i] < 0) {
        fail(RB_E_NOTIMPL,
             "%s: no derivative is recorded for the argument '%s': add `vjp %s FORMULA` to its "
             "record, or detach() that argument",
             op.name.c_str(), op.params[i].name, op.params[i].name);
      }
      if (op.params[i].type != RB_A_TENSORS && quick.vjp(i, &results[i])) continue;
      if (!general) {
        general.emplace(op, f, args, nargs);
        general->set_results(outs, nouts);
        general->set_gradients(grads);
      }
      Val v = general->eval(f.vjps[i]);
      if (is_zero(v)) {
        results[i].tag = RB_ZERO;
      } else if (op.params[i].type == RB_A_TENSORS) {
        results[i] = take_tensors(v, op.name);
      } else {
        results[i] = take_tensor(v, op.name);
      }
    }
  } catch (...) {
    for (int i = 0; i < nargs; ++i) value_release(&results[i]);
    throw;
  }
}

void run_jvp(const Op& op, const RbValue* args, int nargs, const RbValue* outs, int nouts,
             const RbValue* tangents, RbValue* results) {
  if (op.rules[kJvpRule].fn) return run_jvp_rule(op, args, nargs, outs, nouts, tangents, results);
  const Formula& f = compiled(op);
  for (int i = 0; i < nouts; ++i) results[i] = value_none();
  try {
    Runner runner(op, f, args, nargs);
    runner.set_results(outs, nouts);
    runner.set_tangents(tangents);
    for (int i = 0; i < nouts; ++i) {
      Val v = f.jvps[i] < 0 ? Val::zero() : runner.eval(f.jvps[i]);
      if (is_zero(v)) {
        results[i].tag = RB_ZERO;
      } else {
        results[i] = take_tensor(v, op.name);
      }
    }
  } catch (...) {
    for (int i = 0; i < nouts; ++i) value_release(&results[i]);
    throw;
  }
}

int eval_dtype(const Op& op, int ret, const RbValue* args, int nargs) {
  const Formula& f = compiled(op);
  Runner runner(op, f, args, nargs);
  return expect_dtype(op, runner.eval(f.dtypes[ret]));
}

int eval_compute(const Op& op, const RbValue* args, int nargs) {
  const Formula& f = compiled(op);
  Runner runner(op, f, args, nargs);
  return expect_dtype(op, runner.eval(f.compute));
}

int eval_shape(const Op& op, const RbValue* args, int nargs, int64_t* shape) {
  const Formula& f = compiled(op);
  Runner runner(op, f, args, nargs);
  const Val list = as_list(runner.eval(f.shape), op.name);
  const int ndim = static_cast<int>(list.items->size());
  if (ndim > kMaxDims) fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  for (int i = 0; i < ndim; ++i) {
    const Val& size = (*list.items)[i];
    if (size.items || (size.tag() != RB_INT && size.tag() != RB_BOOL)) {
      fail(RB_E_INTERNAL,
           "%s: %s: the shape formula must give a list of ints, but entry %d is none",
           op.file.c_str(), op.name.c_str(), i);
    }
    shape[i] = size.v.v.i;
  }
  return ndim;
}

void check_formulas(const Op& op) { compiled(op); }

}  // namespace rabbet

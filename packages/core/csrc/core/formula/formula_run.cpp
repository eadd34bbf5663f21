#include "formula/formula_run.h"

#include <algorithm>
#include <cstdlib>

#include "device/backends.h"
#include "formula/operator_calls.h"
#include "tensor/dtype.h"
#include "thread/deferral.h"
#include "thread/error.h"

namespace rabbet {

namespace {
constexpr int kMaxArguments = 32, kMaxResults = 8;
}

void FormulaRun::fail(const std::string& message) const { fail_formula(op_.name, message); }

Val FormulaRun::run(int32_t entry) {
  const Instruction* const code = f_.code.data();
  const Instruction* at = code + entry;
  Slots slots(at->count);
  for (++at;; ++at) {
    Val* const s = slots.from(at->to);
    switch (at->code) {
      case Code::kConstant:
        s[0] = Val::borrow(f_.constants[at->index]);
        break;
      case Code::kZero:
        s[0] = Val::zero();
        break;
      case Code::kArgument:
        s[0] = Val::borrow(at->index < nargs_ ? args_[at->index]
                                              : op_.params[at->index].default_value);
        break;
      case Code::kResult:
        if (!outs_ || at->index >= nouts_) fail("the result is not known here");
        s[0] = Val::borrow(outs_[at->index]);
        break;
      case Code::kGradient:
        if (!grads_) fail("a gradient is not known here");
        s[0] = Val::borrow(grads_[at->index]);
        break;
      case Code::kTangent:
        if (!tangents_) fail("a tangent is not known here");
        s[0] = Val::borrow(tangents_[at->index]);
        break;
      case Code::kLocal:
        s[0] = locals_[at->index];
        break;
      case Code::kLet:
        s[0] = let(at->index);
        break;
      case Code::kNegate:
        s[0] = negate(f_.callees[at->index], s[0]);
        break;
      case Code::kNot:
        s[0] = Val::boolean(!truth(s[0].v, op_));
        break;
      case Code::kBinary:
        s[0] = binary(*at, s[0], s[1]);
        s[1] = Val();
        break;
      case Code::kJump:
        at = code + at->index - 1;
        break;
      case Code::kUnless:
        if (!truth(s[0].v, op_)) at = code + at->index - 1;
        break;
      case Code::kIfFalse:
        if (!truth(s[0].v, op_)) at = code + at->index - 1;
        break;
      case Code::kIfTrue:
        if (truth(s[0].v, op_)) at = code + at->index - 1;
        break;
      case Code::kCall: {
        Val made = call(f_.callees[at->index], s, at->count);
        for (int i = 1; i < at->count; ++i) s[i] = Val();
        s[0] = std::move(made);
        break;
      }
      case Code::kHost:
        s[0] = run_host_function(*f_.functions[at->index], s, at->count, op_.name);
        break;
      case Code::kList: {
        Val made = Val::list({s, s + at->count});
        for (int i = 1; i < at->count; ++i) s[i] = Val();
        s[0] = std::move(made);
        break;
      }
      case Code::kEach:
        s[0] = each(f_.loops[at->index], s, at->count);
        break;
      case Code::kItem:
        s[0] = item(s[0], s[1], at->index != 0);
        break;
      case Code::kSlice:
        s[0] = slice(s[0], s[1], s[2]);
        break;
      case Code::kAttribute:
        s[0] = attribute(std::move(s[0]), at->index);
        break;
      case Code::kReturn:
        return std::move(s[0]);
      case Code::kEnter:
        fail("a defect of the formula compiler");
    }
  }
}

Val FormulaRun::let(int32_t index) {
  if (!(lets_done_ >> index & 1)) {
    lets_[index] = run(f_.lets[index]);
    lets_done_ |= uint64_t{1} << index;
  }
  return lets_[index];
}

// ---- operators that formulas write as symbols

Val FormulaRun::negate(const Callee& neg, const Val& x) {
  if (x.tag() == RB_ZERO) return x;
  if (x.is_number()) return negate_number(x);
  RbValue value = x.v;
  return invoke(*neg.op, &value);
}

Val FormulaRun::binary(const Instruction& at, const Val& x, const Val& y) {
  const Operator op = at.op;
  if (op == Operator::kIs || op == Operator::kIsNot)
    return Val::boolean((x.tag() == y.tag()) == (op == Operator::kIs));
  if (x.tag() == RB_ZERO || y.tag() == RB_ZERO) return with_zero(op, x, y);
  if (!x.is_tensor() && !y.is_tensor()) return host_binary(op, x, y, op_.name);
  // A host bool says "everywhere" or "nowhere" of a mask.
  if ((op == Operator::kBitAnd || op == Operator::kBitOr) &&
      (x.tag() == RB_BOOL || y.tag() == RB_BOOL)) {
    const Val &flag = x.tag() == RB_BOOL ? x : y, &mask = x.tag() == RB_BOOL ? y : x;
    const bool keeps_mask = (op == Operator::kBitAnd) == (flag.v.v.i != 0);
    return keeps_mask ? mask : flag;
  }
  if (at.index < 0) fail("this operation needs host data, not tensors");
  const Callee& callee = f_.callees[at.index];
  RbValue values[kMaxArguments];
  std::copy(callee.arguments.begin(), callee.arguments.end(), values);
  const bool reflected = !x.is_tensor() && (op == Operator::kAdd || op == Operator::kMul);
  values[0] = reflected ? y.v : x.v;
  values[1] = reflected ? x.v : y.v;
  return invoke(*callee.op, values);
}

// One of the two is a gradient that is known to be zero.
Val FormulaRun::with_zero(Operator op, const Val& x, const Val& y) {
  static const Op* const neg = find_op("neg");
  const bool x_zero = x.tag() == RB_ZERO;
  switch (op) {
    case Operator::kAdd:
      return x_zero ? y : x;
    case Operator::kSub: {
      if (!x_zero) return x;
      if (y.tag() == RB_ZERO) return y;
      if (y.is_number()) return negate_number(y);
      RbValue value = y.v;
      return invoke(*neg, &value);
    }
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

namespace {

// A value as an argument of this type: one int as a list, an int as a float. Lists of any values
// get memory of their own in `held`.
void as_argument(const Param& p, const Val& x, RbValue& v, std::vector<Val>& held) {
  v = x.v;
  const bool ints = p.type == RB_A_INTS || p.type == RB_A_DIMS || p.type == RB_A_SIZE;
  if (ints && v.tag == RB_INT) {
    held.push_back(Val::ints(std::vector<int64_t>(p.fixed_len ? p.fixed_len : 1, v.v.i)));
    v = held.back().v;
  } else if (p.type == RB_A_FLOAT && x.is_integer()) {
    v = value_float(static_cast<double>(v.v.i));
  } else if (v.tag == RB_OBJECT && x.is_list() && p.type != RB_A_TENSORS) {
    std::vector<int64_t> values;
    for (size_t i = 0; i < x.size(); ++i) values.push_back(x.at(i).v.v.i);
    held.push_back(Val::ints(std::move(values)));
    v = held.back().v;
  }
}

// The tensors of a list; others (None, a zero gradient) as null.
std::vector<RbTensor*> tensors_of(const Val& list) {
  std::vector<RbTensor*> tensors;
  for (size_t i = 0; i < list.size(); ++i) {
    const Val item = list.at(i);
    tensors.push_back(item.is_tensor() ? item.v.v.t : nullptr);
  }
  return tensors;
}

bool has_tensors(const RbValue* values, int count) {
  return std::any_of(values, values + count,
                     [](const RbValue& v) { return v.tag == RB_TENSOR || v.tag == RB_TENSORS; });
}

}  // namespace

Val FormulaRun::call(const Callee& callee, Val* given, int count) {
  const Op& op = *callee.op;
  if (callee.way == ShortWay::kRealPart) {
    const Val& x = given[0];
    if (x.tag() == RB_ZERO || (x.is_number() && x.tag() != RB_COMPLEX) ||
        (x.is_tensor() && !is_complex(x.v.v.t->dtype_id)))
      return x;
    if (x.tag() == RB_COMPLEX && callee.op->name == "conj") return conj_number(x);
  } else if (callee.way == ShortWay::kTranspose && given[0].is_tensor()) {
    return transposed(callee, given[0]);
  }
  if (count && given[0].tag() == RB_META) return like_meta(callee, given[0]);
  RbValue values[kMaxArguments];
  std::copy(callee.arguments.begin(), callee.arguments.end(), values);
  std::vector<Val> held;
  std::vector<std::vector<RbTensor*>> lists;
  uint32_t mask = 0;
  bool some_zero = false;
  for (int i = 0; i < count; ++i) {
    const int place = callee.places[i];
    const Param& param = op.params[place];
    mask |= 1u << place;
    if (given[i].tag() == RB_ZERO) {
      if (op.info.kind != RB_KIND_ELEMENTWISE) return Val::zero();
      some_zero = true;
      given[i] = Val::number(0.0);
    }
    as_argument(param, given[i], values[place], held);
    if (param.type != RB_A_TENSORS || !given[i].is_list() || given[i].tag() == RB_TENSORS) continue;
    lists.push_back(tensors_of(given[i]));
    values[place].tag = RB_TENSORS;
    values[place].len = static_cast<uint32_t>(lists.back().size());
    values[place].v.ts = lists.back().data();
  }
  if (some_zero && vanishes(op, values, mask)) return Val::zero();
  if (callee.way == ShortWay::kWhere && values[0].tag == RB_BOOL)
    return given[values[0].v.i ? 1 : 2];
  if (op.info.kind == RB_KIND_ELEMENTWISE && !has_tensors(values, op.info.nargs))
    return of_numbers(op, values);
  return invoke(op, values);
}

Val FormulaRun::invoke(const Op& op, RbValue* values) {
  const int nrets = op.info.nrets, count = static_cast<int>(op.params.size());
  RbValue rets[kMaxResults];
  for (int i = 0; i < nrets; ++i) rets[i] = value_none();
  call_operator(op, values, count, rets, nrets);
  if (__builtin_expect(nrets == 1 && rets[0].tag == RB_TENSOR, 1))
    return Val::own(TensorRef(rets[0].v.t));
  std::vector<Val> list;
  if (nrets == 1) {
    for (uint32_t i = 0; i < rets[0].len; ++i) list.push_back(Val::own(TensorRef(rets[0].v.ts[i])));
    std::free(const_cast<RbTensor**>(rets[0].v.ts));
  } else {
    for (int i = 0; i < nrets; ++i) list.push_back(Val::own(TensorRef(rets[i].v.t)));
  }
  return Val::list(std::move(list));
}

// A function of numbers is a number, whatever the device and dtype of the operator's tensors.
Val FormulaRun::of_numbers(const Op& callee, RbValue* values) {
  std::vector<Val> held;
  for (size_t i = 0; i < callee.params.size(); ++i) {
    RbValue& v = values[i];
    if (callee.params[i].type != RB_A_TENSOR || v.tag < RB_BOOL || v.tag > RB_COMPLEX) continue;
    TensorRef exact(tensor_new(default_backend(), 0, v.tag == RB_COMPLEX ? RB_C128 : RB_F64, 0,
                               nullptr, nullptr));
    auto* parts = static_cast<double*>(exact->data);
    parts[0] = v.tag == RB_COMPLEX ? v.v.fs[0] : number_value(v);
    if (v.tag == RB_COMPLEX) parts[1] = v.v.fs[1];
    held.push_back(Val::own(std::move(exact)));
    v = held.back().v;
  }
  Val result = invoke(callee, values);
  // One that a layer traces has no values.
  if (!result.is_tensor() || result.v.v.t->numel != 1 || !result.v.v.t->data) return result;
  make_ready(result.v.v.t, "a formula's number");
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

// The last two dimensions swapped, without dispatch where no layer would see the call.
Val FormulaRun::transposed(const Callee& callee, const Val& x) {
  if (Tensor* view = view_without_dispatch(*callee.op, x.v)) return Val::own(TensorRef(view));
  RbValue value = x.v;
  return invoke(*callee.op, &value);
}

// zeros_like and its kin need only the shape and dtype of what was not kept.
Val FormulaRun::like_meta(const Callee& callee, const Val& x) {
  if (!callee.creator) fail("'" + callee.op->name + "' needs a value that was not saved");
  const RbMeta& meta = *x.v.v.meta;
  RbValue args[3] = {value_ints(meta.shape, meta.ndim), value_none(), value_none()};
  args[1].tag = RB_DTYPE;
  args[1].v.i = meta.dtype_id;
  args[2].tag = RB_DEVICE;
  args[2].v.dev.backend = meta.backend;
  args[2].v.dev.index = meta.device_index;
  return invoke(*callee.creator, args);
}

// ---- lists and attributes

Val FormulaRun::each(const Formula::Loop& loop, const Val* lists, int count) {
  size_t length = SIZE_MAX;
  for (int k = 0; k < count; ++k) {
    if (!lists[k].is_list()) fail("a formula expected a list");
    length = std::min(length, lists[k].size());
  }
  std::vector<Val> out;
  for (size_t i = 0; i < length; ++i) {
    for (int k = 0; k < count; ++k) locals_[loop.first_local + k] = lists[k].at(i);
    out.push_back(run(loop.block));
  }
  return Val::list(std::move(out));
}

Val FormulaRun::item(const Val& list, const Val& at, bool of_shape) {
  if (list.tag() == RB_ZERO) return list;  // one of several gradients that are zero
  if (!list.is_list()) fail("a formula expected a list");
  const int64_t size = static_cast<int64_t>(list.size()), asked = at.v.v.i;
  const int64_t i = asked < 0 ? asked + size : asked;
  if (size == 0 && of_shape) {
    rabbet::fail(RB_E_INDEX, "%s: a 0-dimensional tensor has no dim %lld", op_.name.c_str(),
                 (long long)asked);
  }
  if (i < 0 || i >= size) {
    rabbet::fail(RB_E_INDEX, "%s: index %lld is out of range for %lld entries", op_.name.c_str(),
                 (long long)i, (long long)size);
  }
  return list.at(static_cast<size_t>(i));
}

Val FormulaRun::slice(const Val& list, const Val& from, const Val& to) {
  if (!list.is_list()) fail("a formula expected a list");
  const int64_t size = static_cast<int64_t>(list.size());
  auto bound = [&](const Val& v, int64_t absent) {
    if (v.tag() == RB_NONE) return absent;
    const int64_t i = v.v.v.i;
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  std::vector<Val> out;
  const int64_t end = bound(to, size);
  for (int64_t i = bound(from, 0); i < end; ++i) out.push_back(list.at(static_cast<size_t>(i)));
  return Val::list(std::move(out));
}

Val FormulaRun::attribute(Val x, int which) {
  const Described d = describe(x.v);
  if (!d.known) {
    if (x.is_number() && which == 0) return Val::ints({});
    if (x.is_number() && which == 1) return Val::integer(0);
    if (x.is_number())
      rabbet::fail(RB_E_TYPE, "%s: expected a tensor, got a number", op_.name.c_str());
    fail("'.shape' and the like need a tensor");
  }
  switch (which) {
    case 0:
      return Val::shape_of(std::move(x), d.shape, d.ndim);
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

}  // namespace rabbet

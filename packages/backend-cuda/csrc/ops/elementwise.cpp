// Operators that are primitives of core's formulas, the formulas, whose bodies core writes
// (rabbet/emit.h), and a table of the few elementwise operators that are neither.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <vector>

#include "launch/texts.h"
#include "ops/families.h"
#include "ops/loop.h"

namespace rbcuda {
namespace {

const RbEmit* emit;

constexpr uint64_t kComplex = bit(RB_C64) | bit(RB_C128);

// An expression with the loops for real and for complex operands.
class Loops {
 public:
  explicit Loops(const std::string& text) : real_(text), complex_(text, kText_complex) {}
  const Expression& of(int dtype) const { return is_complex(dtype) ? complex_ : real_; }

 private:
  Expression real_, complex_;
};

// Real results of complex operands are computed in the operands' dtype.
void run(const rb::Args& a, const char* op, int dtype, const Loops& loops, Operands& operands) {
  loop(op, computed(dtype), loops.of(dtype), operands, a.call);
}

// ---- operators of the table

// Operand k of the expression is argument `order[k]`.
struct Body {
  const char* op;
  int arity;
  uint64_t dtypes;
  const char* text;
  int order[3] = {0, 1, 2};
};
const Body kBodies[] = {
    {"sin", 1, kFloat | kComplex, "rb_sin(a)"},
    {"cos", 1, kFloat | kComplex, "rb_cos(a)"},
    {"sign", 1, kReal, "rb_sgn(a)"},
    {"conj", 1, kAll, "rb_conj(a)"},
    {"real", 1, kAll, "rb_real(a)"},
    {"imag", 1, kAll, "rb_imag(a)"},
    {"complex", 2, bit(RB_F32) | bit(RB_F64), "Complex<T>{a, b}"},
    {"bitwise_not", 1, kInt, "(T)~a"},
    {"bitwise_not", 1, bit(RB_BOOL8), "!a"},
    {"bitwise_and", 2, kInt | bit(RB_BOOL8), "(T)(a & b)"},
    {"bitwise_or", 2, kInt | bit(RB_BOOL8), "(T)(a | b)"},
    {"bitwise_xor", 2, kInt | bit(RB_BOOL8), "(T)(a ^ b)"},
    {"bitwise_left_shift", 2, kInt, "shifted_left(a, b)"},
    {"bitwise_right_shift", 2, kInt, "shifted_right(a, b)"},
    {"logical_and", 2, kAll, "chosen && As<bool>::of(b)"},
    {"logical_or", 2, kAll, "chosen || As<bool>::of(b)"},
    {"logical_xor", 2, kAll, "chosen != As<bool>::of(b)"},
    {"where", 3, kAll, "chosen ? b : c"},
    {"masked_fill", 3, kAll, "chosen ? b : c", {1, 2, 0}},
};

struct BodyKernel {
  explicit BodyKernel(const Body& body) : body(body), loops(body.text) {}
  const Body& body;
  const Loops loops;
  const BodyKernel* next = nullptr;  // of the same operator, for other dtypes
};

void body_kernel(const rb::Args& a) {
  const auto* kernel = static_cast<const BodyKernel*>(a.self);
  const Body& body = kernel->body;
  RbValue values[RB_EMIT_INPUTS];
  for (int k = 0; k < body.arity; ++k) values[k] = a.args[body.order[k]];
  Operands operands(a.ret(), body.arity, values);
  // The condition of three operands has a dtype of its own.
  const int dtype = body.arity < 3 ? operands.dtype() : a.ret().dtype_id;
  for (; kernel; kernel = kernel->next) {
    if (kernel->body.dtypes & bit(dtype)) return run(a, body.op, dtype, kernel->loops, operands);
  }
  rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no kernel for this dtype", a.op_name());
}

// Either end may be none. An end that is NaN makes all results NaN.
void clamp_kernel(const rb::Args& a) {
  static const Loops kEnds[] = {Loops("a"), Loops("rb_maximum(b, a)"), Loops("rb_minimum(c, a)"),
                                Loops("rb_minimum(c, rb_maximum(b, a))")};
  const int ends = (a.has(1) ? 1 : 0) | (a.has(2) ? 2 : 0);
  RbValue values[] = {a.args[0], rb::int_value(0), rb::int_value(0)};
  for (int k = 1; k < 3; ++k) {
    if (a.has(k)) values[k] = a.args[k];
  }
  Operands operands(a.ret(), 3, values);
  if (!ends) rb::fail(RB_E_ARG, "clamp: at least one of `min` and `max` must be given");
  run(a, "clamp", a.ret().dtype_id, kEnds[ends], operands);
}

void round_kernel(const rb::Args& a) {
  static const Loops kWhole("rb_round(a)"), kPlaces("rounded(a, call.parameters[0].real, true)"),
      kTens("rounded(a, call.parameters[0].real, false)");
  Operands operands(a.ret(), 1, a.args);
  const int64_t decimals = a.has(1) ? std::clamp<int64_t>(a.integer(1), -400, 400) : 0;
  operands.call.parameters[0].real = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  run(a, "round", a.ret().dtype_id,
      decimals == 0  ? kWhole
      : decimals > 0 ? kPlaces
                     : kTens,
      operands);
}

// ---- primitives

const char* const kNames[] = {"a", "b", "c"};

std::string call_text(const std::string& function, int ninputs, int nnumbers) {
  std::string text = function + "(";
  for (int k = 0; k < ninputs; ++k) text += (k ? ", " : "") + std::string(kNames[k]);
  for (int k = 0; k < nnumbers; ++k) text += ", p" + std::to_string(k);
  return text + ")";
}

// Primitives that complex numbers, or bools, do not have.
constexpr const char* kOrdered[] = {"erf",     "erfc",    "floor",     "ceil",      "trunc",
                                    "round",   "relu",    "atan2",     "copysign",  "relu_vjp",
                                    "maximum", "minimum", "lt",        "le",        "gt",
                                    "ge",      "fmod",    "div_floor", "div_trunc", "remainder"};
constexpr const char* kNumeric[] = {"neg", "sub", "relu", "relu_vjp"};
template <size_t N>
bool has(const char* const (&names)[N], const char* name) {
  return std::any_of(names, names + N, [&](const char* n) { return !std::strcmp(n, name); });
}
uint64_t dtypes_of(const char* primitive) {
  return (has(kOrdered, primitive) ? kReal : kAll) &
         ~(has(kNumeric, primitive) ? bit(RB_BOOL8) : 0);
}

// An operator that is a primitive, or one of its modes (div, "floor" is div_floor).
struct Primitive {
  explicit Primitive(const RbPrimitive& info)
      : name(info.name),
        arity(info.arity),
        sums(name == "add" || name == "sub"),
        loops(call_text("rb_" + name, arity, 0)),
        scaled("rb_" + name + "(a, (T)(p0 * b))") {}
  const std::string name;
  const int arity;
  const bool sums;
  const Loops loops, scaled;           // scaled: by `alpha`
  std::deque<const Primitive*> modes;  // in whose names this one's is the first part
};

const Loops& mode_of(const Primitive& primitive, const rb::Args& a, int dtype, int k) {
  if (is_complex(dtype))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no kernel for the mode '%s' of complex numbers",
             a.op_name(), a.str(k));
  for (const Primitive* mode : primitive.modes) {
    if (!std::strcmp(mode->name.c_str() + primitive.name.size() + 1, a.str(k))) return mode->loops;
  }
  rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no kernel for the mode '%s'", a.op_name(), a.str(k));
}

// What stands behind the operands of the scalar function, such as `alpha` or a mode.
[[gnu::noinline]] const Loops& chosen_loops(const Primitive& primitive, const rb::Args& a,
                                            int dtype, Operands& operands) {
  const Loops* loops = &primitive.loops;
  for (int k = primitive.arity; k < a.nargs; ++k) {
    const RbValue& v = a.args[k];
    if (v.tag == RB_NONE) continue;
    if (primitive.sums && rb::is_number(v)) {
      if (v.tag != RB_COMPLEX && rb::to_double(v) == 1) continue;
      operands.call.parameters[0] = number_of(v);
      loops = &primitive.scaled;
    } else if (v.tag == RB_STR) {
      loops = &mode_of(primitive, a, dtype, k);
    } else {
      rb::fail(RB_E_NOTIMPL, "%s on 'cuda': argument %d must have its default", a.op_name(), k);
    }
  }
  return *loops;
}

// Whether nothing, or an `alpha` of 1, stands behind the operands.
inline bool is_plain(const Primitive& primitive, const rb::Args& a) {
  for (int k = primitive.arity; k < a.nargs; ++k) {
    const RbValue& v = a.args[k];
    if (v.tag != RB_NONE && !(primitive.sums && v.tag == RB_INT && v.v.i == 1)) return false;
  }
  return true;
}

void primitive_kernel(const rb::Args& a) {
  const auto& primitive = *static_cast<const Primitive*>(a.self);
  Operands operands(a.ret(), primitive.arity, a.args);
  const int dtype = operands.dtype();
  const bool plain = __builtin_expect(is_plain(primitive, a), 1);
  run(a, primitive.name.c_str(), dtype,
      plain ? primitive.loops : chosen_loops(primitive, a, dtype, operands), operands);
}

// Powers with some constant exponents are computed by products and square roots, as in formulas
// (core's emit.cpp). Negative powers of integers are refused, as in PyTorch.
void pow_kernel(const rb::Args& a) {
  static const struct {
    double exponent;
    uint64_t dtypes;
    Loops loops;
  } kShort[] = {{2, kAll, Loops("rb_mul(a, a)")},
                {3, kFloat, Loops("rb_mul(rb_mul(a, a), a)")},
                {0.5, kFloat, Loops("rb_sqrt(a)")},
                {-0.5, kFloat, Loops("rb_div((T)1, rb_sqrt(a))")},
                {-1, kFloat, Loops("rb_div((T)1, a)")}};
  const RbValue& exponent = a.args[1];
  if (a.args[0].tag == RB_TENSOR && rb::is_number(exponent) && exponent.tag != RB_COMPLEX) {
    const double value = rb::to_double(exponent);
    if (value < 0 && (kInt >> a.ret().dtype_id & 1))
      rb::fail(RB_E_ARG, "pow: Integers to negative integer powers are not allowed.");
    for (const auto& power : kShort) {
      if (value != power.exponent || !(power.dtypes >> a.ret().dtype_id & 1)) continue;
      Operands operands(a.ret(), 1, a.args);
      return run(a, "pow", a.ret().dtype_id, power.loops, operands);
    }
  }
  primitive_kernel(a);
}

// ---- formulas

// The expression that calls a body; made once each.
const Expression& body_of(const RbEmitted& e) {
  constexpr int kMost = 1 << 12;
  static std::atomic<const Expression*> bodies[kMost];
  if (e.body < 0 || e.body >= kMost) rb::fail(RB_E_NOTIMPL, "cuda: too many formulas");
  std::atomic<const Expression*>& body = bodies[e.body];
  if (const Expression* made = body.load(std::memory_order_acquire)) return *made;
  auto made = std::make_unique<Expression>(
      call_text("rb_body_" + std::to_string(e.body), e.ninputs, e.nnumbers), e.text);
  const Expression* none = nullptr;
  if (body.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *none;
}

RbValue number_value(double number) {
  RbValue value = {};
  value.tag = RB_FLOAT;
  value.v.f = number;
  return value;
}

void formula_kernel(const rb::Args& a) {
  const auto& formula = *static_cast<const RbEmitFormula*>(a.self);
  RbEmitted e = {};
  e.struct_size = sizeof e;
  rb::check(emit->choose(formula.id, a.args, a.nargs, &e));
  RbValue values[RB_EMIT_INPUTS];
  for (int k = 0; k < e.ninputs; ++k)
    values[k] = e.is_number[k] ? number_value(e.constants[k]) : a.args[e.inputs[k]];
  Operands operands(a.ret(), e.ninputs, values);
  for (int k = 0; k < e.nnumbers; ++k) operands.call.parameters[k].real = e.numbers[k];
  loop(a.op_name(), computed(operands.dtype()), body_of(e), operands, a.call);
}

// ---- registration. What kernels point to lives as long as the process.

int32_t add_kernel(const RbHost* host, RbTxn* txn, const rb::KernelSpec& spec) {
  return rb::add_kernels(host, txn, kBackendName, &spec, 1);
}

// The rows of kBodies of one operator are a chain, whose first is registered.
struct BodyKernels {
  std::deque<BodyKernel> all;
  std::vector<rb::KernelSpec> specs;

  BodyKernels() {
    for (auto body = std::rbegin(kBodies); body != std::rend(kBodies); ++body) {
      const BodyKernel* next = nullptr;
      uint64_t dtypes = body->dtypes;
      if (!all.empty() && !std::strcmp(all.back().body.op, body->op)) {
        next = &all.back();
        dtypes |= specs.back().dtype_mask;
        specs.pop_back();
      }
      all.emplace_back(*body).next = next;
      specs.push_back({body->op, rb::wrap<body_kernel>, 0, dtypes, &all.back()});
    }
  }
};

int32_t add_bodies(const RbHost* host, RbTxn* txn) {
  static const auto* const kernels = new BodyKernels;
  return rb::add_kernels(host, txn, kBackendName, kernels->specs.data(), kernels->specs.size());
}

struct Primitives {
  std::deque<Primitive> all;

  Primitives() {
    int32_t count = 0;
    const RbPrimitive* primitives = emit->primitives(&count);
    for (int32_t i = 0; i < count; ++i) all.emplace_back(primitives[i]);
    for (Primitive& primitive : all) {
      for (const Primitive& other : all) {
        if (other.name.rfind(primitive.name + "_", 0) == 0) primitive.modes.push_back(&other);
      }
    }
  }
};

int32_t add_primitives(const RbHost* host, RbTxn* txn) {
  static const auto* const kernels = new Primitives;
  for (const Primitive& primitive : kernels->all) {
    const char* name = primitive.name.c_str();
    if (!host->find_op(name)) continue;  // a mode of an operator, like div_floor
    rb::KernelSpec spec{name, rb::wrap<primitive_kernel>, 0, dtypes_of(name), &primitive};
    if (primitive.name == "pow") spec.fn = rb::wrap<pow_kernel>;
    if (primitive.name == "clamp") spec.fn = rb::wrap<clamp_kernel>;
    if (primitive.name == "round") spec.fn = rb::wrap<round_kernel>;
    if (int32_t code = add_kernel(host, txn, spec)) return code;
  }
  return RB_OK;
}

int32_t add_formulas(const RbHost* host, RbTxn* txn) {
  int32_t count = 0;
  const RbEmitFormula* formulas = emit->formulas(&count);
  for (int32_t i = 0; i < count; ++i) {
    RbFormulaKernel kernel = {};
    kernel.struct_size = RB_SIZE(RbFormulaKernel, dtype_mask);
    kernel.op = formulas[i].op;
    kernel.argument = formulas[i].argument;
    kernel.backend = kBackendName;
    kernel.formula = formulas[i].text;
    kernel.fn = rb::wrap<formula_kernel>;
    kernel.self = const_cast<RbEmitFormula*>(&formulas[i]);
    kernel.dtype_mask = kFloat;
    if (int32_t code = host->add_formula_kernel(txn, &kernel)) return code;
  }
  return RB_OK;
}

}  // namespace

int32_t add_elementwise(const RbHost* host, RbTxn* txn) {
  emit = static_cast<const RbEmit*>(host->get_ext(RB_EMIT_EXT, RB_EMIT_VERSION));
  if (!emit) return rb::set_error(RB_E_PLUGIN, "cuda: this core does not write kernels");
  for (auto* add : {add_bodies, add_primitives, add_formulas}) {
    if (int32_t code = add(host, txn)) return code;
  }
  return RB_OK;
}

}  // namespace rbcuda

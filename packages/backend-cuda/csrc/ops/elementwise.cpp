// Everything with one result per position: copies, casts and fills, core's scalar primitives, and
// the records' formulas, whose bodies core writes (rabbet/emit.h). There is no list of operators.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "launch/jit.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "rabbet/emit.h"

namespace rbcuda {
namespace {

const RbEmit* emit;

// What a loop around a body reads.
struct Operands {
  const RbTensor* tensors[RB_EMIT_INPUTS] = {};  // null: the number
  Number numbers[RB_EMIT_INPUTS] = {};
  Number parameters[RB_EMIT_NUMBERS] = {};

  void set(int k, const RbValue& value) {
    if (value.tag == RB_TENSOR) {
      tensors[k] = value.v.t;
    } else {
      numbers[k] = number_of(value);
    }
  }
};

// Twin of Call in elementwise.cuh.
struct Call {
  Number numbers[RB_EMIT_INPUTS], parameters[RB_EMIT_NUMBERS];
  int32_t is_number, reserved;
};

// The loop `out = expression` over all positions, computed in `dtype`; the expression is in a, b,
// c, chosen and p0 to p3.
void loop(const char* op, const RbTensor& out, int dtype, const std::string& functions,
          const std::string& expression, const Operands& operands) {
  if (out.numel == 0) return;
  Call call = {};
  void* data[RB_EMIT_INPUTS] = {};
  int stored[RB_EMIT_INPUTS];
  for (int k = 0; k < RB_EMIT_INPUTS; ++k) {
    const RbTensor* t = operands.tensors[k];
    if (t) {
      data[k] = t->data;
    } else {
      call.is_number |= 1 << k;
    }
    stored[k] = t ? t->dtype_id : dtype;
    call.numbers[k] = operands.numbers[k];
  }
  std::memcpy(call.parameters, operands.parameters, sizeof call.parameters);
  Layout layout =
      layout_of(op, {&out, operands.tensors[0], operands.tensors[1], operands.tensors[2]});
  const Kernel kernel{
      op,
      {{"T", dtype}, {"O", out.dtype_id}, {"A", stored[0]}, {"B", stored[1]}, {"C", stored[2]}},
      kText_elementwise,
      functions + "RB_LOOP(" + expression + ")\n"};
  void* target = out.data;
  void* arguments[] = {&target, &data[0], &data[1], &data[2], &call, &layout};
  launch(device_of(out), kernel, layout.n, arguments);
}

template <int Source>
void copy_kernel(const rb::Args& a) {
  copy(a.op_name(), a.ret(), a.tensor(Source));
}
void fill_kernel(const rb::Args& a) {
  if (a.args[1].tag == RB_TENSOR) return copy(a.op_name(), a.ret(), a.tensor(1));
  fill(a.op_name(), a.ret(), a.args[1], rb::int_value(0));
}
template <int Value>
void constant_kernel(const rb::Args& a) {
  fill(a.op_name(), a.ret(), rb::int_value(Value), rb::int_value(0));
}

const rb::KernelSpec kKernels[] = {
    {"copy", rb::wrap<copy_kernel<1>>},      {"clone", rb::wrap<copy_kernel<0>>},
    {"cast", rb::wrap<copy_kernel<0>>},      {"fill", rb::wrap<fill_kernel>},
    {"full", rb::wrap<fill_kernel>},         {"full_like", rb::wrap<fill_kernel>},
    {"zeros", rb::wrap<constant_kernel<0>>}, {"zeros_like", rb::wrap<constant_kernel<0>>},
    {"ones", rb::wrap<constant_kernel<1>>},  {"ones_like", rb::wrap<constant_kernel<1>>},
};

// Operators that are neither primitives of the formulas nor formulas: operand k of the body is
// argument `order[k]`.
struct Body {
  const char* op;
  int arity;
  uint64_t dtypes;
  const char* text;
  int order[3] = {0, 1, 2};
};
const Body kBodies[] = {
    {"sin", 1, kFloat, "sin(a)"},
    {"cos", 1, kFloat, "cos(a)"},
    {"sign", 1, kReal, "rb_sgn(a)"},
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

bool is_complex(int dtype) { return dtype == RB_C64 || dtype == RB_C128; }

void body_kernel(const rb::Args& a) {
  const auto& first = *static_cast<const Body*>(a.self);
  Operands operands;
  int dtype = a.ret().dtype_id;
  for (int k = 0; k < first.arity; ++k) operands.set(k, a.args[first.order[k]]);
  for (int k = first.arity - 1; k >= 0; --k) {  // of `where` the first is bool
    if (operands.tensors[k]) dtype = operands.tensors[k]->dtype_id;
    if (first.arity == 3 && k == 1) break;
  }
  if (first.arity == 3) dtype = a.ret().dtype_id;
  if (is_complex(dtype) &&
      std::any_of(a.args, a.args + a.nargs, [](const RbValue& v) { return v.tag == RB_COMPLEX; }))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda' takes no complex numbers", a.op_name());
  for (const Body* body = &first; body != std::end(kBodies) && !std::strcmp(body->op, first.op);
       ++body) {
    if (body->dtypes & bit(dtype))
      return loop(a.op_name(), a.ret(), computed(dtype), "", body->text, operands);
  }
  rb::fail(RB_E_NOTIMPL, "%s on 'cuda': no kernel for this dtype", a.op_name());
}

// Either end may be none. An end that is NaN makes all results NaN.
void clamp_kernel(const rb::Args& a) {
  Operands operands;
  int dtype = a.ret().dtype_id;
  std::string text = "a";
  operands.set(0, a.args[0]);
  for (int k = 1; k < 3; ++k) {
    if (k >= a.nargs || a.args[k].tag == RB_NONE) continue;
    operands.set(k, a.args[k]);
    text = (k == 1 ? "rb_maximum(b, " : "rb_minimum(c, ") + text + ")";
  }
  if (operands.tensors[0]) dtype = operands.tensors[0]->dtype_id;
  loop(a.op_name(), a.ret(), computed(dtype), "", text, operands);
}

const char* const kNames[] = {"a", "b", "c"};

std::string call_text(const std::string& function, int ninputs, int nnumbers) {
  std::string text = function + "(";
  for (int k = 0; k < ninputs; ++k) text += (k ? ", " : "") + std::string(kNames[k]);
  for (int k = 0; k < nnumbers; ++k) text += ", p" + std::to_string(k);
  return text + ")";
}

bool is_primitive(const std::string& name) {
  int32_t count = 0;
  const RbPrimitive* primitives = emit->primitives(&count);
  return std::any_of(primitives, primitives + count,
                     [&](const RbPrimitive& p) { return p.name == name; });
}

// Primitives that complex numbers have, too.
constexpr const char* kComplex[] = {"neg", "add", "sub", "mul", "div", "eq", "ne", "logical_not"};
uint64_t dtypes_of(const char* primitive) {
  const bool complex = std::any_of(std::begin(kComplex), std::end(kComplex),
                                   [&](const char* name) { return !std::strcmp(name, primitive); });
  return complex ? kAll : kReal;
}

// Operators that are a primitive, or one of its modes (div, "floor" is div_floor): tensors or
// numbers, then what the scalar function does not know, which must be what it does.
void primitive_kernel(const rb::Args& a) {
  const auto& primitive = *static_cast<const RbPrimitive*>(a.self);
  const bool sum = !std::strcmp(primitive.name, "add") || !std::strcmp(primitive.name, "sub");
  Operands operands;
  int dtype = a.ret().dtype_id;
  for (int k = 0; k < primitive.arity; ++k) {
    if (a.args[k].tag == RB_COMPLEX)
      rb::fail(RB_E_NOTIMPL, "%s on 'cuda' takes no complex numbers", a.op_name());
    operands.set(k, a.args[k]);
    if (operands.tensors[k]) dtype = operands.tensors[k]->dtype_id;
  }
  std::string call = call_text(std::string("rb_") + primitive.name, primitive.arity, 0);
  for (int k = primitive.arity; k < a.nargs; ++k) {
    const RbValue& v = a.args[k];
    const std::string mode = primitive.name + ("_" + (v.tag == RB_STR ? a.str(k) : std::string()));
    if (v.tag == RB_NONE) continue;
    if (sum && rb::is_number(v) && v.tag != RB_COMPLEX) {
      operands.parameters[0] = number_of(v);
      call = std::string("rb_") + primitive.name + "(a, (T)(p0 * b))";
    } else if (v.tag == RB_STR && is_primitive(mode) && !is_complex(dtype)) {
      call = call_text("rb_" + mode, primitive.arity, 0);
    } else if (!rb::is_number(v) || v.tag == RB_COMPLEX || rb::to_double(v) != 0) {
      rb::fail(RB_E_NOTIMPL, "%s on 'cuda': argument %d must have its default", a.op_name(), k);
    }
  }
  loop(a.op_name(), a.ret(), computed(dtype), "", call, operands);
}

void formula_kernel(const rb::Args& a) {
  const auto& formula = *static_cast<const RbEmitFormula*>(a.self);
  RbEmitted e = {};
  e.struct_size = sizeof e;
  rb::check(emit->choose(formula.id, a.args, a.nargs, &e));
  Operands operands;
  for (int k = 0; k < e.ninputs; ++k) {
    if (e.is_number[k]) {
      operands.numbers[k].real = e.constants[k];
    } else {
      operands.tensors[k] = a.args[e.inputs[k]].v.t;
    }
  }
  for (int k = 0; k < e.nnumbers; ++k) operands.parameters[k].real = e.numbers[k];
  int dtype = a.ret().dtype_id;  // bool where the formula tests something
  for (const RbTensor* t : operands.tensors) dtype = t ? t->dtype_id : dtype;
  loop(a.op_name(), a.ret(), computed(dtype), e.text,
       call_text("rb_body_" + std::to_string(e.body), e.ninputs, e.nnumbers), operands);
}

}  // namespace

void copy(const char* op, const RbTensor& out, const RbTensor& from) {
  Operands operands;
  operands.tensors[0] = &from;
  loop(op, out, from.dtype_id, "", "a", operands);
}

void fill(const char* op, const RbTensor& out, const RbValue& start, const RbValue& step) {
  if (!rb::is_number(start) || !rb::is_number(step) || start.tag == RB_COMPLEX ||
      step.tag == RB_COMPLEX)
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': the value must be a real number", op);
  Operands operands;
  operands.set(0, start);
  operands.parameters[0] = number_of(step);
  if (out.dtype_id == RB_BOOL8 && start.tag == RB_FLOAT)
    operands.numbers[0].whole = operands.numbers[0].real != 0;
  const bool steps = rb::to_double(step) != 0;
  // Steps are taken in float64, so that the last one is as exact as the first.
  const bool floating = steps && (kFloat >> out.dtype_id & 1);
  loop(op, out, floating ? +RB_F64 : computed(out.dtype_id), "",
       steps ? "(T)(a + (T)((T)i * p0))" : "a", operands);
}

int32_t add_elementwise(const RbHost* host, RbTxn* txn) {
  for (rb::KernelSpec spec : kKernels) {
    spec.dtype_mask = kAll;
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &spec, 1)) return code;
  }
  for (const Body* body = kBodies; body != std::end(kBodies); ++body) {
    if (body != kBodies && !std::strcmp(body->op, body[-1].op)) continue;
    rb::KernelSpec spec{body->op, rb::wrap<body_kernel>, 0, 0, body};
    for (const Body& other : kBodies) {
      if (!std::strcmp(other.op, body->op)) spec.dtype_mask |= other.dtypes;
    }
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &spec, 1)) return code;
  }
  const rb::KernelSpec clamp{"clamp", rb::wrap<clamp_kernel>, 0, kReal};
  if (int32_t code = rb::add_kernels(host, txn, kBackendName, &clamp, 1)) return code;
  emit = static_cast<const RbEmit*>(host->get_ext(RB_EMIT_EXT, RB_EMIT_VERSION));
  if (!emit) return rb::set_error(RB_E_PLUGIN, "cuda: this core does not write kernels");
  int32_t count = 0;
  const RbPrimitive* primitives = emit->primitives(&count);
  for (int32_t i = 0; i < count; ++i) {
    if (primitives[i].arity > 2) continue;             // clamp, whose ends may be none
    if (!host->find_op(primitives[i].name)) continue;  // a mode of an operator, like div_floor
    rb::KernelSpec spec{primitives[i].name, rb::wrap<primitive_kernel>, 0,
                        dtypes_of(primitives[i].name), &primitives[i]};
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &spec, 1)) return code;
  }
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

}  // namespace rbcuda

// Everything with one result per position: copies, casts and fills, core's scalar primitives, and
// the records' formulas, whose bodies core writes (rabbet/emit.h). There is no list of operators.
#include "elementwise.h"

#include <algorithm>
#include <cstring>

#include "jit.h"
#include "rabbet/emit.h"

namespace rbcuda {
namespace {

const RbEmit* emit;

constexpr uint64_t kFloat = 1ull << RB_F32 | 1ull << RB_F64;
constexpr uint64_t kAll = kFloat | 1ull << RB_BOOL8 | 1ull << RB_I32 | 1ull << RB_I64;

void check_dtype(const rb::Args& a, const RbTensor& t) {
  if (t.dtype_id < 0 || t.dtype_id > 63 || !(kAll >> t.dtype_id & 1))
    rb::fail(RB_E_NOTIMPL,
             "%s on 'cuda' supports bool, int32, int64, float32 and float64; got dtype number %d",
             a.op_name(), static_cast<int>(t.dtype_id));
}

// What a loop around a body reads.
struct Operands {
  const RbTensor* tensors[RB_EMIT_INPUTS] = {};  // null: the number
  Number numbers[RB_EMIT_INPUTS] = {};
  Number parameters[RB_EMIT_NUMBERS] = {};
};

// Twin of Call in common.cuh.
struct Call {
  Number numbers[RB_EMIT_INPUTS], parameters[RB_EMIT_NUMBERS];
  int32_t is_number, reserved;
};

// The loop `out = expression` over all positions; the expression is in a, b, c and p0 to p3.
void loop(const rb::Args& a, int dtype, const std::string& functions, const std::string& expression,
          const Operands& operands) {
  const RbTensor& out = a.ret();
  if (out.numel == 0) return;
  check_dtype(a, out);
  Call call = {};
  void* data[RB_EMIT_INPUTS] = {};
  for (int k = 0; k < RB_EMIT_INPUTS; ++k) {
    if (operands.tensors[k]) {
      data[k] = operands.tensors[k]->data;
    } else {
      call.is_number |= 1 << k;
    }
    call.numbers[k] = operands.numbers[k];
  }
  std::memcpy(call.parameters, operands.parameters, sizeof call.parameters);
  Layout layout =
      layout_of(a.op_name(), {&out, operands.tensors[0], operands.tensors[1], operands.tensors[2]});
  Kernel kernel{a.op_name(), "rb_loop",
                type_text("T", dtype) + type_text("O", out.dtype_id) + functions + "RB_LOOP(" +
                    expression + ")\n"};
  void* target = out.data;
  void* arguments[] = {&target, &data[0], &data[1], &data[2], &call, &layout};
  launch(device_of(out), kernel, layout.n, arguments);
}

// out = from, with a cast.
void copy_from(const rb::Args& a, const RbTensor& from) {
  check_dtype(a, from);
  Operands operands;
  operands.tensors[0] = &from;
  loop(a, from.dtype_id, "", "a", operands);
}

template <int Source>
void copy_kernel(const rb::Args& a) {
  copy_from(a, a.tensor(Source));
}
void fill_number(const rb::Args& a, const RbValue& number) {
  Operands operands;
  operands.numbers[0] = number_of(number);
  if (a.ret().dtype_id == RB_BOOL8 && number.tag == RB_FLOAT)
    operands.numbers[0].whole = operands.numbers[0].real != 0;
  loop(a, a.ret().dtype_id, "", "a", operands);
}
void fill_kernel(const rb::Args& a) {
  if (a.args[1].tag == RB_TENSOR) return copy_from(a, a.tensor(1));
  if (!rb::is_number(a.args[1]) || a.args[1].tag == RB_COMPLEX)
    rb::fail(RB_E_TYPE, "%s: the value must be a real number", a.op_name());
  fill_number(a, a.args[1]);
}
template <int Value>
void constant_kernel(const rb::Args& a) {
  fill_number(a, rb::int_value(Value));
}

const rb::KernelSpec kKernels[] = {
    {"copy", rb::wrap<copy_kernel<1>>},      {"clone", rb::wrap<copy_kernel<0>>},
    {"cast", rb::wrap<copy_kernel<0>>},      {"fill", rb::wrap<fill_kernel>},
    {"full", rb::wrap<fill_kernel>},         {"full_like", rb::wrap<fill_kernel>},
    {"zeros", rb::wrap<constant_kernel<0>>}, {"zeros_like", rb::wrap<constant_kernel<0>>},
    {"ones", rb::wrap<constant_kernel<1>>},  {"ones_like", rb::wrap<constant_kernel<1>>},
};

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

// Operators that are a primitive, or one of its modes (div, "floor" is div_floor): tensors or
// numbers, then what the scalar function does not know, which must be what it does.
void primitive_kernel(const rb::Args& a) {
  const auto& primitive = *static_cast<const RbPrimitive*>(a.self);
  const bool sum = !std::strcmp(primitive.name, "add") || !std::strcmp(primitive.name, "sub");
  Operands operands;
  int dtype = a.ret().dtype_id;
  for (int k = 0; k < primitive.arity; ++k) {
    if (a.args[k].tag == RB_TENSOR) {
      operands.tensors[k] = a.args[k].v.t;
      dtype = operands.tensors[k]->dtype_id;
    } else {
      operands.numbers[k] = number_of(a.args[k]);
    }
  }
  if (!(kFloat >> dtype & 1))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda' computes with float32 and float64 only so far",
             a.op_name());
  std::string call = call_text(std::string("rb_") + primitive.name, primitive.arity, 0);
  for (int k = primitive.arity; k < a.nargs; ++k) {
    const RbValue& v = a.args[k];
    if (v.tag == RB_NONE) continue;
    if (sum && rb::is_number(v)) {
      operands.parameters[0] = number_of(v);
      call = std::string("rb_") + primitive.name + "(a, (T)(p0 * b))";
    } else if (v.tag == RB_STR && is_primitive(primitive.name + ("_" + std::string(a.str(k))))) {
      call =
          call_text("rb_" + (primitive.name + ("_" + std::string(a.str(k)))), primitive.arity, 0);
    } else if (!rb::is_number(v) || rb::to_double(v) != 0) {
      rb::fail(RB_E_NOTIMPL, "%s on 'cuda': argument %d must have its default so far", a.op_name(),
               k);
    }
  }
  loop(a, dtype, "", call, operands);
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
  loop(a, a.ret().dtype_id, e.text,
       call_text("rb_body_" + std::to_string(e.body), e.ninputs, e.nnumbers), operands);
}

}  // namespace

int32_t add_elementwise(const RbHost* host, RbTxn* txn) {
  for (rb::KernelSpec spec : kKernels) {
    spec.dtype_mask = kAll;
    if (int32_t code = rb::add_kernels(host, txn, kBackendName, &spec, 1)) return code;
  }
  emit = static_cast<const RbEmit*>(host->get_ext(RB_EMIT_EXT, RB_EMIT_VERSION));
  if (!emit) return rb::set_error(RB_E_PLUGIN, "cuda: this core does not write kernels");
  int32_t count = 0;
  const RbPrimitive* primitives = emit->primitives(&count);
  for (int32_t i = 0; i < count; ++i) {
    if (primitives[i].arity > 2) continue;             // clamp, whose ends may be none
    if (!host->find_op(primitives[i].name)) continue;  // a mode of an operator, like div_floor
    rb::KernelSpec spec{primitives[i].name, rb::wrap<primitive_kernel>, 0, kFloat, &primitives[i]};
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

// Elementwise operators: each is a line of the table, whose body becomes two kernels per dtype
// (elementwise.cl): one for row-major operands of the result's shape or numbers, one for operands
// of any strides.
#include <cmath>
#include <cstring>
#include <limits>

#include "view.h"

namespace rbcl {
namespace {

constexpr uint64_t kReal = kInt | kFloat;
struct Body {
  const char* name;
  int arity;
  uint64_t dtypes;
  const char* text;
  bool test = false;  // the result is bool
};
const Body kBodies[] = {
    {"neg", 1, kReal, "-a"},
    {"abs", 1, kFloat, "fabs(a)"},
    {"abs", 1, kInt, "a < 0 ? -a : a"},
    {"abs", 1, kBool, "a"},
    {"sgn", 1, kAll, "(T)((a > 0) - (a < 0))"},
    {"exp", 1, kFloat, "exp(a)"},
    {"expm1", 1, kFloat, "expm1(a)"},
    {"log", 1, kFloat, "log(a)"},
    {"log2", 1, kFloat, "log2(a)"},
    {"log10", 1, kFloat, "log10(a)"},
    {"log1p", 1, kFloat, "log1p(a)"},
    {"sqrt", 1, kFloat, "sqrt(a)"},
    {"sin", 1, kFloat, "sin(a)"},
    {"cos", 1, kFloat, "cos(a)"},
    {"tan", 1, kFloat, "tan(a)"},
    {"asin", 1, kFloat, "asin(a)"},
    {"acos", 1, kFloat, "acos(a)"},
    {"atan", 1, kFloat, "atan(a)"},
    {"sinh", 1, kFloat, "sinh(a)"},
    {"cosh", 1, kFloat, "cosh(a)"},
    {"tanh", 1, kFloat, "tanh(a)"},
    {"erf", 1, kFloat, "erf(a)"},
    {"erfc", 1, kFloat, "erfc(a)"},
    {"floor", 1, kFloat, "floor(a)"},
    {"ceil", 1, kFloat, "ceil(a)"},
    {"trunc", 1, kFloat, "trunc(a)"},
    {"same", 1, kBool | kInt, "a"},
    {"round", 1, kFloat, "p == 1 ? rint(a) : rint(a * p) / p"},
    {"relu", 1, kReal, "a < 0 ? 0 : a"},
    {"gelu", 1, kFloat, "a * NORMAL_CDF(a)"},
    {"gelu_tanh", 1, kFloat, "(T)0.5 * a * (1 + tanh(GELU_INNER(a)))"},
    {"bitwise_not", 1, kBool | kInt, "NOT(a)"},
    {"isnan", 1, kAll, "IS_NAN(a)", true},
    {"isinf", 1, kFloat, "isinf(a) != 0", true},
    {"isinf", 1, kBool | kInt, "0", true},
    {"isfinite", 1, kFloat, "isfinite(a) != 0", true},
    {"isfinite", 1, kBool | kInt, "1", true},
    {"logical_not", 1, kAll, "a == 0", true},
    {"add", 2, kAll, "ADD(a, MUL(p, b))"},
    {"sub", 2, kReal, "a - p * b"},
    {"mul", 2, kAll, "MUL(a, b)"},
    {"div", 2, kFloat, "a / b"},
    {"div_floor", 2, kAll, "floor_quotient(a, b)"},
    {"div_trunc", 2, kAll, "trunc_quotient(a, b)"},
    {"remainder", 2, kAll, "floor_rest(a, b)"},
    {"fmod", 2, kAll, "trunc_rest(a, b)"},
    {"pow", 2, kAll, "power(a, b)"},
    {"atan2", 2, kFloat, "atan2(a, b)"},
    {"copysign", 2, kFloat, "copysign(a, b)"},
    {"maximum", 2, kAll, "a > b || IS_NAN(a) ? a : b"},
    {"minimum", 2, kAll, "a < b || IS_NAN(a) ? a : b"},
    {"relu_vjp", 2, kReal, "b <= 0 ? 0 : a"},
    {"bitwise_and", 2, kBool | kInt, "a & b"},
    {"bitwise_or", 2, kBool | kInt, "a | b"},
    {"bitwise_xor", 2, kBool | kInt, "a ^ b"},
    {"bitwise_left_shift", 2, kInt, "SHIFT_FITS(b) ? (T)((BITS)a << b) : 0"},
    {"bitwise_right_shift", 2, kInt, "SHIFT_FITS(b) ? a >> b : a < 0 ? -1 : 0"},
    {"eq", 2, kAll, "a == b", true},
    {"ne", 2, kAll, "a != b", true},
    {"lt", 2, kAll, "a < b", true},
    {"le", 2, kAll, "a <= b", true},
    {"gt", 2, kAll, "a > b", true},
    {"ge", 2, kAll, "a >= b", true},
    {"logical_and", 2, kAll, "a != 0 && b != 0", true},
    {"logical_or", 2, kAll, "a != 0 || b != 0", true},
    {"logical_xor", 2, kAll, "(a != 0) != (b != 0)", true},
    {"where", 3, kAll, "a ? b : c"},  // a is bool
    {"clamp", 3, kAll,
     "c < (a < b || IS_NAN(b) ? b : a) || IS_NAN(c) ? c : (a < b || IS_NAN(b) ? b : a)"},
};

// The kernel `name` on `count` operands, tensors of `dtype` (of `where` the first is bool) or
// numbers.
void run(const rb::Args& a, int dtype, const char* name, const RbValue* operands, int count,
         double p = 1) {
  const RbTensor& out = a.ret();
  if (out.numel == 0) return;
  const View to = view_of(out);
  const bool condition = count == 3 && !std::strcmp(name, "where");
  View views[3];
  bool dense = (out.flags & RB_T_CONTIGUOUS) != 0;
  int flags = 0;
  for (int k = 0; k < count; ++k) {
    if (operands[k].tag == RB_TENSOR) {
      const RbTensor& t = *operands[k].v.t;
      if (t.dtype_id != (condition && k == 0 ? static_cast<int>(RB_BOOL8) : dtype)) {
        rb::fail(RB_E_TYPE, "%s: operand %d has dtype %s, expected %s", a.op_name(), k,
                 dtype_name(t.dtype_id), condition && k == 0 ? "bool" : dtype_name(dtype));
      }
      views[k] = broadcast(view_of(t), out.ndim, out.shape);
      dense = dense && (t.flags & RB_T_CONTIGUOUS) && t.numel == out.numel;
    } else {
      flags |= 1 << k;
      views[k] = to;
      for (int d = 0; d < to.ndim; ++d) views[k].strides[d] = 0;
    }
  }
  char kernel[40];
  std::snprintf(kernel, sizeof kernel, "%s_%c", name, dense ? 'c' : 's');
  Device& device = device_of(out);
  Launch launch(device, dtype, kernel);
  launch.pointer(to.data);
  for (int k = 0; k < count; ++k) {
    const bool number = (flags >> k & 1) != 0;
    launch.pointer(views[k].data)
        .number(condition && k == 0 ? static_cast<int>(RB_BOOL8) : dtype,
                number ? rb::to_double(operands[k]) : 0, number ? rb::to_int(operands[k]) : 0);
  }
  launch.number(dtype, p, static_cast<int64_t>(p)).value(flags);
  if (dense) {
    launch.value(out.numel).run(out.numel);
  } else {
    const Space space = count == 1 ? space_of(a.op_name(), {&to, &views[0]})
                        : count == 2
                            ? space_of(a.op_name(), {&to, &views[0], &views[1]})
                            : space_of(a.op_name(), {&to, &views[0], &views[1], &views[2]});
    launch.value(space).run(space.n);
  }
}

// What the operands have been cast to.
int operand_dtype(const rb::Args& a, int first, int count) {
  for (int k = first; k < first + count; ++k) {
    if (k < a.nargs && a.args[k].tag == RB_TENSOR) return a.args[k].v.t->dtype_id;
  }
  return a.ret().dtype_id;
}

void plain_kernel(const rb::Args& a) {
  const Body& body = *static_cast<const Body*>(a.self);
  run(a, operand_dtype(a, 0, body.arity), body.name, a.args, body.arity);
}
void scaled_kernel(const rb::Args& a) {  // add, sub
  const Body& body = *static_cast<const Body*>(a.self);
  run(a, operand_dtype(a, 0, 2), body.name, a.args, 2, a.has(2) ? a.real(2) : 1.0);
}
void div_kernel(const rb::Args& a) {
  const char* mode = a.str(2);
  const bool down = !std::strcmp(mode, "floor"), cut = !std::strcmp(mode, "trunc");
  run(a, operand_dtype(a, 0, 2), down ? "div_floor" : cut ? "div_trunc" : "div", a.args, 2);
}
void gelu_kernel(const rb::Args& a) {
  const bool fit = !std::strcmp(a.str(1), "tanh");
  run(a, operand_dtype(a, 0, 1), fit ? "gelu_tanh" : "gelu", a.args, 1);
}
// Integers are whole already.
template <int Decimals>
void rounding_kernel(const rb::Args& a) {
  const int dtype = operand_dtype(a, 0, 1);
  const int64_t decimals = Decimals && a.has(1) ? a.integer(1) : 0;
  if (kFloat >> dtype & 1)
    return run(a, dtype, a.op_name(), a.args, 1, decimals ? std::pow(10.0, decimals) : 1.0);
  if (decimals < 0)
    rb::fail(RB_E_NOTIMPL, "round on 'opencl': negative `decimals` for float32 and float64 only");
  run(a, dtype, "same", a.args, 1);
}
void masked_fill_kernel(const rb::Args& a) {
  const RbValue operands[3] = {a.args[1], a.args[2], a.args[0]};
  run(a, operand_dtype(a, 0, 1), "where", operands, 3);
}
void where_kernel(const rb::Args& a) { run(a, a.ret().dtype_id, "where", a.args, 3); }
void clamp_kernel(const rb::Args& a) {
  const int dtype = operand_dtype(a, 0, 1);
  if (!a.has(1) && !a.has(2))
    rb::fail(RB_E_ARG, "clamp: at least one of `min` and `max` must be given");
  RbValue operands[3] = {a.args[0], a.args[1], a.nargs > 2 ? a.args[2] : rb::none_value()};
  for (int k = 1; k < 3; ++k) {  // none: the end of the dtype's values
    if (operands[k].tag != RB_NONE) continue;
    const int sign = k == 1 ? -1 : 1;
    if (kFloat >> dtype & 1) {
      operands[k].tag = RB_FLOAT;
      operands[k].v.f = sign * std::numeric_limits<double>::infinity();
    } else {
      const int64_t most = dtype == RB_BOOL8 ? 1
                           : dtype == RB_I32 ? std::numeric_limits<int32_t>::max()
                                             : std::numeric_limits<int64_t>::max();
      operands[k] = rb::int_value(sign > 0 ? most : dtype == RB_BOOL8 ? 0 : -most - 1);
    }
  }
  run(a, dtype, "clamp", operands, 3);
}

// Lines of the table that are not operators themselves, or need more than their operands.
const rb::KernelSpec kSpecial[] = {
    {"div", rb::wrap<div_kernel>},
    {"gelu", rb::wrap<gelu_kernel>, 0, kFloat},
    {"floor", rb::wrap<rounding_kernel<0>>},
    {"ceil", rb::wrap<rounding_kernel<0>>},
    {"trunc", rb::wrap<rounding_kernel<0>>},
    {"round", rb::wrap<rounding_kernel<1>>},
    {"sign", rb::wrap<plain_kernel>},
    {"masked_fill", rb::wrap<masked_fill_kernel>},
    {"where", rb::wrap<where_kernel>},
    {"clamp", rb::wrap<clamp_kernel>},
    {"div_floor", nullptr},
    {"div_trunc", nullptr},
    {"gelu_tanh", nullptr},
    {"same", nullptr},
};

const Body& body_of(const char* name) {
  for (const Body& b : kBodies) {
    if (!std::strcmp(b.name, name)) return b;
  }
  return kBodies[0];
}

}  // namespace

bool has_body(const char* name, uint64_t dtypes) {
  uint64_t found = 0;
  for (const Body& b : kBodies) {
    if (!std::strcmp(b.name, name)) found |= b.dtypes;
  }
  return (dtypes & ~found) == 0;
}

std::string elementwise_functions(int dtype) {
  std::string text;
  for (const Body& b : kBodies) {
    if (!(b.dtypes >> dtype & 1)) continue;
    const std::string first = !std::strcmp(b.name, "where") ? "uchar a" : "T a";
    text += std::string(b.test ? "int" : "T") + " rb_" + b.name + "(" + first +
            (b.arity > 1 ? ", T b" : "") + (b.arity > 2 ? ", T c" : "") +
            ") { const T p = 1; return (" + b.text + "); }\n";
  }
  return text;
}

std::string elementwise_kernels(int dtype) {
  std::string text;
  for (const Body& b : kBodies) {
    if (!(b.dtypes >> dtype & 1)) continue;
    const std::string out = b.test ? "uchar" : "T";
    const char* first = !std::strcmp(b.name, "where") ? "uchar, " : "T, ";
    text += "ELEMENTWISE" + std::to_string(b.arity) + "(" + b.name + ", " +
            (b.arity == 3 ? first : "") + out + ", (" + b.text + "))\n";
  }
  return text;
}

int32_t add_elementwise(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  for (const rb::KernelSpec& special : kSpecial) {
    if (!special.fn) continue;
    rb::KernelSpec spec = special;
    if (!std::strcmp(spec.op, "sign")) spec.self = &body_of("sgn");
    if (int32_t code = add_table(host, txn, &spec, 1, dtypes)) return code;
  }
  for (const Body& b : kBodies) {
    bool plain = &b == &body_of(b.name);  // one registration for the lines of one name
    for (const rb::KernelSpec& special : kSpecial)
      plain = plain && std::strcmp(special.op, b.name) != 0;
    if (!plain) continue;
    rb::KernelSpec spec{b.name, rb::wrap<plain_kernel>, 0, 0, &b};
    for (const Body& other : kBodies) {
      if (!std::strcmp(other.name, b.name)) spec.dtype_mask |= other.dtypes;
    }
    if (!std::strcmp(b.name, "add") || !std::strcmp(b.name, "sub"))
      spec.fn = rb::wrap<scaled_kernel>;
    if (int32_t code = add_table(host, txn, &spec, 1, dtypes)) return code;
  }
  return RB_OK;
}

}  // namespace rbcl

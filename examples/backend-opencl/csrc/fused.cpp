// Kernels of the records' elementwise formulas: core writes the bodies (rabbet/emit.h), loops come
// around them (elementwise.cl). A body's program is built when it first runs.
#include "rabbet/emit.h"
#include "view.h"

namespace rbcl {
namespace {

const RbEmit* emit;

void fused_kernel(const rb::Args& a) {
  const auto& formula = *static_cast<const RbEmitFormula*>(a.self);
  RbEmitted e = {};
  e.struct_size = sizeof e;
  rb::check(emit->choose(formula.id, a.args, a.nargs, &e));
  const RbTensor& out = a.ret();
  if (out.numel == 0) return;
  const int dtype = out.dtype_id;
  const View to = view_of(out);
  View views[RB_EMIT_INPUTS] = {to, to, to};
  bool dense = (out.flags & RB_T_CONTIGUOUS) != 0;
  int flags = (1 << RB_EMIT_INPUTS) - 1;  // a bit: the number is what is meant
  for (int k = 0; k < RB_EMIT_INPUTS; ++k) {
    if (k >= e.ninputs || e.is_number[k]) {
      for (int d = 0; d < to.ndim; ++d) views[k].strides[d] = 0;
      continue;
    }
    const RbTensor& t = *a.args[e.inputs[k]].v.t;
    flags &= ~(1 << k);
    views[k] = broadcast(view_of(t), out.ndim, out.shape);
    dense = dense && (t.flags & RB_T_CONTIGUOUS) && t.numel == out.numel;
  }
  const char* const operands[] = {"a", "b", "c"};
  std::string call = "rb_body_" + std::to_string(e.body) + "(";
  for (int k = 0; k < e.ninputs; ++k) call += (k ? ", " : "") + std::string(operands[k]);
  for (int k = 0; k < e.nnumbers; ++k) call += ", p" + std::to_string(k);
  const std::string loops = std::string(e.text) + "FUSED(" + call + "))\n";
  Launch launch(device_of(out), dtype, dense ? "fused_c" : "fused_s", {e.body, loops.c_str()});
  launch.pointer(to.data);
  for (int k = 0; k < RB_EMIT_INPUTS; ++k)
    launch.pointer(views[k].data).number(dtype, e.constants[k], 0);
  for (double number : e.numbers) launch.number(dtype, number, 0);
  launch.value(flags);
  if (dense) {
    launch.value(out.numel).run(out.numel);
  } else {
    const Space space = space_of(a.op_name(), {&to, &views[0], &views[1], &views[2]});
    launch.value(space).run(space.n);
  }
}

}  // namespace

int32_t add_fused(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  emit = static_cast<const RbEmit*>(host->get_ext(RB_EMIT_EXT, RB_EMIT_VERSION));
  if (!emit) return RB_OK;  // a core without it runs the formulas step by step
  int32_t count = 0;
  const RbPrimitive* primitives = emit->primitives(&count);
  for (int32_t i = 0; i < count; ++i) {
    if (!has_body(primitives[i].name, kFloat & dtypes))
      return rb::set_error(RB_E_PLUGIN, "opencl: the primitive '%s' has no body",
                           primitives[i].name);
  }
  const RbEmitFormula* formulas = emit->formulas(&count);
  for (int32_t i = 0; i < count; ++i) {
    RbFormulaKernel kernel = {};
    kernel.struct_size = RB_SIZE(RbFormulaKernel, dtype_mask);
    kernel.op = formulas[i].op;
    kernel.argument = formulas[i].argument;
    kernel.backend = kBackendName;
    kernel.formula = formulas[i].text;
    kernel.fn = rb::wrap<fused_kernel>;
    kernel.self = const_cast<RbEmitFormula*>(&formulas[i]);
    kernel.dtype_mask = kFloat & dtypes;
    if (int32_t code = host->add_formula_kernel(txn, &kernel)) return code;
  }
  return RB_OK;
}

}  // namespace rbcl

// Kernels of whole formulas (RbFormulaKernel): a call chooses a body by what its arguments are, the
// loops of loops.cpp walk over the operands.
#include "elementwise/fused.h"

#include "common/dtype.h"
#include "common/kernels.h"
#include "common/level.h"

namespace rbcpu {

namespace {

struct FusedOperands {
  const RbTensor* in[kMaxInputs];  // null: a number in the place of a tensor
  double constants[kMaxInputs];
  double numbers[kMaxNumbers];
};
struct FusedShape {
  int inputs;
  bool heavy;
};
struct FusedKernel {
  const char* op;
  int argument;      // whose derivative it is; -1: the decomposition
  const char* text;  // the formula, for core to compare with its record
  int (*choose)(const RbValue* values, FusedOperands& operands);  // index of the body, or -1
  int nvalues;
};

// ---- what the choices ask

inline bool is_tensor(const RbValue& v) { return v.tag == RB_TENSOR; }
inline bool is_real(const RbValue& v) { return v.tag >= RB_BOOL && v.tag <= RB_FLOAT; }
inline bool is_none(const RbValue& v) { return v.tag == RB_NONE; }
inline bool is_text(const RbValue& v, const char* text) {
  return v.tag == RB_STR && std::strcmp(v.v.s, text) == 0;
}
inline double number(const RbValue& v) { return rb::to_double(v); }

#include "fused_kernels.inc"

int32_t run_fused(void* self, const RbCall*, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t) noexcept {
  static const FusedTable& table = RB_PICK_LEVEL(fused_table);
  const FusedKernel& kernel = *static_cast<const FusedKernel*>(self);
  RbTensor& out = *rets[0].v.t;
  FusedOperands operands = {};
  const int body = nargs == kernel.nvalues ? kernel.choose(args, operands) : -1;
  if (body < 0) return RB_E_NOTIMPL;
  FusedContext ctx;
  ctx.body = table.bodies[body];
  ctx.inputs = kShapes[body].inputs;
  for (int k = 0; k < kMaxNumbers; ++k) {
    ctx.f64[k] = operands.numbers[k];
    ctx.f32[k] = static_cast<float>(operands.numbers[k]);
  }
  LoopInput in[kMaxInputs];
  const int item = item_size(out);
  for (int k = 0; k < ctx.inputs; ++k) {
    ctx.constant[k] = !operands.in[k];
    ctx.constant64[k] = operands.constants[k];
    ctx.constant32[k] = static_cast<float>(operands.constants[k]);
    in[k] = {operands.in[k], &ctx.constant64[k], item};
  }
  const Loop loop = out.dtype_id == RB_F32   ? table.f32
                    : out.dtype_id == RB_F64 ? table.f64
                    : out.dtype_id == RB_F16 ? table.f16
                                             : table.bf16;
  run_elementwise(loop, out, in, ctx.inputs, kShapes[body].heavy ? kGrainHeavy : kGrain, &ctx);
  return RB_OK;
}

}  // namespace

int32_t add_fused(const RbHost* host, RbTxn* txn) {
  for (const FusedKernel& fused : kKernels) {
    RbFormulaKernel kernel = {};
    kernel.struct_size = sizeof kernel;
    kernel.op = fused.op;
    kernel.backend = kBackendName;
    kernel.argument = fused.argument;
    kernel.formula = fused.text;
    kernel.fn = run_fused;
    kernel.self = const_cast<FusedKernel*>(&fused);
    kernel.dtype_mask = kMaskFloat;
    if (int32_t code = host->add_formula_kernel(txn, &kernel)) return code;
  }
  return RB_OK;
}

}  // namespace rbcpu

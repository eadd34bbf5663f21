// Kernels of whole formulas (RbFormulaKernel): a call chooses a body by what its arguments are, the
// loops of loops.cpp walk over the operands.
#include "elementwise/fused.h"

#include <cmath>

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
inline bool is_single(const RbValue& v) { return is_tensor(v) && v.v.t->dtype_id != RB_F64; }
inline bool is_text(const RbValue& v, const char* text) {
  return v.tag == RB_STR && std::strcmp(v.v.s, text) == 0;
}
inline double number(const RbValue& v) { return rb::to_double(v); }

#include "fused_kernels.inc"

// Few elements of tensors like the result: straight to the body. False where it is not so.
bool run_quick(const FusedContext& ctx, const FusedOperands& operands, RbTensor& out,
               int64_t grain) {
  const int dtype = out.dtype_id;
  if (!(out.flags & RB_T_CONTIGUOUS) || out.numel > grain || (dtype != RB_F32 && dtype != RB_F64))
    return false;
  const void* in[kMaxInputs];
  for (int k = 0; k < ctx.inputs; ++k) {
    const RbTensor* t = operands.in[k];
    if (!t || !(t->flags & RB_T_CONTIGUOUS) || t->numel != out.numel) return false;
    in[k] = t->data;
  }
  if (dtype == RB_F32) {
    const float* from[kMaxInputs];
    for (int k = 0; k < ctx.inputs; ++k) from[k] = static_cast<const float*>(in[k]);
    ctx.body.f32(out.numel, static_cast<float*>(out.data), from, ctx.f32);
  } else {
    const double* from[kMaxInputs];
    for (int k = 0; k < ctx.inputs; ++k) from[k] = static_cast<const double*>(in[k]);
    ctx.body.f64(out.numel, static_cast<double*>(out.data), from, ctx.f64);
  }
  return true;
}

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
  if (out.dtype_id == RB_F64 ? !ctx.body.f64 : !ctx.body.f32) return RB_E_NOTIMPL;
  ctx.inputs = kShapes[body].inputs;
  for (int k = 0; k < kMaxNumbers; ++k) {
    ctx.f64[k] = operands.numbers[k];
    ctx.f32[k] = static_cast<float>(operands.numbers[k]);
  }
  for (int k = 0; k < ctx.inputs; ++k) {
    ctx.constant[k] = !operands.in[k];
    ctx.constant64[k] = operands.constants[k];
    ctx.constant32[k] = static_cast<float>(operands.constants[k]);
  }
  const int64_t grain = kShapes[body].heavy ? kGrainHeavy : kGrain;
  if (run_quick(ctx, operands, out, grain)) return RB_OK;
  LoopInput in[kMaxInputs];
  const int item = item_size(out);
  for (int k = 0; k < ctx.inputs; ++k) in[k] = {operands.in[k], &ctx.constant64[k], item};
  const Loop loop = out.dtype_id == RB_F32   ? table.f32
                    : out.dtype_id == RB_F64 ? table.f64
                    : out.dtype_id == RB_F16 ? table.f16
                                             : table.bf16;
  run_elementwise(loop, out, in, ctx.inputs, grain, &ctx);
  return RB_OK;
}

}  // namespace

Loop fused_unary(const char* op, const RbTensor& x) {
  static const FusedTable& table = RB_PICK_LEVEL(fused_table);
  for (const FusedKernel& kernel : kKernels) {
    if (kernel.nvalues != 1 || std::strcmp(kernel.op, op) != 0) continue;
    RbValue value = {};
    value.tag = RB_TENSOR;
    value.v.t = const_cast<RbTensor*>(&x);
    FusedOperands operands = {};
    const int body = kernel.choose(&value, operands);
    if (body < 0) return nullptr;
    return x.dtype_id == RB_F64 ? table.bodies[body].rows64 : table.bodies[body].rows32;
  }
  return nullptr;
}

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

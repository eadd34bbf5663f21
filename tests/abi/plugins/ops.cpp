// A pack of operators: records with derivative formulas, a kernel in C++, a kernel of a formula.
#include "rabbet/plugin.hpp"

#ifndef RB_ABI_NEEDED
#define RB_ABI_NEEDED RB_ABI_MINOR
#endif

namespace {

const char kRecords[] = R"(
old::scale(Tensor x, Scalar factor=2) -> Tensor
  kind    elementwise
  vjp x   grad * factor

old::gate(Tensor x, Tensor y) -> Tensor
  kind    composite
  decomp  x * y + x
  vjp x   grad * (y + 1)
  vjp y   grad * x

old::total(Tensor x) -> Tensor
  kind    opaque
  shape   []
  vjp x   expand(grad, x.shape)
)";

void scale(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const float factor = static_cast<float>(a.real(1));
  rb::Scratch<float> row(static_cast<size_t>(x.numel));
  rb::parallel_for(x.numel, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row[i] = factor * static_cast<float*>(x.data)[i];
  });
  for (int64_t i = 0; i < x.numel; ++i) static_cast<float*>(a.ret().data)[i] = row[i];
}

void total(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (x.numel == 0) rb::fail(RB_E_ARG, "%s: expected elements, got none", a.op_name());
  float sum = 0;
  for (int64_t i = 0; i < x.numel; ++i) sum += static_cast<float*>(x.data)[i];
  *static_cast<float*>(a.ret().data) = sum;
}

// Of the whole formula of `gate`; counts its calls, so that a test sees that core uses it.
int32_t gate_calls = 0;
void gate(const rb::Args& a) {
  ++gate_calls;
  const RbTensor &x = a.tensor(0), &y = a.tensor(1), &out = a.ret();
  if (x.numel != out.numel || y.numel != out.numel) rb::fail(RB_E_NOTIMPL, "old::gate: broadcasts");
  for (int64_t i = 0; i < out.numel; ++i) {
    const float v = static_cast<float*>(x.data)[i];
    static_cast<float*>(out.data)[i] = v * static_cast<float*>(y.data)[i] + v;
  }
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  if (const int32_t rc = host->add_ops(txn, kRecords)) return rc;
  constexpr uint64_t kFloat = uint64_t{1} << RB_F32;
  const rb::KernelSpec kernels[] = {{"old::scale", rb::wrap<scale>, RB_K_CONTIGUOUS, kFloat},
                                    {"old::total", rb::wrap<total>, RB_K_CONTIGUOUS, kFloat}};
  if (const int32_t rc = rb::add_kernels(host, txn, "cpu", kernels)) return rc;
  RbFormulaKernel k{};
  k.struct_size = RB_SIZE(RbFormulaKernel, dtype_mask);
  k.flags = RB_K_CONTIGUOUS;
  k.op = "old::gate";
  k.backend = "cpu";
  k.argument = -1;
  k.formula = "old::gate(Tensor x, Tensor y) -> Tensor\ndecomp x * y + x\n";
  k.fn = rb::wrap<gate>;
  k.dtype_mask = kFloat;
  return host->add_formula_kernel(txn, &k);
}

const RbPlugin kPlugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR,
                          RB_ABI_NEEDED,             0,            0,
                          "old-ops",                 "1.0",        init,
                          nullptr};

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &kPlugin; }
extern "C" RB_EXPORT int32_t formula_calls(void) { return gate_calls; }

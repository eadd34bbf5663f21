// Copies, casts and fills.
#include "ops/families.h"
#include "ops/loop.h"

namespace rbcuda {
namespace {

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
    {"clone", rb::wrap<copy_kernel<0>>, RB_K_MOVES, kAll},
    {"fill", rb::wrap<fill_kernel>, 0, kAll},
    {"full", rb::wrap<fill_kernel>, 0, kAll},
    {"full_like", rb::wrap<fill_kernel>, 0, kAll},
    {"zeros", rb::wrap<constant_kernel<0>>, 0, kAll},
    {"zeros_like", rb::wrap<constant_kernel<0>>, 0, kAll},
    {"ones", rb::wrap<constant_kernel<1>>, 0, kAll},
    {"ones_like", rb::wrap<constant_kernel<1>>, 0, kAll},
};

}  // namespace

void copy(const char* op, const RbTensor& out, const RbTensor& from) {
  static const Expression kSame("a");
  const auto run = [&](const RbTensor& to, const RbTensor& source, int dtype) {
    const RbValue value = read_value(source);
    Operands operands(to, 1, &value);
    loop(op, dtype, kSame, operands);
  };
  if (out.dtype_id != from.dtype_id) {
    const bool narrow = float8_dtypes().has(from.dtype_id);
    return run(out, from, narrow ? +RB_F32 : +from.dtype_id);
  }
  // Few kernels copy all dtypes.
  const int bits = unit_dtype(stored_size(from.dtype_id));
  RbTensor target = out, source = from;
  target.dtype_id = source.dtype_id = static_cast<uint16_t>(bits);
  run(target, source, bits);
}

void fill(const char* op, const RbTensor& out, const RbValue& start, const RbValue& step) {
  static const Expression kConstant("a");
  static const Expression kSteps("(T)(a + (T)((T)i * p0))", "", Expression::kPosition);
  if (!rb::is_number(start) || !rb::is_number(step))
    rb::fail(RB_E_NOTIMPL, "%s on 'cuda': the value must be a number", op);
  Operands operands(out, 1, &start);
  operands.call.parameters[0] = number_of(step);
  const bool steps = rb::to_double(step) != 0;
  // Steps are taken in float64, so that the last one is as exact as the first.
  const bool floating = steps && (kFloat >> out.dtype_id & 1);
  loop(op, floating ? +RB_F64 : computed(out.dtype_id), steps ? kSteps : kConstant, operands);
}

int32_t add_create(const RbHost* host, RbTxn* txn) {
  const uint64_t converted = kAll | float8_dtypes().bits();
  const rb::KernelSpec conversions[] = {
      {"copy", rb::wrap<copy_kernel<1>>, RB_K_MOVES, converted},
      {"cast", rb::wrap<copy_kernel<0>>, 0, converted},
  };
  const int32_t status = rb::add_kernels(host, txn, kBackendName, conversions);
  return status ? status : rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

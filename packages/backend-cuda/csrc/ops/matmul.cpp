// The operators that are products of matrices; product.cpp computes them.
#include "ops/families.h"
#include "ops/product.h"

namespace rbcuda {
namespace {

// The last dimension of `t`, which loses it: what is left are batches.
struct Dimension {
  int64_t size, stride;
};
Dimension take(RbTensor& t) {
  const int last = --t.ndim;
  return {t.shape[last], t.strides[last]};
}

// The stride of what is added along a dimension that the result loses.
int64_t take_stride(RbTensor& t) {
  if (t.ndim == 0) return 0;
  const Dimension taken = take(t);
  return taken.size == 1 ? 0 : taken.stride;
}

// All of one dtype; others are declined.
Product product_of_alike(const char* op, const RbTensor& x, const RbTensor& y, const RbTensor& out,
                         const RbTensor* added) {
  for (const RbTensor* t : {&x, &y, added}) {
    if (t && t->dtype_id != out.dtype_id)
      rb::fail(RB_E_NOTIMPL, "%s on 'cuda': operands and result must have one dtype", op);
  }
  return product_of(op, x, y, out, added);
}

}  // namespace

Product product_of(const char* op, const RbTensor& x, const RbTensor& y, const RbTensor& out,
                   const RbTensor* added) {
  RbTensor a = x, b = y, c = out, d = added ? *added : out;
  if (!added) d.ndim = 0;  // no strides
  Product p;
  p.op = op;
  p.out = &out;
  p.operands = x.dtype_id;
  p.results = out.dtype_id;
  const bool rows = x.ndim > 1, columns = y.ndim > 1;
  const Dimension none = {1, 0}, k = take(a), m = rows ? take(a) : none,
                  n = columns ? take(b) : none;
  p.m = m.size, p.n = n.size, p.k = k.size;
  p.a = {x.data, m.stride, k.stride};
  p.b = {y.data, take(b).stride, n.stride};
  if (columns) {
    p.c.column = take(c).stride;
    p.added.column = take_stride(d);
  }
  if (rows) {
    p.c.row = take(c).stride;
    p.added.row = take_stride(d);
  }
  p.c.data = out.data;
  p.added.data = added ? added->data : nullptr;
  // A dimension of size 1 has no stride, so that it is never taken for one that lies together.
  if (p.m == 1) p.a.row = p.c.row = p.added.row = 0;
  if (p.n == 1) p.b.column = p.c.column = p.added.column = 0;
  p.batch = layout_of(op, {&c, &a, &b, added ? &d : nullptr});
  return p;
}

namespace {

void matmul_kernel(const rb::Args& args) {
  const RbTensor& out = args.ret();
  if (out.numel == 0) return;
  multiply(product_of_alike("matmul", args.tensor(0), args.tensor(1), out, nullptr));
}

template <bool Activates>
void linear_kernel(const rb::Args& args) {
  const RbTensor& out = args.ret();
  if (out.numel == 0) return;
  const View weight = turned(args.tensor(1));  // (i, o); one of 1 dimension gives one result
  const char* op = Activates ? "linear_activation" : "linear";
  Product p = product_of_alike(op, args.tensor(0), weight.tensor(), out, args.optional_tensor(2));
  if (Activates) p.activation = args.str(3);
  multiply(p);
}

bool is_zero(const RbValue& v) {
  return rb::to_double(v) == 0 && (v.tag != RB_COMPLEX || v.v.fs[1] == 0);
}

// beta input + alpha a b, of matrices or batches of them; `input` is not read if beta is 0.
void addmm_kernel(const rb::Args& args) {
  const RbTensor& out = args.ret();
  if (out.numel == 0) return;
  const RbTensor* added = is_zero(args.args[3]) ? nullptr : &args.tensor(0);
  Product p = product_of_alike(args.op_name(), args.tensor(1), args.tensor(2), out, added);
  p.beta = args.args[3];
  p.alpha = args.args[4];
  multiply(p);
}

constexpr uint64_t kProducts = kAll & ~bit(RB_BOOL8);
const rb::KernelSpec kKernels[] = {
    {"matmul", rb::wrap<matmul_kernel>, 0, kProducts},
    {"linear", rb::wrap<linear_kernel<false>>, 0, kProducts},
    {"linear_activation", rb::wrap<linear_kernel<true>>, 0, kFloat},
    {"addmm", rb::wrap<addmm_kernel>, 0, kProducts},
    {"baddbmm", rb::wrap<addmm_kernel>, 0, kProducts},
};

}  // namespace

int32_t add_matmul(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

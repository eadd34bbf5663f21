#include "matmul.h"

namespace rbcl {

void multiply(Device& device, int dtype, void* c, const void* a, const void* b, const Product& p) {
  size_t batches = 1;
  for (int d = 0; d < p.batch_dims; ++d) batches *= static_cast<size_t>(p.batch_shape[d]);
  if (p.m == 0 || p.n == 0 || batches == 0) return;
  constexpr size_t kTile = 64, kColumns = 4, kRows = 16;  // as in matmul.cl
  const auto groups = [](int64_t n) { return (static_cast<size_t>(n) + kTile - 1) / kTile; };
  const size_t global[3] = {groups(p.n) * kColumns, groups(p.m) * kRows, batches};
  const size_t local[3] = {kColumns, kRows, 1};
  Launch(device, dtype, "matmul")
      .pointer(c)
      .pointer(a)
      .pointer(b)
      .value(p)
      .enqueue(3, global, local);
}

namespace {

// Core has checked the shapes. 1-d operands are a row and a column.
void matmul_kernel(const rb::Args& a) {
  const RbTensor &xt = a.tensor(0), &yt = a.tensor(1), &out = a.ret();
  if (out.numel == 0) return;
  View x = view_of(xt), y = view_of(yt), c = view_of(out);
  if (xt.ndim == 1) {
    x.ndim = 2;
    x.shape[1] = x.shape[0];
    x.strides[1] = x.strides[0];
    x.shape[0] = 1;
    x.strides[0] = 0;
  }
  if (yt.ndim == 1) {
    y.ndim = 2;
    y.shape[1] = 1;
    y.strides[1] = 0;
  }
  Product p = {};
  p.m = x.shape[x.ndim - 2];
  p.k = x.shape[x.ndim - 1];
  p.n = y.shape[y.ndim - 1];
  p.a_row = x.strides[x.ndim - 2];
  p.a_column = x.strides[x.ndim - 1];
  p.b_row = y.strides[y.ndim - 2];
  p.b_column = y.strides[y.ndim - 1];
  const bool rows = xt.ndim > 1, columns = yt.ndim > 1;
  if (columns) p.c_column = c.strides[c.ndim - 1];
  if (rows) p.c_row = c.strides[c.ndim - 1 - columns];
  View batch = c;  // what is left of the result
  batch.ndim -= rows + columns;
  x.ndim -= 2;
  y.ndim -= 2;
  const View xb = broadcast(x, batch.ndim, batch.shape), yb = broadcast(y, batch.ndim, batch.shape);
  const Space space = space_of("matmul", {&xb, &yb, &batch});
  p.batch_dims = space.ndim;
  for (int d = 0; d < space.ndim; ++d) {
    p.batch_shape[d] = space.shape[d];
    for (int k = 0; k < 3; ++k) p.batch_strides[k][d] = space.strides[k][d];
  }
  multiply(device_of(out), out.dtype_id, c.data, x.data, y.data, p);
}

const rb::KernelSpec kKernels[] = {{"matmul", rb::wrap<matmul_kernel>}};

}  // namespace

int32_t add_matmul(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

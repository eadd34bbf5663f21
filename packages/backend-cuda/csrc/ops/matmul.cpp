// Matrix products by the tiles of kernels/matmul.cuh. cuBLASLt is not used yet.
#include <algorithm>

#include "launch/jit.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

struct Product {  // twin of the kernel's
  int64_t m, n, k, a_row, a_column, b_row, b_column, c_row, c_column;
};

// Core has checked the shapes. 1-d operands are a row and a column.
void matmul_kernel(const rb::Args& args) {
  const RbTensor &x = args.tensor(0), &y = args.tensor(1), &out = args.ret();
  if (out.numel == 0) return;
  View a(x), b(y), c(out);
  Product p = {};
  const auto take = [](View& view, int64_t& size, int64_t& stride) {
    const int last = view.ndim() - 1;
    size = view.size(last);
    stride = view.stride(last);
    view.drop(last);
  };
  int64_t ignored = 0;
  p.m = p.n = 1;
  take(a, p.k, p.a_column);
  if (x.ndim > 1) take(a, p.m, p.a_row);
  if (y.ndim > 1) {
    take(b, p.n, p.b_column);
    take(c, ignored, p.c_column);
  }
  take(b, ignored, p.b_row);
  if (x.ndim > 1) take(c, ignored, p.c_row);
  Layout batch = layout_of("matmul", {&c.tensor(), &a.tensor(), &b.tensor()});
  const Kernel kernel{
      "matmul",
      {{"A", x.dtype_id}, {"B", y.dtype_id}, {"T", computed(out.dtype_id)}, {"O", out.dtype_id}},
      kText_matmul,
      ""};
  constexpr int64_t kTile = 64, kMost = 65535;  // blocks in y and z
  const int64_t rows = (p.m + kTile - 1) / kTile, columns = (p.n + kTile - 1) / kTile;
  if (rows > kMost)
    rb::fail(RB_E_NOTIMPL, "matmul on 'cuda': at most %lld rows",
             static_cast<long long>(kMost * kTile));
  void *to = out.data, *left = x.data, *right = y.data;
  void* arguments[] = {&to, &left, &right, &p, &batch};
  launch(device_of(out), kernel,
         Grid{static_cast<unsigned>(columns), static_cast<unsigned>(rows),
              static_cast<unsigned>(std::min(batch.n, kMost)), 256},
         arguments);
}

const rb::KernelSpec kKernels[] = {
    {"matmul", rb::wrap<matmul_kernel>, 0, kAll & ~bit(RB_BOOL8)},
};

}  // namespace

int32_t add_matmul(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

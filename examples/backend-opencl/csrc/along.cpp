// softmax and running sums: one work item per line.
#include "view.h"

namespace rbcl {
namespace {

struct Lines {
  int64_t count, length, inner = 1;
  Lines(const RbTensor& t, int64_t dim) {
    length = t.ndim ? t.shape[dim] : 1;
    for (int d = static_cast<int>(dim) + 1; d < t.ndim; ++d) inner *= t.shape[d];
    count = length ? t.numel / length : 0;
  }
};

template <class More>
void run(const rb::Args& a, const char* kernel, int inputs, int64_t dim, const More& more) {
  const RbTensor& out = a.ret();
  Device& device = device_of(out);
  const DenseResult to(device, out);
  const Lines lines(out, dim);
  {
    Launch launch(device, out.dtype_id, kernel);
    launch.pointer(to.data());
    for (int k = 0; k < inputs; ++k) launch.pointer(a.tensor(k).data);
    launch.value(lines.count).value(lines.length).value(lines.inner);
    more(launch);
    launch.run(lines.count);
  }
  to.finish();
}

template <int Logarithm>
void softmax_kernel(const rb::Args& a) {
  run(a, "softmax", 1, a.integer(1), [](Launch& launch) { launch.value(Logarithm); });
}
void cumsum_kernel(const rb::Args& a) {
  run(a, "running_sum", 1, a.integer(1), [](Launch&) {});
}
void cumprod_kernel(const rb::Args& a) {
  run(a, "running_product", 1, a.integer(1), [](Launch&) {});
}
void affine_scan_kernel(const rb::Args& a) {
  run(a, "affine_scan", 2, a.integer(2), [](Launch&) {});
}

const rb::KernelSpec kKernels[] = {
    {"softmax", rb::wrap<softmax_kernel<0>>, RB_K_CONTIGUOUS, kFloat},
    {"log_softmax", rb::wrap<softmax_kernel<1>>, RB_K_CONTIGUOUS, kFloat},
    {"cumsum", rb::wrap<cumsum_kernel>, RB_K_CONTIGUOUS},
    {"cumprod", rb::wrap<cumprod_kernel>, RB_K_CONTIGUOUS},
    {"affine_scan", rb::wrap<affine_scan_kernel>, RB_K_CONTIGUOUS},
};

}  // namespace

int32_t add_along(const RbHost* host, RbTxn* txn, uint64_t dtypes) {
  return add_table(host, txn, kKernels, dtypes);
}

}  // namespace rbcl

// Operators that only move elements, as copies between views, and evenly spaced numbers.
#include <algorithm>

#include "launch/jit.h"
#include "launch/view.h"
#include "ops/families.h"

namespace rbcuda {
namespace {

int at_dim(int64_t dim, int ndim) { return static_cast<int>(dim < 0 ? dim + ndim : dim); }

void cat_kernel(const rb::Args& a) {
  const auto given = a.tensors(0);
  const RbTensor& out = a.ret();
  const int dim = at_dim(a.integer(1), out.ndim);
  int64_t start = 0;
  for (const RbTensor* t : given) {
    if (t->ndim == 1 && t->numel == 0) continue;  // joins everything, as in PyTorch
    View part(out);
    part.narrow(dim, start, t->shape[dim]);
    start += t->shape[dim];
    copy("cat", part.tensor(), *t);
  }
}

void flip_kernel(const rb::Args& a) {
  View from(a.tensor(0));
  if (a.ret().numel == 0) return;
  for (const int64_t dim : a.ints(1)) {
    if (from.ndim() == 0) break;
    const int d = at_dim(dim, from.ndim());
    from.narrow(d, from.size(d) - 1, from.size(d), -1);
  }
  copy("flip", a.ret(), from.tensor());
}

void slice_scatter_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  copy("slice_scatter", out, x);
  const int dim = at_dim(a.integer(2), x.ndim);
  const int64_t size = x.shape[dim], step = a.has(5) ? a.integer(5) : 1;
  const auto bound = [&](int i, int64_t otherwise) {
    const int64_t given = a.has(i) ? a.integer(i) : otherwise;
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const int64_t start = bound(3, 0), stop = std::max(bound(4, size), start);
  View part(out);
  part.narrow(dim, start, (stop - start + step - 1) / step, step);
  copy("slice_scatter", part.tensor(), a.tensor(1));
}

void pad_constant_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const auto pads = a.ints(1);
  fill("pad_constant", out, a.has(2) ? a.args[2] : rb::int_value(0), rb::int_value(0));
  View from(x), to(out);
  int d = x.ndim;
  for (auto pad = pads.begin(); pad != pads.end(); pad += 2) {  // from the last dimension on
    --d;
    const int64_t before = pad[0], after = pad[1];
    to.narrow(d, std::max<int64_t>(before, 0),
              out.shape[d] - std::max<int64_t>(before, 0) - std::max<int64_t>(after, 0));
    from.narrow(d, std::max<int64_t>(-before, 0), to.size(d));
  }
  copy("pad_constant", to.tensor(), from.tensor());
}

void arange_kernel(const rb::Args& a) {
  const bool from_zero = !a.has(1);
  fill("arange", a.ret(), from_zero ? rb::int_value(0) : a.args[0],
       a.has(2) ? a.args[2] : rb::int_value(1));
}

const rb::KernelSpec kKernels[] = {
    {"cat", rb::wrap<cat_kernel>, 0, kAll},
    {"flip", rb::wrap<flip_kernel>, 0, kAll},
    {"slice_scatter", rb::wrap<slice_scatter_kernel>, 0, kAll},
    {"pad_constant", rb::wrap<pad_constant_kernel>, 0, kAll},
    {"arange", rb::wrap<arange_kernel>, 0, kReal},
};

}  // namespace

int32_t add_movement(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// Dropout of attention's weights where they are in memory.
#include "attention/dropout.h"

#include <algorithm>

#include "common/kernels.h"
#include "rabbet/philox.h"

namespace rbcpu {

Dropout dropout_by(double p) {
  Dropout d;
  d.limit = rb_dropout_limit(p);
  d.factor = p < 1 ? 1 / (1 - p) : 0;
  return d;
}
Dropout dropout_of_head(Dropout d, const View& seed, const View& batch, int batch_ndim,
                        int64_t index) {
  if (!d.any()) return d;
  d.seed =
      reinterpret_cast<const uint64_t*>(seed.data)[head_offset(seed, 0, batch, batch_ndim, index)];
  d.rows = batch.shape[batch_ndim];
  for (int64_t step = 1, i = batch_ndim - 1, k = seed.ndim - 1; i >= 0; --i, --k) {
    if (k < 0 || seed.shape[k] == 1) {
      d.matrix += static_cast<uint64_t>(index % batch.shape[i] * step);
      step *= batch.shape[i];
    }
    index /= batch.shape[i];
  }
  return d;
}

namespace {

// Matrix by matrix, 16 rows at a time.
template <class T>
void drop_weights(const View& in, const View& out, const View& seed, const Dropout& by) {
  const int batch = out.ndim - 2;
  const int64_t rows = out.shape[batch], columns = out.shape[batch + 1], blocks = (rows + 15) / 16,
                space = 16 * columns;
  if (columns == 0) return;
  const auto body = [&](int64_t first, int64_t last) {
    const rb::Scratch<T> values(space);
    const rb::Scratch<uint8_t> places(KeptTile::size(true, 16, columns));
    for (int64_t job = first; job < last; ++job) {
      const int64_t head = job / blocks, i = job % blocks * 16, n = std::min<int64_t>(16, rows - i);
      Dropout d = dropout_of_head(by, seed, out, batch, head);
      d.columns = columns;
      const View copy = plain_view(values.data(), dtype_of<T>, n, columns, columns);
      copy_view(copy, Matrix(in, head_offset(in, 2, out, batch, head)).view(i, n, columns));
      const KeptTile kept(d, i, n, 0, columns, places.data());
      for (int64_t r = 0; r < n; ++r) kept.drop(values.data() + r * columns, r, columns, by.factor);
      copy_view(Matrix(out, head_offset(out, 2, out, batch, head)).view(i, n, columns), copy);
    }
  };
  rb::parallel_for(count_heads(out, 2) * blocks, std::max<int64_t>(1, 8192 / space), body);
}

void attention_dropout_kernel(const rb::Args& args) {
  const View in = view_of(args.tensor(0)), seed = view_of(args.tensor(1)),
             out = view_of(args.ret());
  const Dropout by = dropout_by(args.real(2));
  if (out.dtype == RB_F64) {
    drop_weights<double>(in, out, seed, by);
  } else {
    drop_weights<float>(in, out, seed, by);
  }
}

const rb::KernelSpec kKernels[] = {
    {"attention_dropout", rb::wrap<attention_dropout_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_attention_dropout(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

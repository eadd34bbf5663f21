// Distances between all pairs of rows of two matrices, and their gradients.
#include <algorithm>
#include <cmath>

#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "common/workspace.h"
#include "distance/distance_rows.h"

namespace rbcpu {
namespace {

inline const DistanceTable<float>& table(float) { return RB_PICK_LEVEL(distance_table).f32; }
inline const DistanceTable<double>& table(double) { return RB_PICK_LEVEL(distance_table).f64; }

int norm_of(double p) {
  const Norm norm = p == 0          ? Norm::kZero
                    : p == 1        ? Norm::kOne
                    : p == 2        ? Norm::kTwo
                    : std::isinf(p) ? Norm::kInf
                                    : Norm::kOther;
  return static_cast<int>(norm);
}

// The matrices of an argument, one for each place of the leading dimensions of the result. The
// argument's own leading dimensions broadcast to those.
template <class T>
class Matrices {
 public:
  Matrices(const RbTensor& t, const RbTensor& result)
      : rows(t.shape[t.ndim - 2]), columns(t.shape[t.ndim - 1]), operand_(t), result_(result) {
    const View& v = operand_.view;
    const int missing = result.ndim - t.ndim;
    for (int d = 0; d < result.ndim - 2; ++d)
      strides_[d] = d < missing || v.shape[d - missing] == 1 ? 0 : v.strides[d - missing];
  }
  const T* at(int64_t place) const {
    return elements<T>(operand_.view) + offset_at(place, result_.ndim - 2, result_.shape, strides_);
  }
  const int64_t rows, columns;

 private:
  const DenseOperand operand_;
  const RbTensor& result_;
  int64_t strides_[kMaxDims];
};

int64_t places_of(const RbTensor& result) {
  int64_t n = 1;
  for (int d = 0; d < result.ndim - 2; ++d) n *= result.shape[d];
  return n;
}

void cdist_kernel(const rb::Args& a) {
  const double p = a.has(2) ? a.real(2) : 2.0;
  const int norm = norm_of(p);
  const Result result(a.ret());
  compute<kMaskFloat>(a, result, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> left(a.tensor(0), a.ret()), right(a.tensor(1), a.ret());
    T* const out = elements<T>(result.view);
    const DistanceTable<T>& with = table(T());
    constexpr int64_t kBlock = 128;  // rows of a task
    const int64_t m = left.columns, width = with.panel;
    const int64_t panels = (right.rows + width - 1) / width,
                  blocks = (left.rows + kBlock - 1) / kBlock;
    const int64_t work = std::min(left.rows, kBlock) * width * std::max<int64_t>(m, 1);
    rb::parallel_for(
        places_of(a.ret()) * panels * blocks, std::max<int64_t>(1, 8 * kGrain / work),
        [&](int64_t begin, int64_t end) {
          const Workspace<T> columns(m * width);
          for (int64_t task = begin; task < end; ++task) {
            const int64_t place = task / blocks / panels, first = task / blocks % panels * width,
                          used = std::min(width, right.rows - first);
            const int64_t top = task % blocks * kBlock, bottom = std::min(left.rows, top + kBlock);
            const T* const from = right.at(place) + first * m;
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t c = 0; c < width; ++c)
                columns[i * width + c] = c < used ? from[c * m + i] : T(0);
            }
            const T* const rows = left.at(place);
            T tile[kDistanceRows * kMaxDistancePanel];
            for (int64_t r = top; r < bottom; r += kDistanceRows) {
              const int count = static_cast<int>(std::min<int64_t>(kDistanceRows, bottom - r));
              with.tile[norm](rows + r * m, m, count, columns.data(), m, static_cast<T>(p), tile);
              for (int k = 0; k < count; ++k)
                std::copy_n(tile + k * width, used,
                            out + (place * left.rows + r + k) * right.rows + first);
            }
          }
        });
  });
}

// cdist_backward(g, x1, x2, p, distances)
void cdist_backward_kernel(const rb::Args& a) {
  const double p = a.real(3);
  const int norm = norm_of(p);
  const Result result(a.ret());
  compute<kMaskFloat>(a, result, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> gradient(a.tensor(0), a.ret()), left(a.tensor(1), a.ret()),
        right(a.tensor(2), a.ret()), distance(a.tensor(4), a.ret());
    T* const out = elements<T>(result.view);
    const int64_t m = left.columns, work = m * right.rows + 1;
    rb::parallel_for(places_of(a.ret()) * left.rows, std::max<int64_t>(1, 4 * kGrain / work),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         const int64_t place = i / left.rows, r = i % left.rows;
                         T* const to = out + i * m;
                         std::fill_n(to, m, T(0));
                         table(T()).slope[norm](left.at(place) + r * m, right.at(place), m,
                                                right.rows, m, gradient.at(place) + r * right.rows,
                                                distance.at(place) + r * right.rows,
                                                static_cast<T>(p), to);
                       }
                     });
  });
}

const rb::KernelSpec kKernels[] = {
    {"cdist", rb::wrap<cdist_kernel>, 0, kMaskFloat},
    {"cdist_backward", rb::wrap<cdist_backward_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_distance(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

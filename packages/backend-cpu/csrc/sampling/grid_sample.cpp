// Sampling of images and volumes at points, and the derivatives by the image and the points.
#include <algorithm>
#include <cstring>

#include "common/kernels.h"
#include "common/level.h"
#include "common/operands.h"
#include "sampling/grid_points.h"

namespace rbcpu {
namespace {

inline const GridTable<float>& table(float) { return RB_PICK_LEVEL(grid_table).f32; }
inline const GridTable<double>& table(double) { return RB_PICK_LEVEL(grid_table).f64; }

// A batch of `count` items, each with `channels` planes of `size` elements and `points` points.
struct Grid {
  GridRule rule;
  int64_t count, channels, size, points;

  // Argument `first` is the mode; the padding mode and align_corners follow it.
  Grid(const rb::Args& a, const int64_t* image, const RbTensor& grid, int first) {
    rule.rank = grid.ndim - 2;
    const char *mode = a.str(first), *padding = a.str(first + 1);
    rule.mode = !std::strcmp(mode, "nearest")    ? GridMode::kNearest
                : !std::strcmp(mode, "bilinear") ? GridMode::kLinear
                                                 : GridMode::kCubic;
    rule.padding = !std::strcmp(padding, "zeros")    ? GridPadding::kZeros
                   : !std::strcmp(padding, "border") ? GridPadding::kBorder
                                                     : GridPadding::kReflection;
    rule.align = a.boolean(first + 2);
    count = image[0];
    channels = image[1];
    size = points = 1;
    for (int d = rule.rank - 1; d >= 0; --d) {
      rule.direction[d] = {image[d + 2], size};
      size *= image[d + 2];
      points *= grid.shape[d + 1];
    }
    if (size > INT32_MAX)
      rb::fail(RB_E_NOTIMPL, "%s: planes of 2**31 elements and more", a.op_name());
  }
  int64_t blocks() const { return (points + kGridBlock - 1) / kGridBlock; }
};

// Find the corners of one block of points of item `i`. Returns the number of points.
template <class T>
int find(const Grid& g, const T* grid, int64_t i, int64_t block, bool slopes, GridCorners<T>* to) {
  const int rank = g.rule.rank;
  const int64_t first = block * kGridBlock;
  const int n = static_cast<int>(std::min<int64_t>(kGridBlock, g.points - first));
  T points[3][kGridBlock];
  const T* const from = grid + (i * g.points + first) * rank;
  for (int p = 0; p < n; ++p) {
    for (int d = 0; d < rank; ++d) points[d][p] = from[p * rank + rank - 1 - d];  // x comes first
  }
  table(T()).corners(g.rule, points, n, slopes, to);
  return n;
}

template <class F>
void for_blocks(const Grid& g, const F& f) {
  const int64_t work = (g.channels + 4) * g.rule.corners() * kGridBlock, blocks = g.blocks();
  rb::parallel_for(g.count * blocks, std::max<int64_t>(1, 2 * kGrain / work),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t at = begin; at < end; ++at) f(at / blocks, at % blocks);
                   });
}

void grid_sample_kernel(const rb::Args& a) {
  const RbTensor &input = a.tensor(0), &points = a.tensor(1);
  if (a.ret().numel == 0) return;
  const Grid g(a, input.shape, points, 2);
  const DenseOperand image(input), grid(points);
  const Result result(a.ret());
  compute<kMaskFloat>(a, result, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const out = elements<T>(result.view);
    for_blocks(g, [&](int64_t i, int64_t block) {
      GridCorners<T> corners;
      const int n = find(g, elements<T>(grid.view), i, block, false, &corners),
                count = g.rule.corners();
      for (int64_t c = i * g.channels; c < (i + 1) * g.channels; ++c)
        table(T()).sample(elements<T>(image.view) + c * g.size, corners, count, n,
                          out + c * g.points + block * kGridBlock);
    });
  });
}

void grid_sample_dx_kernel(const rb::Args& a) {
  const RbTensor &gradient = a.tensor(0), &points = a.tensor(1);
  RbTensor& out = a.ret();
  if (out.numel == 0) return;
  const Grid g(a, out.shape, points, 3);
  const DenseOperand from(gradient), grid(points);
  const Result result(out);
  compute<kMaskFloat>(a, result, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const sums = elements<T>(result.view);
    // Few items are split into groups of channels.
    constexpr int64_t kTasks = 8;
    const int64_t groups = std::clamp<int64_t>(kTasks / g.count, 1, g.channels),
                  each = (g.channels + groups - 1) / groups;
    const int64_t work = each * (g.size + 4 * g.points * g.rule.corners());
    rb::parallel_for(
        g.count * groups, std::max<int64_t>(1, kGrain / (work + 1)),
        [&](int64_t begin, int64_t end) {
          for (int64_t task = begin; task < end; ++task) {
            const int64_t i = task / groups, first = std::min(g.channels, task % groups * each),
                          last = std::min(g.channels, first + each);
            std::fill_n(sums + (i * g.channels + first) * g.size, (last - first) * g.size, T(0));
            GridCorners<T> corners;
            for (int64_t block = 0; block < g.blocks(); ++block) {
              const int n = find(g, elements<T>(grid.view), i, block, false, &corners);
              for (int64_t c = i * g.channels + first; c < i * g.channels + last; ++c) {
                const T* const grad = elements<T>(from.view) + c * g.points + block * kGridBlock;
                T* const plane = sums + c * g.size;
                for (int k = 0; k < g.rule.corners(); ++k) {
                  const int32_t* const index = corners.index[k];
                  const T* const weight = corners.weight[k];
                  for (int p = 0; p < n; ++p) {
                    if (index[p] >= 0) plane[index[p]] += weight[p] * grad[p];
                  }
                }
              }
            }
          }
        });
  });
}

void grid_sample_dgrid_kernel(const rb::Args& a) {
  const RbTensor &gradient = a.tensor(0), &input = a.tensor(1), &points = a.tensor(2);
  if (a.ret().numel == 0) return;
  const Grid g(a, input.shape, points, 3);
  const DenseOperand from(gradient), image(input), grid(points);
  const Result result(a.ret());
  compute<kMaskFloat>(a, result, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const out = elements<T>(result.view);
    const int rank = g.rule.rank;
    for_blocks(g, [&](int64_t i, int64_t block) {
      GridCorners<T> corners;
      const int n = find(g, elements<T>(grid.view), i, block, true, &corners),
                count = g.rule.corners();
      T sums[3][kGridBlock] = {};
      for (int64_t c = i * g.channels; c < (i + 1) * g.channels; ++c)
        table(T()).slopes(elements<T>(image.view) + c * g.size, corners, rank, count, n,
                          elements<T>(from.view) + c * g.points + block * kGridBlock, sums);
      T* const to = out + (i * g.points + block * kGridBlock) * rank;
      for (int p = 0; p < n; ++p) {
        for (int d = 0; d < rank; ++d) to[p * rank + rank - 1 - d] = sums[d][p];
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"grid_sample", rb::wrap<grid_sample_kernel>, 0, kMaskFloat},
    {"grid_sample_dx", rb::wrap<grid_sample_dx_kernel>, 0, kMaskFloat},
    {"grid_sample_dgrid", rb::wrap<grid_sample_dgrid_kernel>, 0, kMaskFloat},
};

}  // namespace

int32_t add_grid_sample(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

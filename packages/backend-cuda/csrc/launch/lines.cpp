#include "launch/lines.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "launch/view.h"

namespace rbcuda {
namespace {

constexpr int64_t kThreads = 256;         // RB_BLOCK of lines.cuh
constexpr int64_t kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
constexpr int64_t kEnough = 1024;         // blocks from which on no line is cut
constexpr int64_t kSegment = 4096;        // elements of a line that are worth a cut
constexpr int64_t kWarp = 32;

int64_t power_above(int64_t n, int64_t most) {
  int64_t power = 1;
  while (power < most && power < n) power *= 2;
  return power;
}

}  // namespace

LinePlan plan_lines(int64_t lines, int64_t length, bool columns, bool splits) {
  LinePlan plan = {};
  int64_t width, across;
  if (columns) {
    across = power_above(lines, kWarp);
    width = power_above((length + 3) / 4, kThreads / across);
  } else {
    width = std::max(power_above(length, kWarp), power_above((length + 7) / 8, kThreads));
    across = power_above(lines, kThreads / width);
  }
  const int64_t blocks = (lines + across - 1) / across;
  plan.segments = 1;
  if (splits && blocks < kEnough && lines > 0)
    plan.segments =
        std::clamp<int64_t>(length / kSegment, 1, kEnough / std::max<int64_t>(blocks, 1) + 1);
  plan.segment = (length + plan.segments - 1) / plan.segments;
  plan.segment = (plan.segment + 15) / 16 * 16;  // vectors do not cross segments
  plan.segments =
      std::max<int64_t>(1, (length + plan.segment - 1) / std::max<int64_t>(plan.segment, 1));
  plan.lines = {static_cast<int32_t>(width), static_cast<int32_t>(across), columns, 0};
  const int64_t all = (lines * plan.segments + across - 1) / across;
  plan.grid = Grid{static_cast<unsigned>(std::clamp<int64_t>(all, 1, kMostBlocks)), 1, 1,
                   static_cast<unsigned>(width * across)};
  return plan;
}

LinePlan plan_lines(const SplitLayout& layout, int k, bool splits) {
  const auto fastest = [k](const Layout& l) { return std::abs(l.strides[k][l.ndim - 1]); };
  const bool columns = layout.inner.n > 1 && layout.lines.n > 1 && fastest(layout.lines) != 0 &&
                       fastest(layout.lines) < fastest(layout.inner);
  return plan_lines(layout.lines.n, layout.inner.n, columns, splits);
}

namespace {

// The stride of `t` in dimension `d` of `ndim` to which it broadcasts.
int64_t stride_at(const RbTensor& t, int d, int ndim) {
  const int own = d - (ndim - t.ndim);
  return own >= 0 && t.shape[own] != 1 ? t.strides[own] : 0;
}

}  // namespace

SplitLayout split_layout(const char* op, std::initializer_list<const RbTensor*> tensors,
                         const bool* inner, int lead, bool sort_inner) {
  const RbTensor& first = **tensors.begin();
  const RbTensor& leader = *tensors.begin()[lead];
  SplitLayout split;
  for (const bool within : {false, true}) {
    int dims[RB_MAX_DIMS], count = 0;
    for (int d = 0; d < first.ndim; ++d)
      if (inner[d] == within) dims[count++] = d;
    if (!within || sort_inner)
      std::stable_sort(dims, dims + count, [&](int a, int b) {
        return std::abs(stride_at(leader, a, first.ndim)) >
               std::abs(stride_at(leader, b, first.ndim));
      });
    std::vector<View> views;
    const RbTensor* parts[kLayoutTensors] = {};
    views.reserve(kLayoutTensors);
    for (const RbTensor* t : tensors) {
      View& view = views.emplace_back(scalar_view(*t));
      for (int k = 0; k < count; ++k)
        view.add(first.shape[dims[k]], stride_at(*t, dims[k], first.ndim));
      parts[views.size() - 1] = &view.tensor();
    }
    (within ? split.inner : split.lines) = layout_of(op, {parts[0], parts[1], parts[2], parts[3]});
  }
  return split;
}

}  // namespace rbcuda

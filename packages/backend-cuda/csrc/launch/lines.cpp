#include "launch/lines.h"

#include <algorithm>
#include <cstdlib>

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

SplitLayout split_layout(const char* op, std::initializer_list<const RbTensor*> tensors,
                         const bool* inner, int lead, bool sort_inner) {
  const int ndim = tensors.begin()[0]->ndim;
  int dims[RB_MAX_DIMS], outer = 0, within = ndim;  // the lines' ones from the front on
  for (int d = 0; d < ndim; ++d)
    if (!inner[d]) dims[outer++] = d;
  for (int d = ndim - 1; d >= 0; --d)
    if (inner[d]) dims[--within] = d;
  sort_by_stride(dims, outer, *tensors.begin()[lead], ndim);
  if (sort_inner) sort_by_stride(dims + outer, ndim - outer, *tensors.begin()[lead], ndim);
  return {layout_over(op, dims, outer, tensors),
          layout_over(op, dims + outer, ndim - outer, tensors)};
}

}  // namespace rbcuda

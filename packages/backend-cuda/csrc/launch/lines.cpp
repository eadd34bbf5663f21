#include "launch/lines.h"

#include <algorithm>
#include <cstdlib>

namespace rbcuda {
namespace {

constexpr int64_t kThreads = 256;         // RB_BLOCK of lines.cuh
constexpr int64_t kMostThreads = 512;     // RB_MOST_THREADS of lines.cuh
constexpr int64_t kMostBlocks = 1 << 20;  // kernels step by the grid beyond that
constexpr int64_t kEnough = 1024;         // blocks from which on no line is cut
constexpr int64_t kSegment = 4096;        // elements of a line that are worth a cut
constexpr int64_t kWarp = 32;
constexpr int64_t kTogether = 64;  // bytes that the threads of a row should load side by side

// `most` is a power of two, too.
int64_t power_above(int64_t n, int64_t most) {
  const int64_t power = n <= 1 ? 1 : int64_t{1} << (64 - __builtin_clzll(n - 1));
  return power < most ? power : most;
}

// Threads of a line, and lines of a block.
struct Shape {
  int64_t width, across;
};
Shape columns_of(int64_t lines, int64_t length) {
  const int64_t across = power_above(lines, kWarp);
  return {power_above((length + 3) / 4, kThreads / across), across};
}
// Blocks have whole warps.
Shape rows_of(int64_t lines, int64_t width) {
  const int64_t least = std::max<int64_t>(1, kWarp / width);
  return {width, std::max(least, power_above(lines, std::max<int64_t>(1, kThreads / width)))};
}

void set_grid(LinePlan& plan, int64_t lines, Shape shape, bool columns) {
  if (columns && shape.width * shape.across < kWarp) shape.width = kWarp / shape.across;
  plan.lines = {static_cast<int32_t>(shape.width), static_cast<int32_t>(shape.across), columns, 0};
  const int64_t all = (lines * plan.segments + shape.across - 1) / shape.across;
  plan.grid = Grid{static_cast<unsigned>(std::clamp<int64_t>(all, 1, kMostBlocks)), 1, 1,
                   static_cast<unsigned>(shape.width * shape.across)};
}

void cut(LinePlan& plan, int64_t lines, int64_t across, int pack) {
  const int64_t blocks = (lines + across - 1) / across;
  plan.segments = 1;
  if (blocks < kEnough && lines > 0)
    plan.segments = std::clamp<int64_t>(plan.count / (kSegment / pack), 1,
                                        kEnough / std::max<int64_t>(blocks, 1) + 1);
  plan.segment = (plan.count + plan.segments - 1) / plan.segments;
  plan.segments =
      std::max<int64_t>(1, (plan.count + plan.segment - 1) / std::max<int64_t>(plan.segment, 1));
}

// Loads of a line that a thread holds where `width` threads at most share it: 2 or 4 packs, or four
// times as many elements, `most` at most; 0: too few.
int held_by(int64_t width, int64_t loads, int each, int most) {
  if (loads <= width * 2 * each) return 2;
  return (each == 1 || most == 4) && loads <= width * 4 * each ? 4 : 0;
}

}  // namespace

LinePlan plan_lines(const SplitLayout& layout, const Operands4& operands,
                    const LineOptions& options) {
  const Layout &outer = layout.lines, &inner = layout.inner;
  const int k = options.lead;
  const auto fastest = [k](const Layout& l) { return std::abs(l.strides[k][l.ndim - 1]); };
  const bool columns =
      inner.n > 1 && outer.n > 1 && fastest(outer) != 0 && fastest(outer) < fastest(inner);
  LinePlan plan;
  plan.set(inner, operands, k, options.single, &outer);
  const int size = operands[k].size, pack = plan.packs ? kPackBytes / size : 1;
  const int each = plan.packs ? 1 : 4;
  plan.segment = plan.count;
  const int64_t lines = outer.n;
  Shape shape;
  if (columns) {
    shape = columns_of(lines, plan.count);
    const int64_t most = kThreads / shape.across;
    if (options.holds) plan.held = held_by(most, plan.count, each, options.holds);
    if (plan.held)
      shape.width = power_above((plan.count + plan.held * each - 1) / (plan.held * each), most);
  } else {
    if (options.holds) plan.held = held_by(kMostThreads, plan.count, each, options.holds);
    const int64_t share = plan.held ? plan.held * each : plan.packs ? 4 : 8;
    const int64_t together = power_above(kTogether / (pack * size), kWarp);
    const int64_t most = plan.held ? kMostThreads : kThreads;
    shape = rows_of(lines, std::max(power_above(plan.count, together),
                                    power_above((plan.count + share - 1) / share, most)));
  }
  if (options.splits) cut(plan, lines, shape.across, pack);
  set_grid(plan, lines, shape, columns);
  return plan;
}

LinePlan plan_states(int64_t lines, int64_t length) {
  LinePlan plan;
  plan.count = plan.segment = length;
  const bool columns = lines > 1;
  set_grid(plan, lines,
           columns ? columns_of(lines, length)
                   : rows_of(lines, std::max(power_above(length, kWarp),
                                             power_above((length + 7) / 8, kThreads))),
           columns);
  return plan;
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

// How a launch goes through lines of elements: kernels/lines.cuh.
#pragma once
#include "launch/jit.h"

namespace rbcuda {

/// Twin of Lines in lines.cuh: a block takes `across` lines at a time, each by `width` threads.
struct Lines {
  int32_t width, across, columns, reserved;
};

/// Lines, and the elements in each of them: what is reduced, or normalised, together.
struct SplitLayout {
  Layout lines, inner;
};
/// Dimensions of the first tensor, to whose shape the others broadcast, where `inner` says so
/// within the lines. They are sorted by the strides of tensor `lead`, those within only where
/// `sort_inner`.
SplitLayout split_layout(const char* op, std::initializer_list<const RbTensor*> tensors,
                         const bool* inner, int lead, bool sort_inner = true);

struct LinePlan {
  Lines lines;
  Grid grid;
  int64_t segment, segments;  // elements in a part of a line, and parts of each line
};

/// Lines of `layout`, whose tensor `k` is the one that it pays to read in the order of memory.
/// `splits`: lines may be cut into segments where there are few of them.
LinePlan plan_lines(const SplitLayout& layout, int k, bool splits);
/// The same for `lines` lines of `length` elements; columns: neighbours in memory are of different
/// lines.
LinePlan plan_lines(int64_t lines, int64_t length, bool columns, bool splits);

}  // namespace rbcuda

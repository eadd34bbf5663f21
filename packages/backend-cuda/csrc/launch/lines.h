// How a launch goes through lines of elements: kernels/lines.cuh.
#pragma once
#include "launch/jit.h"
#include "launch/packs.h"

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

struct LineOptions {
  int lead = 0;         // the tensor that it pays to read in the order of memory
  bool splits = false;  // lines may be cut into segments where there are few of them
  // How much of a line a thread may hold in registers: 0 nothing; 2 or 4 at most that many groups
  // of four elements, and at most 4 packs. 2 leaves registers for other operands.
  uint8_t holds = 0;
  int32_t single = 0;  // see packed()
};

/// Kernels take PackedTexts of it, and `places.argument()`. `count` is of a line.
struct LinePlan : Packed {
  Lines lines;
  Grid grid;
  int64_t segment = 0, segments = 1;  // loads in a part of a line, and parts of each line
};

/// `operands`: the tensors of the layout.
LinePlan plan_lines(const SplitLayout& layout, const Operands4& operands,
                    const LineOptions& options);
/// `lines` columns, or rows, of `length` states, which are never cut.
LinePlan plan_states(int64_t lines, int64_t length);

}  // namespace rbcuda

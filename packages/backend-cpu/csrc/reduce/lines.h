// Lines: the 1-d runs of a tensor along one dimension.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "reduce/reduce.h"

namespace rbcpu {

/// The lines along `dim` of N views of one shape; a 0-d view has one line of one element.
template <int N>
struct Lines {
  int64_t n = 1, count = 1;       // length and number of lines
  std::array<int64_t, N> step{};  // stride along a line
  int nd = 0;
  int64_t shape[kMaxDims];
  int64_t strides[N][kMaxDims];

  Lines(const std::array<View, N>& views, int dim) {
    for (int d = 0; d < views[0].ndim; ++d) {
      if (d == dim) {
        n = views[0].shape[d];
        for (int k = 0; k < N; ++k) step[k] = views[k].strides[d];
        continue;
      }
      count *= views[0].shape[d];
      shape[nd] = views[0].shape[d];
      for (int k = 0; k < N; ++k) strides[k][nd] = views[k].strides[d];
      ++nd;
    }
  }
  int64_t offset(int k, int64_t line) const { return offset_at(line, nd, shape, strides[k]); }
};

/// Run f(line) over all lines on the pool; `work` scales the cost of an element.
template <int N, class F>
void for_lines(const Lines<N>& lines, int64_t work, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, lines.n * work));
  rb::parallel_for(lines.count, grain, f);
}

}  // namespace rbcpu

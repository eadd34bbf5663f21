// Sizes of a convolution in one to three directions; those that are missing have size 1.
#pragma once
#include <algorithm>

#include "common/kernels.h"

namespace rbcpu {

struct ConvGeometry {
  int64_t n, c, o, groups;
  int64_t in[3], kernel[3], out[3];  // depth, height, width
  int64_t stride[3], padding[3], dilation[3];

  int64_t cg() const { return c / groups; }
  int64_t og() const { return o / groups; }
  int64_t window() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t depth() const { return cg() * window(); }
  int64_t in_plane() const { return in[1] * in[2]; }
  int64_t out_plane() const { return out[1] * out[2]; }
  int64_t in_volume() const { return in[0] * in_plane(); }
  int64_t out_volume() const { return out[0] * out_plane(); }
  /// Whether no direction has much more padding than elements: the strides and windows are then of
  /// the input's order of size, and copies of padded planes are worth their memory.
  bool is_near() const {
    for (int d = 0; d < 3; ++d) {
      if (padding[d] > in[d] + 64) return false;
    }
    return true;
  }
};

/// Input of shape x, weight of shape w and output of shape y (all of `ndim` dimensions); stride,
/// padding, dilation and groups are arguments `first`, ... of the call.
inline ConvGeometry conv_geometry(const rb::Args& a, int ndim, const int64_t* x, const int64_t* w,
                                  const int64_t* y, int first) {
  const char* op = a.op_name();
  if (ndim < 3 || ndim > 5) rb::fail(RB_E_ARG, "%s: expected 3 to 5 dimensions, got %d", op, ndim);
  ConvGeometry g;
  g.n = x[0];
  g.c = x[1];
  g.o = w[0];
  g.groups = a.integer(first + 3);
  if (g.groups < 1 || g.c % g.groups || g.o % g.groups || w[1] != g.c / g.groups) {
    rb::fail(RB_E_ARG,
             "%s: a weight of (%lld, %lld, ...) does not fit %lld input channels in %lld groups",
             op, static_cast<long long>(w[0]), static_cast<long long>(w[1]),
             static_cast<long long>(g.c), static_cast<long long>(g.groups));
  }
  const int rank = ndim - 2, missing = 3 - rank;
  static const char* const kNames[] = {"stride", "padding", "dilation"};
  int64_t* const values[] = {g.stride, g.padding, g.dilation};
  for (int v = 0; v < 3; ++v) {
    const auto given = a.ints(first + v);
    if (given.len != 1 && given.len != static_cast<uint32_t>(rank))
      rb::fail(RB_E_ARG, "%s: `%s` must have %d entries, got %u", op, kNames[v], rank, given.len);
    const int64_t least = v == 1 ? 0 : 1;
    for (int d = 0; d < 3; ++d) {
      values[v][d] = d < missing ? least : given[given.len == 1 ? 0 : d - missing];
      if (values[v][d] < least)
        rb::fail(RB_E_ARG, "%s: `%s` must be at least %lld, got %lld", op, kNames[v],
                 static_cast<long long>(least), static_cast<long long>(values[v][d]));
    }
  }
  bool fits = y[0] == g.n && y[1] == g.o;
  for (int d = 0; d < 3; ++d) {
    const int at = 2 + d - missing;
    g.in[d] = d < missing ? 1 : x[at];
    g.kernel[d] = d < missing ? 1 : w[at];
    const int64_t room = g.in[d] + 2 * g.padding[d] - g.dilation[d] * (g.kernel[d] - 1) - 1;
    g.out[d] = room < 0 ? 0 : room / g.stride[d] + 1;
    fits = fits && g.kernel[d] >= 1 && g.out[d] == (d < missing ? 1 : y[at]);
    // A single window has any stride, a single tap any dilation: no algorithm shall see large ones.
    g.stride[d] = std::min(g.stride[d], std::max<int64_t>(1, g.in[d] + 2 * g.padding[d]));
    if (g.kernel[d] == 1) g.dilation[d] = 1;
  }
  if (!fits) {
    rb::fail(RB_E_ARG, "%s: expected an output of (%lld, %lld, then %lld, %lld, %lld in space)", op,
             static_cast<long long>(g.n), static_cast<long long>(g.o),
             static_cast<long long>(g.out[0]), static_cast<long long>(g.out[1]),
             static_cast<long long>(g.out[2]));
  }
  return g;
}

}  // namespace rbcpu

// The sizes and strides of a convolution, with three directions: what is missing has size 1.
#pragma once
#include <cstdint>

namespace rbcuda {

constexpr int64_t kFewChannels = 4;  // of a group that needs no tiles

struct Conv {  // twin of the one in conv.cuh
  int64_t n, groups, channels, outputs;
  int64_t in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];
  int64_t x_batch, x_channel, x_step[3];
  int64_t w_output, w_channel, w_step[3];
  int64_t y_batch, y_channel, y_step[3];
  int64_t bias_step, segment;

  int64_t inputs() const { return n * in[0] * in[1] * in[2]; }
  int64_t positions() const { return n * out[0] * out[1] * out[2]; }
  int64_t window() const { return kernel[0] * kernel[1] * kernel[2]; }
  bool is_direct() const {
    return groups > 1 && channels <= kFewChannels && outputs <= kFewChannels;
  }
};

/// Into how many segments the sum of a weight's gradient is cut, by how many blocks there are for
/// each: few blocks do not occupy a device.
int64_t segments_of(const Conv& c, int64_t blocks);

}  // namespace rbcuda

// Depthwise convolution and its derivatives, once per instruction-set level: planes are read in
// place, a vector of windows at a time; lanes of a window that lie outside are masked. Compiled
// with contraction, so that a * b + c is one instruction where the level has it.
#include "common/level.h"
#include "conv/conv_types.h"
#include "conv/conv_vector.h"

namespace {

using rbcpu::ConvDepthwise;
using rbcpu::ConvDepthwiseTaps;
using rbcpu::ConvWindows;
using rbcpu::kDepthwiseWidth;

RB_ALWAYS int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

// Of the windows from c0 on, those whose element j lies inside.
template <class T, int Stride>
RB_ALWAYS Strided<T, Stride> inside(const ConvWindows& at, int64_t c0, int64_t j) {
  const int64_t stride = Stride ? Stride : at.stride[1],
                first = c0 * stride + at.corner[1] + j * at.dilation[1];
  const int64_t end = ceil_div(at.source[1] - first, stride), rest = at.windows[1] - c0;
  return {ceil_div(-first, stride), end < rest ? end : rest, stride};
}

// Kernel: height and width of the window, or 0 for those of the argument.
template <class T, int Kernel, int Stride>
void gather_windows(const ConvDepthwise<T>& d) {
  const ConvWindows& at = d.at;
  const int64_t height = Kernel ? Kernel : at.kernel[0], width = Kernel ? Kernel : at.kernel[1],
                stride = Stride ? Stride : at.stride[1];
  for (int64_t c0 = 0; c0 < at.windows[1]; c0 += kLanes<T>) {
    Strided<T, Stride> seen[Kernel ? Kernel : kDepthwiseWidth];
#pragma GCC unroll 3
    for (int64_t j = 0; j < width; ++j) seen[j] = inside<T, Stride>(at, c0, j);
    const Lanes<T> written(0, at.windows[1] - c0);
    const T* column = d.source + c0 * stride + at.corner[1];
    for (int64_t r = d.first; r < d.last; ++r) {
      Vec<T> sum = Vec<T>{} + d.bias;
#pragma GCC unroll 3
      for (int64_t i = 0; i < height; ++i) {
        const int64_t y = r * at.stride[0] + at.corner[0] + i * at.dilation[0];
        if (y < 0 || y >= at.source[0]) continue;
        const T* x = column + y * at.source[1];
#pragma GCC unroll 3
        for (int64_t j = 0; j < width; ++j)
          sum += d.weight[i * width + j] * seen[j].load(x + j * at.dilation[1]);
      }
      written.store(d.out + r * at.windows[1] + c0, sum);
    }
  }
}

// Three rows of windows grow while the rows of the source pass: each is read once, and not shortly
// after the store of a result that lies at the same place of another page, which would delay it.
template <class T>
void slide(const ConvDepthwise<T>& d) {
  const ConvWindows& at = d.at;
  for (int64_t c0 = 0; c0 < at.windows[1]; c0 += kLanes<T>) {
    Strided<T, 1> seen[3];
#pragma GCC unroll 3
    for (int64_t j = 0; j < 3; ++j) seen[j] = inside<T, 1>(at, c0, j);
    const Lanes<T> written(0, at.windows[1] - c0);
    const T* column = d.source + c0 + at.corner[1];
    const Vec<T> bias = Vec<T>{} + d.bias;
    Vec<T> w[9];
#pragma GCC unroll 9
    for (int t = 0; t < 9; ++t) w[t] = Vec<T>{} + d.weight[t];
    Vec<T> upper = bias, middle = bias, lower = bias;
    for (int64_t r = d.first - 2; r < d.last; ++r) {
      const int64_t y = r + 2 + at.corner[0];
      if (y >= 0 && y < at.source[0]) {
        const T* x = column + y * at.source[1];
#pragma GCC unroll 3
        for (int64_t j = 0; j < 3; ++j) {
          const Vec<T> v = seen[j].load(x + j * at.dilation[1]);
          upper += w[6 + j] * v;
          middle += w[3 + j] * v;
          lower += w[j] * v;
        }
      }
      if (r >= d.first) written.store(d.out + r * at.windows[1] + c0, upper);
      upper = middle;
      middle = lower;
      lower = bias;
    }
  }
}

template <class T, int Kernel>
void gather_strided(const ConvDepthwise<T>& d) {
  if (d.at.stride[1] == 1) return gather_windows<T, Kernel, 1>(d);
  if (d.at.stride[1] == 2) return gather_windows<T, Kernel, 2>(d);
  gather_windows<T, Kernel, 0>(d);
}
template <class T>
void gather(const ConvDepthwise<T>& d) {
  const ConvWindows& at = d.at;
  const bool three = at.kernel[0] == 3 && at.kernel[1] == 3;
  if (three && at.stride[0] == 1 && at.dilation[0] == 1 && at.stride[1] == 1) return slide(d);
  if (three) return gather_strided<T, 3>(d);
  gather_strided<T, 0>(d);
}

// Columns c0 * stride + b, (c0 + 1) * stride + b, ... of the source see these elements of the
// window.
template <class T>
struct SpreadTaps {
  int64_t count = 0;
  int64_t element[kDepthwiseWidth], shift[kDepthwiseWidth];
  Lanes<T> lanes[kDepthwiseWidth];
};

template <class T>
void find_taps(const ConvWindows& at, int64_t c0, int64_t b, SpreadTaps<T>& taps) {
  for (int64_t j = 0; j < at.kernel[1]; ++j) {
    const int64_t far = b - at.corner[1] - j * at.dilation[1];
    if (far % at.stride[1] != 0) continue;
    const int64_t shift = far / at.stride[1];
    taps.element[taps.count] = j;
    taps.shift[taps.count] = c0 + shift;
    taps.lanes[taps.count++] = Lanes<T>(-c0 - shift, at.windows[1] - c0 - shift);
  }
}

// Stride: of rows and columns, or 0 for those of the argument.
template <class T, int Stride>
void spread_strided(const ConvDepthwise<T>& d) {
  constexpr int L = kLanes<T>;
  const ConvWindows& at = d.at;
  const int64_t row_stride = Stride ? Stride : at.stride[0],
                stride = Stride ? Stride : at.stride[1], width = at.source[1];
  for (int64_t c0 = 0; c0 * stride < width; c0 += L) {
    for (int64_t b0 = 0; b0 < stride; b0 += 2) {
      const int64_t phases = stride - b0 < 2 ? 1 : 2;
      SpreadTaps<T> taps[2];
      for (int64_t b = 0; b < phases; ++b) find_taps(at, c0, b0 + b, taps[b]);
      const Lanes<T> low(0, width - 2 * c0), high(0, width - 2 * c0 - L);
      for (int64_t y = d.first; y < d.last; ++y) {
        Vec<T> sum[2] = {Vec<T>{}, Vec<T>{}};
        for (int64_t i = 0; i < at.kernel[0]; ++i) {
          const int64_t far = y - at.corner[0] - i * at.dilation[0];
          if (far < 0 || far % row_stride != 0 || far / row_stride >= at.windows[0]) continue;
          const T* g = d.source + far / row_stride * at.windows[1];
          const T* weight = d.weight + i * at.kernel[1];
#pragma GCC unroll 2
          for (int b = 0; b < 2; ++b) {
            for (int64_t t = 0; t < taps[b].count; ++t)
              sum[b] += weight[taps[b].element[t]] * taps[b].lanes[t].load(g + taps[b].shift[t]);
          }
        }
        T* out = d.out + y * width + c0 * stride;
        if (stride == 2) {
          low.store(out, zip_lanes<T, 0>(sum[0], sum[1]));
          high.store(out + L, zip_lanes<T, L / 2>(sum[0], sum[1]));
          continue;
        }
        for (int64_t b = b0; b < b0 + phases; ++b) {
          for (int l = 0; l < L && (c0 + l) * stride + b < width; ++l)
            out[l * stride + b] = sum[b - b0][l];
        }
      }
    }
  }
}

template <class T>
void spread(const ConvDepthwise<T>& d) {
  if (d.at.stride[0] == 2 && d.at.stride[1] == 2) return spread_strided<T, 2>(d);
  spread_strided<T, 0>(d);
}

// Rows x Width elements of the window from (i0, j0) on.
template <class T, int Rows, int Width, int Stride>
void sums(const ConvDepthwiseTaps<T>& d, int64_t i0, int64_t j0) {
  const ConvWindows& at = d.at;
  const int64_t stride = Stride ? Stride : at.stride[1];
  Vec<T> sum[Rows * Width];
#pragma GCC unroll 9
  for (int t = 0; t < Rows * Width; ++t) sum[t] = Vec<T>{};
  for (int64_t c0 = 0; c0 < at.windows[1]; c0 += kLanes<T>) {
    Strided<T, Stride> seen[Width];
#pragma GCC unroll 9
    for (int j = 0; j < Width; ++j) seen[j] = inside<T, Stride>(at, c0, j0 + j);
    const Lanes<T> read(0, at.windows[1] - c0);
    for (int64_t image = 0; image < d.images; ++image) {
      const T* column =
          d.source + image * d.source_step + c0 * stride + at.corner[1] + j0 * at.dilation[1];
      const T* g = d.g + image * d.g_step + c0;
      for (int64_t r = d.first; r < d.last; ++r) {
        const Vec<T> v = read.load(g + r * at.windows[1]);
#pragma GCC unroll 9
        for (int i = 0; i < Rows; ++i) {
          const int64_t y = r * at.stride[0] + at.corner[0] + (i0 + i) * at.dilation[0];
          if (y < 0 || y >= at.source[0]) continue;
          const T* x = column + y * at.source[1];
#pragma GCC unroll 9
          for (int j = 0; j < Width; ++j)
            sum[i * Width + j] += v * seen[j].load(x + j * at.dilation[1]);
        }
      }
    }
  }
#pragma GCC unroll 9
  for (int t = 0; t < Rows * Width; ++t)
    d.sum[(i0 + t / Width) * at.kernel[1] + j0 + t % Width] += horizontal<T>(sum[t]);
}

template <class T, int Stride>
void depthwise_sums(const ConvDepthwiseTaps<T>& d) {
  const int64_t height = d.at.kernel[0], width = d.at.kernel[1];
  if (height == 3 && width == 3) return sums<T, 3, 3, Stride>(d, 0, 0);
  for (int64_t i = 0; i < height; ++i) {
    int64_t j = 0;
    for (; j + 5 <= width; j += 5) sums<T, 1, 5, Stride>(d, i, j);
    for (; j + 2 <= width; j += 2) sums<T, 1, 2, Stride>(d, i, j);
    for (; j < width; ++j) sums<T, 1, 1, Stride>(d, i, j);
  }
}
template <class T>
void depthwise_taps(const ConvDepthwiseTaps<T>& d) {
  if (d.at.stride[1] == 1) return depthwise_sums<T, 1>(d);
  if (d.at.stride[1] == 2) return depthwise_sums<T, 2>(d);
  depthwise_sums<T, 0>(d);
}

template <class T>
constexpr rbcpu::ConvDepthwiseTable<T> kTable = {gather<T>, spread<T>, depthwise_taps<T>};

}  // namespace

namespace rbcpu {
extern const ConvDepthwiseTables RB_LEVEL_NAME(conv_depthwise_table) = {kTable<float>,
                                                                        kTable<double>};
}

// The parts of a convolution that simd_conv*.cpp compute: shared with the per-level kernels, so
// without anything of the standard library.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace rbcpu {

/// One plane of an input copied with zeros around it and its columns sorted by their remainder
/// modulo `phases`, so that a window of any stride reads runs. Row r of the copy is row top + r of
/// the plane; element c of phase f is column left + c * phases + f; all rows are phases * pitch
/// long.
template <class T>
struct ConvPlane {
  const T* from;      // null: a plane of zeros
  int64_t h, w;       // of the plane
  int64_t top, left;  // of the copy in the plane, may be negative
  int64_t rows, pitch, phases;
  uint64_t used_rows, row_period;  // bit r % row_period: whether row r is ever read
  uint64_t used_phases;
  T* to;
};

/// Output channels of one strip: out[m, pixel] = bias[m] + sum over k of weight[k, m] *
/// source[offset[k] + place of pixel]. Pixels are numbered image by image, row by row.
template <class T>
struct ConvStrip {
  int64_t m, depth;
  const T* weight;        // as pack_weight writes it
  const int64_t* offset;  // `depth` of them
  const T* source;
  int64_t images, rows, cols, image_step, row_step;
  bool slack;  // whether a vector may be read from every pixel
  T* out;
  int64_t out_channel, out_image;  // steps; the pixels of one image follow each other
  const T* bias;                   // may be null
  T* panel;                        // ConvTable::panel elements
  T* stage;                        // m x pixels where there are several images
};

/// A weight as `depth` x `m`: element (k, m) at from + m * row + offset[k].
template <class T>
struct ConvWeight {
  const T* from;
  int64_t m, depth, row;
  const int64_t* offset;
  T* to;                // m * depth elements
  int64_t first, last;  // panels of ConvTable::rows channels
};

/// Sums of products over the pixels of a strip: sum[tap, o] += x[tap + pixel] * g[pixel, o] for
/// taps that are `row` places in x and `width` neighbours of each.
template <class T>
struct ConvTaps {
  const T* const* row;
  int64_t rows, width;
  int64_t images, lines, cols;              // pixels
  int64_t image_step, line_step, col_step;  // of x
  const T* g;                               // as pack_gradient writes one panel
  int64_t lanes;                            // of a panel
  T* sum;                                   // (rows * width) x lanes
};

/// Planes (channels x pixels) turned to pixel-major panels of `lanes` channels, zero beyond `m`.
template <class T>
struct ConvGradient {
  const T* from;
  int64_t m, channel, pixels;
  int64_t lanes;
  T* to;  // panels of `panel` elements each
  int64_t panel;
};

/// How the windows of a depthwise convolution lie in a source plane: element (i, j) of window (r,
/// c) is row r * stride[0] + corner[0] + i * dilation[0], the column likewise; zero outside.
struct ConvWindows {
  int64_t source[2], windows[2], kernel[2], stride[2], corner[2], dilation[2];  // height, width
};
constexpr int64_t kDepthwiseWidth = 32;  // of a kernel, at most

/// Rows [first, last) of one plane of a depthwise convolution or of its input's gradient.
template <class T>
struct ConvDepthwise {
  ConvWindows at;
  const T *source, *weight;
  T* out;
  T bias;  // of the convolution
  int64_t first, last;
};

/// Gradient of a window: sum[i, j] += the sum over images and windows in rows [first, last) of g *
/// element (i, j).
template <class T>
struct ConvDepthwiseTaps {
  ConvWindows at;
  const T *source, *g;
  int64_t images, source_step, g_step;
  int64_t first, last;
  T* sum;
};

template <class T>
struct ConvTable {
  int64_t rows;   // output channels that one micro-kernel takes
  int64_t panel;  // elements of ConvStrip::panel
  void (*copy_plane)(const ConvPlane<T>&);
  void (*pack_weight)(const ConvWeight<T>&);
  void (*strip)(const ConvStrip<T>&);
  void (*interleave)(const T* even, const T* odd, int64_t n, T* to);
};
template <class T>
struct ConvTapsTable {
  int64_t lanes, few;  // output channels of a panel of pack_gradient: either
  int64_t width;       // the most neighbours that `taps` takes
  void (*pack_gradient)(const ConvGradient<T>&);
  void (*taps)(const ConvTaps<T>&);
};
template <class T>
struct ConvDepthwiseTable {
  void (*gather)(const ConvDepthwise<T>&);  // out: the sums of windows of source
  void (*spread)(const ConvDepthwise<T>&);  // source: one element per window; out: where they lie
  void (*taps)(const ConvDepthwiseTaps<T>&);
};
/// One object per level holds the tables of both types (level.h).
struct ConvTables {
  ConvTable<float> f32;
  ConvTable<double> f64;
};
struct ConvTapsTables {
  ConvTapsTable<float> f32;
  ConvTapsTable<double> f64;
};
struct ConvDepthwiseTables {
  ConvDepthwiseTable<float> f32;
  ConvDepthwiseTable<double> f64;
};
extern const ConvTables conv_table_v2, conv_table_v3, conv_table_v4;
extern const ConvTapsTables conv_taps_table_v2, conv_taps_table_v3, conv_taps_table_v4;
extern const ConvDepthwiseTables conv_depthwise_table_v2, conv_depthwise_table_v3,
    conv_depthwise_table_v4;

}  // namespace rbcpu

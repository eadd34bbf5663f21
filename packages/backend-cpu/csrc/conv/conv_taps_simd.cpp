// Gradients of convolution weights, once per instruction-set level.
// Compiled with contraction, so that a * b + c is one instruction where the level has it.
#include "common/level.h"
#include "conv/conv_types.h"
#include "conv/conv_vector.h"

namespace {

using rbcpu::ConvGradient;
using rbcpu::ConvTaps;

#if defined(__AVX512F__)
constexpr int kVectors = 2;
#else
constexpr int kVectors = 1;
#endif
constexpr int kMaxWidth = 7;

// Rows x Width sums of Vectors vectors stay in registers over all pixels of the strip.
template <class T, int Rows, int Width, int Vectors>
__attribute__((noinline)) void tap_block(const ConvTaps<T>& s, int64_t first) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[Rows * Width][Vectors];
#pragma GCC unroll 16
  for (int t = 0; t < Rows * Width; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[t][v] = Vec<T>{};
  }
  const T* g = s.g;
  for (int64_t image = 0; image < s.images; ++image) {
    for (int64_t line = 0; line < s.lines; ++line) {
      const T* x[Rows];
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
        x[r] = s.row[first + r] + image * s.image_step + line * s.line_step;
      for (int64_t c = 0, at = 0; c < s.cols; ++c, at += s.col_step) {
        Vec<T> b[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) b[v] = load_vector(g + v * L);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
          for (int j = 0; j < Width; ++j) {
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) sum[r * Width + j][v] += x[r][at + j] * b[v];
          }
        }
        g += Vectors * L;
      }
    }
  }
  T* out = s.sum + first * Width * Vectors * L;
#pragma GCC unroll 16
  for (int t = 0; t < Rows * Width; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      T* place = out + t * Vectors * L + v * L;
      store_vector(place, load_vector(place) + sum[t][v]);
    }
  }
}

template <class T>
using TapBlock = void (*)(const ConvTaps<T>&, int64_t);
template <class T, int V>
constexpr TapBlock<T> kTapBlock[kMaxWidth + 1][9] = {
    {},
    {nullptr, tap_block<T, 1, 1, V>, tap_block<T, 2, 1, V>, tap_block<T, 3, 1, V>,
     tap_block<T, 4, 1, V>, tap_block<T, 5, 1, V>, tap_block<T, 6, 1, V>, tap_block<T, 7, 1, V>,
     tap_block<T, 8, 1, V>},
    {nullptr, tap_block<T, 1, 2, V>, tap_block<T, 2, 2, V>, tap_block<T, 3, 2, V>,
     tap_block<T, 4, 2, V>, tap_block<T, 5, 2, V>, tap_block<T, 6, 2, V>},
    {nullptr, tap_block<T, 1, 3, V>, tap_block<T, 2, 3, V>, tap_block<T, 3, 3, V>,
     tap_block<T, 4, 3, V>},
    {nullptr, tap_block<T, 1, 4, V>, tap_block<T, 2, 4, V>, tap_block<T, 3, 4, V>},
    {nullptr, tap_block<T, 1, 5, V>, tap_block<T, 2, 5, V>},
    {nullptr, tap_block<T, 1, 6, V>, tap_block<T, 2, 6, V>},
    {nullptr, tap_block<T, 1, 7, V>},
};
constexpr int kTapRows[kMaxWidth + 1] = {0, 8, 6, 4, 3, 2, 2, 1};

template <class T, int Vectors>
void taps_of(const ConvTaps<T>& s) {
  const int64_t blocks = (s.rows + kTapRows[s.width] - 1) / kTapRows[s.width];
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = s.rows * b / blocks;
    kTapBlock<T, Vectors>[s.width][s.rows * (b + 1) / blocks - first](s, first);
  }
}
template <class T>
void taps(const ConvTaps<T>& s) {
  if (s.lanes == kLanes<T>) return taps_of<T, 1>(s);
  taps_of<T, kVectors>(s);
}

// A square of `kBlock` channels and as many pixels, turned in registers of 16 bytes.
template <class T>
void pack_gradient(const ConvGradient<T>& g) {
  const int64_t W = g.lanes;
  constexpr int64_t B = 16 / sizeof(T);
  for (int64_t m0 = 0; m0 < g.m; m0 += W) {
    const int64_t n = g.m - m0 < W ? g.m - m0 : W;
    T* to = g.to + m0 / W * g.panel;
    int64_t m = 0;
    for (; m + B <= n; m += B) {
      const T* from = g.from + (m0 + m) * g.channel;
      int64_t p = 0;
      for (; p + B <= g.pixels; p += B) transpose_block(from + p, g.channel, to + p * W + m, W);
      for (; p < g.pixels; ++p) {
        for (int64_t i = 0; i < B; ++i) to[p * W + m + i] = from[i * g.channel + p];
      }
    }
    for (; m < W; ++m) {
      const T* from = g.from + (m0 + m) * g.channel;
      for (int64_t p = 0; p < g.pixels; ++p) to[p * W + m] = m < n ? from[p] : T(0);
    }
  }
}

template <class T>
constexpr rbcpu::ConvTapsTable<T> kTable = {kVectors * kLanes<T>, kLanes<T>, kMaxWidth,
                                            pack_gradient<T>, taps<T>};

}  // namespace

namespace rbcpu {
extern const ConvTapsTables RB_LEVEL_NAME(conv_taps_table) = {kTable<float>, kTable<double>};
}

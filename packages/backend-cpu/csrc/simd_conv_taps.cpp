// Gradients of convolution weights, and depthwise convolution, once per instruction-set level.
// Compiled with contraction, so that a * b + c is one instruction where the level has it.
#include "conv_types.h"
#include "conv_vector.h"
#include "level.h"

namespace {

using rbcpu::ConvDepthwise;
using rbcpu::ConvDepthwiseTaps;
using rbcpu::ConvGradient;
using rbcpu::ConvTaps;

#if defined(__AVX512F__)
constexpr int kVectors = 2;
#else
constexpr int kVectors = 1;
#endif
constexpr int kMaxWidth = 7;
template <class T>
constexpr int kPanel = kVectors * kLanes<T>;

// Rows x Width sums stay in registers over all pixels of the strip.
template <class T, int Rows, int Width>
__attribute__((noinline)) void tap_block(const ConvTaps<T>& s, int64_t first) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[Rows * Width][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < Rows * Width; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[t][v] = Vec<T>{};
  }
  const T* g = s.g;
  for (int64_t image = 0; image < s.images; ++image) {
    for (int64_t line = 0; line < s.lines; ++line) {
      const T* x[Rows];
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r)
        x[r] = s.row[first + r] + image * s.image_step + line * s.line_step;
      for (int64_t c = 0, at = 0; c < s.cols; ++c, at += s.col_step) {
        Vec<T> b[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) b[v] = load(g + v * L);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
          for (int j = 0; j < Width; ++j) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) sum[r * Width + j][v] += x[r][at + j] * b[v];
          }
        }
        g += kPanel<T>;
      }
    }
  }
  T* out = s.sum + first * Width * kPanel<T>;
#pragma GCC unroll 16
  for (int t = 0; t < Rows * Width; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* place = out + t * kPanel<T> + v * L;
      store(place, load(place) + sum[t][v]);
    }
  }
}

template <class T>
using TapBlock = void (*)(const ConvTaps<T>&, int64_t);
template <class T>
constexpr TapBlock<T> kTapBlock[kMaxWidth + 1][9] = {
    {},
    {nullptr, tap_block<T, 1, 1>, tap_block<T, 2, 1>, tap_block<T, 3, 1>, tap_block<T, 4, 1>,
     tap_block<T, 5, 1>, tap_block<T, 6, 1>, tap_block<T, 7, 1>, tap_block<T, 8, 1>},
    {nullptr, tap_block<T, 1, 2>, tap_block<T, 2, 2>, tap_block<T, 3, 2>, tap_block<T, 4, 2>,
     tap_block<T, 5, 2>, tap_block<T, 6, 2>},
    {nullptr, tap_block<T, 1, 3>, tap_block<T, 2, 3>, tap_block<T, 3, 3>, tap_block<T, 4, 3>},
    {nullptr, tap_block<T, 1, 4>, tap_block<T, 2, 4>, tap_block<T, 3, 4>},
    {nullptr, tap_block<T, 1, 5>, tap_block<T, 2, 5>},
    {nullptr, tap_block<T, 1, 6>, tap_block<T, 2, 6>},
    {nullptr, tap_block<T, 1, 7>},
};
constexpr int kTapRows[kMaxWidth + 1] = {0, 8, 6, 4, 3, 2, 2, 1};

template <class T>
void taps(const ConvTaps<T>& s) {
  const int64_t blocks = (s.rows + kTapRows[s.width] - 1) / kTapRows[s.width];
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = s.rows * b / blocks;
    kTapBlock<T>[s.width][s.rows * (b + 1) / blocks - first](s, first);
  }
}

// A square of `kBlock` channels and as many pixels, turned in registers of 16 bytes.
typedef float F4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double D2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef int64_t I2 __attribute__((vector_size(16)));
RB_CONV_INLINE void turn(const float* from, int64_t step, float* to, int64_t to_step) {
  const F4 r0 = *reinterpret_cast<const F4*>(from), r1 = *reinterpret_cast<const F4*>(from + step);
  const F4 r2 = *reinterpret_cast<const F4*>(from + 2 * step),
           r3 = *reinterpret_cast<const F4*>(from + 3 * step);
  const F4 a = __builtin_shuffle(r0, r1, I4{0, 4, 1, 5}),
           b = __builtin_shuffle(r0, r1, I4{2, 6, 3, 7});
  const F4 c = __builtin_shuffle(r2, r3, I4{0, 4, 1, 5}),
           d = __builtin_shuffle(r2, r3, I4{2, 6, 3, 7});
  *reinterpret_cast<F4*>(to) = __builtin_shuffle(a, c, I4{0, 1, 4, 5});
  *reinterpret_cast<F4*>(to + to_step) = __builtin_shuffle(a, c, I4{2, 3, 6, 7});
  *reinterpret_cast<F4*>(to + 2 * to_step) = __builtin_shuffle(b, d, I4{0, 1, 4, 5});
  *reinterpret_cast<F4*>(to + 3 * to_step) = __builtin_shuffle(b, d, I4{2, 3, 6, 7});
}
RB_CONV_INLINE void turn(const double* from, int64_t step, double* to, int64_t to_step) {
  const D2 r0 = *reinterpret_cast<const D2*>(from), r1 = *reinterpret_cast<const D2*>(from + step);
  *reinterpret_cast<D2*>(to) = __builtin_shuffle(r0, r1, I2{0, 2});
  *reinterpret_cast<D2*>(to + to_step) = __builtin_shuffle(r0, r1, I2{1, 3});
}

template <class T>
void pack_gradient(const ConvGradient<T>& g) {
  constexpr int W = kPanel<T>;
  constexpr int64_t B = 16 / sizeof(T);
  for (int64_t m0 = 0; m0 < g.m; m0 += W) {
    const int64_t n = g.m - m0 < W ? g.m - m0 : W;
    T* to = g.to + m0 / W * g.panel;
    int64_t m = 0;
    for (; m + B <= n; m += B) {
      const T* from = g.from + (m0 + m) * g.channel;
      int64_t p = 0;
      for (; p + B <= g.pixels; p += B) turn(from + p, g.channel, to + p * W + m, W);
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

// Taps: how many, or 0 for as many as the argument says.
template <class T, int Taps>
void depthwise_rows(const ConvDepthwise<T>& s) {
  constexpr int L = kLanes<T>;
  const int64_t taps = Taps ? Taps : s.taps;
  for (int64_t r = 0; r < s.rows; ++r) {
    const T* x = s.source + r * s.row_step;
    T* out = s.out + r * s.cols;
    int64_t c = 0;
    for (; c + 2 * L <= s.cols; c += 2 * L) {
      Vec<T> sum = Vec<T>{} + s.bias, sum1 = sum;
#pragma GCC unroll 32
      for (int64_t t = 0; t < taps; ++t) {
        const T* at = x + s.offset[t] + c;
        sum += s.weight[t] * load(at);
        sum1 += s.weight[t] * load(at + L);
      }
      store(out + c, sum);
      store(out + c + L, sum1);
    }
    for (; c < s.cols; c += L) {
      const int64_t n = s.cols - c < L ? s.cols - c : L;
      Vec<T> sum = Vec<T>{} + s.bias;
#pragma GCC unroll 32
      for (int64_t t = 0; t < taps; ++t) sum += s.weight[t] * load(x + s.offset[t] + c);
      if (n == L) {
        store(out + c, sum);
      } else {
        store_part(out + c, n, sum);
      }
    }
  }
}
template <class T>
void depthwise(const ConvDepthwise<T>& s) {
  if (s.taps == 9) return depthwise_rows<T, 9>(s);
  depthwise_rows<T, 0>(s);
}

// Up to 9 taps at a time, with one vector of partial sums each.
template <class T, int Taps>
void depthwise_sums(const ConvDepthwiseTaps<T>& s, int64_t t0, int64_t count) {
  constexpr int L = kLanes<T>;
  const int n = Taps ? Taps : static_cast<int>(count);
  Vec<T> sum[9];
#pragma GCC unroll 9
  for (int t = 0; t < 9; ++t) sum[t] = Vec<T>{};
  for (int64_t r = 0; r < s.rows; ++r) {
    const T* x = s.source + r * s.row_step;
    const T* g = s.g + r * s.cols;
    int64_t c = 0;
    for (; c + L <= s.cols; c += L) {
      const Vec<T> v = load(g + c);
#pragma GCC unroll 9
      for (int t = 0; t < n; ++t) sum[t] += v * load(x + s.offset[t0 + t] + c);
    }
    if (c < s.cols) {
      const int64_t rest = s.cols - c;
      const Vec<T> v = load_part(g + c, rest);
      // Lanes beyond the row may hold anything, infinities too.
#pragma GCC unroll 9
      for (int t = 0; t < n; ++t) sum[t] += v * load_part(x + s.offset[t0 + t] + c, rest);
    }
  }
  for (int t = 0; t < n; ++t) s.sum[t0 + t] += horizontal<T>(sum[t]);
}
template <class T>
void depthwise_taps(const ConvDepthwiseTaps<T>& s) {
  for (int64_t t = 0; t < s.taps; t += 9) {
    if (s.taps - t >= 9) {
      depthwise_sums<T, 9>(s, t, 9);
    } else {
      depthwise_sums<T, 0>(s, t, s.taps - t);
    }
  }
}

template <class T>
constexpr rbcpu::ConvTapsTable<T> kTable = {kPanel<T>, kMaxWidth,    pack_gradient<T>,
                                            taps<T>,   depthwise<T>, depthwise_taps<T>};

}  // namespace

namespace rbcpu {
extern const ConvTapsTables RB_LEVEL_NAME(conv_taps_table) = {kTable<float>, kTable<double>};
}

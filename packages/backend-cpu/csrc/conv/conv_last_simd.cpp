// Convolution of channels-last tensors, once per instruction-set level: elements of places are
// multiplied with vectors of output channels. Compiled with contraction, so that a * b + c is one
// instruction where the level has it.
#include "common/level.h"
#include "conv/conv_last_types.h"
#include "conv/conv_vector.h"

namespace {

using rbcpu::ConvPlaces;
using rbcpu::ConvProducts;

#if defined(__AVX512F__)
constexpr int kRows = 8;
#else
constexpr int kRows = 6;
#endif
constexpr int kVectors = 2;
template <class T>
constexpr int kPanel = kVectors * kLanes<T>;

template <class T, int Vectors>
__attribute__((noinline)) void places_of(const ConvPlaces<T>& s) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[kRows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[r][v] = load_vector(s.bias + v * L);
  }
  for (int64_t t = 0; t < s.taps; ++t) {
    const T *x[kRows], *w = s.weight + s.tap[t] * s.depth * kPanel<T>;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) x[r] = s.source[t * kRows + r];
    for (int64_t k = 0; k < s.depth; ++k, w += kPanel<T>) {
      Vec<T> b[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) b[v] = load_vector(w + v * L);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sum[r][v] += x[r][k] * b[v];
      }
    }
  }
  const Lanes<T> last(0, s.used - (Vectors - 1) * L);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r >= s.count) break;
    T* out = s.out[r] + s.begin;
#pragma GCC unroll 2
    for (int v = 0; v + 1 < Vectors; ++v) store_vector(out + v * L, sum[r][v]);
    last.store(out + (Vectors - 1) * L, sum[r][Vectors - 1]);
  }
}
template <class T>
void places(const ConvPlaces<T>& s) {
  if (s.used <= kLanes<T>) return places_of<T, 1>(s);
  places_of<T, kVectors>(s);
}

// Sums of the channels [first, first + Rows) of x.
template <class T, int Rows, int Vectors>
__attribute__((noinline)) void products_of(const ConvProducts<T>& s, int64_t first) {
  constexpr int L = kLanes<T>;
  Vec<T> sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[r][v] = Vec<T>{};
  }
  const Lanes<T> last(0, s.used - (Vectors - 1) * L);
  for (int64_t run = 0; run < s.runs; ++run) {
    const T *x = s.x[run] + first, *g = s.g[run];
    for (int64_t p = 0; p < s.length[run]; ++p, x += s.x_step, g += s.g_step) {
      Vec<T> b[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v + 1 < Vectors; ++v) b[v] = load_vector(g + v * L);
      b[Vectors - 1] = last.load(g + (Vectors - 1) * L);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sum[r][v] += x[r] * b[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      T* place = s.sum + (first + r) * kPanel<T> + v * L;
      store_vector(place, load_vector(place) + sum[r][v]);
    }
  }
}
template <class T, int Vectors>
void products_in(const ConvProducts<T>& s) {
  int64_t c = 0;
#if defined(__AVX512F__)
  for (; c + 12 <= s.channels; c += 12) products_of<T, 12, Vectors>(s, c);
#endif
  for (; c + kRows <= s.channels; c += kRows) products_of<T, kRows, Vectors>(s, c);
  for (; c + 4 <= s.channels; c += 4) products_of<T, 4, Vectors>(s, c);
  for (; c < s.channels; ++c) products_of<T, 1, Vectors>(s, c);
}
template <class T>
void products(const ConvProducts<T>& s) {
  if (s.used <= kLanes<T>) return products_in<T, 1>(s);
  products_in<T, kVectors>(s);
}

template <class T>
constexpr rbcpu::ConvLastTable<T> kTable = {kRows, kPanel<T>, places<T>, products<T>};

}  // namespace

namespace rbcpu {
extern const ConvLastTables RB_LEVEL_NAME(conv_last_table) = {kTable<float>, kTable<double>};
}

// The parts of a convolution of channels-last tensors that conv_last_simd.cpp computes: shared with
// the per-level kernels, so without anything of the standard library.
#pragma once
#include <stdint.h>

namespace rbcpu {

/// ConvLastTable::rows places of the result, one panel of its channels:
///   out[r][lane] = bias[lane] + sum over i < taps and channels k of
///                  source[i * rows + r][k] * weight[(tap[i] * depth + k) * panel + lane]
template <class T>
struct ConvPlaces {
  const T* const* source;  // of each tap and place, the channels that it sees
  const int64_t* tap;
  int64_t taps, depth;
  const T *weight, *bias;
  T* const* out;
  int64_t begin;  // the first channel of the panel
  int64_t count;  // places that are written: the others repeat one of these
  int64_t used;   // channels that are written
};

/// Sums of products over runs of places:
///   sum[c * panel + lane] += sum over runs and places p of x[run][p * x_step + c] * g[run][p *
///   g_step + lane]
template <class T>
struct ConvProducts {
  const T *const *x, *const *g;
  const int64_t* length;
  int64_t runs, x_step, g_step;
  int64_t channels, used;  // of x; of g
  T* sum;
};

template <class T>
struct ConvLastTable {
  int64_t rows, panel;  // places that one call takes; channels of a panel
  void (*places)(const ConvPlaces<T>&);
  void (*products)(const ConvProducts<T>&);
};
/// One object per level holds the tables of both types (level.h).
struct ConvLastTables {
  ConvLastTable<float> f32;
  ConvLastTable<double> f64;
};
extern const ConvLastTables conv_last_table_v2, conv_last_table_v3, conv_last_table_v4;

}  // namespace rbcpu

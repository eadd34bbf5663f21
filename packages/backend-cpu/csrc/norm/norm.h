// What the normalisations share: the table of row kernels and moments of long runs.
#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "norm/norm_rows.h"
#include "reduce/dense.h"

namespace rbcpu {

template <class C>
const NormRows<C>& norm_rows() {
  if constexpr (std::is_same_v<C, double>)
    return norm_table().f64;
  else
    return norm_table().f32;
}

/// Of each of `n` columns of `rows` rows that lie `stride` apart, its sum and its sum of squared
/// deviations from the mean, which is exactly 0 of equal numbers. `near` is space for n numbers.
template <class C>
void column_moments(const C* x, int64_t stride, int64_t rows, int64_t n, C* near, double* sums,
                    double* squares) {
  const NormRows<C>& f = norm_rows<C>();
  const double count = static_cast<double>(rows);
  std::fill(sums, sums + n, 0.0);
  f.column_sums(x, stride, rows, n, sums);
  for (int64_t j = 0; j < n; ++j) near[j] = static_cast<C>(sums[j] / count);
  rb::Scratch<double> off(n);
  std::fill(off.data(), off.data() + n, 0.0);
  std::fill(squares, squares + n, 0.0);
  f.column_deviations(x, stride, rows, n, near, off.data(), squares);
  for (int64_t j = 0; j < n; ++j) {
    squares[j] -= off[j] * off[j] / count;
    if (squares[j] < 0) squares[j] = 0;
    if (std::isfinite(off[j])) sums[j] = count * static_cast<double>(near[j]) + off[j];
  }
}

/// Whether each is; one channel counts only with the strides of channels that are last.
inline bool are_channels_last(std::initializer_list<const RbTensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const RbTensor* t) {
    return t->ndim > 1 && t->strides[1] == 1 && is_channels_last(*t);
  });
}

/// Count, mean and sum of squared deviations; merge is that of Chan, Golub, LeVeque 1979.
struct RunMoments {
  double n = 0, mean = 0, squares = 0;
  void merge(const RunMoments& later) {
    if (later.n == 0) return;
    const double total = n + later.n, apart = later.mean - mean;
    squares += later.squares + apart * apart * (n * later.n / total);
    mean += apart * (later.n / total);
    n = total;
  }
};

/// Runs are read twice, so they are taken in pieces that stay in the cache.
constexpr int64_t kRunPiece = 16384;

template <class C>
RunMoments run_moments(const C* x, int64_t n) {
  RunMoments all;
  for (int64_t begin = 0; begin < n; begin += kRunPiece) {
    RunMoments piece;
    const int64_t m = std::min(kRunPiece, n - begin);
    piece.n = static_cast<double>(m);
    norm_rows<C>().moments(x + begin, m, &piece.mean, &piece.squares);
    all.merge(piece);
  }
  return all;
}
/// w may be null.
template <class C>
GradientSums run_gradient_sums(const C* g, const C* w, const C* x, int64_t n, C mean) {
  GradientSums all{0, 0, 0};
  for (int64_t begin = 0; begin < n; begin += kRunPiece) {
    const int64_t m = std::min(kRunPiece, n - begin);
    const GradientSums part =
        norm_rows<C>().sums(g + begin, w ? w + begin : nullptr, x + begin, m, mean);
    all.squares += part.squares;
    all.plain += part.plain;
    all.scaled += part.scaled;
  }
  return all;
}

}  // namespace rbcpu

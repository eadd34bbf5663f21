// Kernels for batches of small real matrices. Each lane of a vector holds one matrix
// (small_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

constexpr int kSmall = 32;     // maximum number of rows and of columns
constexpr int kMaxLanes = 16;  // maximum number of matrices at a time

/// Matrices are column-major and interleaved: element (i, j) of lane l is at
/// [(j * rows + i) * lanes + l]. An array with one number per matrix has `lanes` elements.
template <class T>
struct SmallTable {
  int lanes;
  /// Factor the first n columns in place into L and U with row exchanges. The other columns are B
  /// and become the solution of L X = B. `pivots` receives min(m, n) 1-based rows per lane, `info`
  /// the 1-based position of the first zero on the diagonal of U or 0, and `sign` the sign of the
  /// permutation.
  void (*lu)(T* a, int m, int n, int columns, int32_t* pivots, T* info, T* sign);
  /// Solve U X = B in place of `b`, which has `columns` columns.
  void (*solve_upper)(const T* u, int n, int columns, T* b);
  /// The determinant: the product of the diagonal of U, times `sign`. If `log` is not null,
  /// `product` receives only the sign of the determinant and `log` the logarithm of its absolute
  /// value.
  void (*determinant)(const T* u, int n, const T* sign, T* product, T* log);
  /// Replace the lower triangle by L and the upper one by 0. `info` receives the 1-based order of
  /// the first leading minor that is not positive, or 0.
  void (*cholesky)(T* a, int n, T* info);
  /// Store R in the upper triangle of `a`, and the first `q_columns` columns of Q in `q` unless it
  /// is null. Return false if numbers are too large or too small for this method.
  bool (*qr)(T* a, int m, int n, T* q, int q_columns);
  /// Compute the eigenvalues, unsorted, of symmetric matrices whose lower triangle is given; `a` is
  /// overwritten. `finite` receives 0 for matrices with infinities or NaNs and 1 for others. Return
  /// false if the iteration does not converge.
  bool (*eigh)(T* a, int n, T* values, T* finite);
  /// Compute the singular values, unsorted, for m >= n; `a` is overwritten. Return false if a
  /// matrix is singular or not finite, if its numbers are too large or too small for this method,
  /// or if the iteration does not converge.
  bool (*svd)(T* a, int m, int n, T* values);
};
struct SmallTables {
  SmallTable<float> f32;
  SmallTable<double> f64;
};
extern const SmallTables small_table_v2, small_table_v3, small_table_v4;

}  // namespace rbcpu

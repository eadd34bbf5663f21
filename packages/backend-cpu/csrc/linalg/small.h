// Small real matrices, several at a time: element (i, j) of all of them is one vector
// (small_simd.cpp).
#pragma once
#include <cstdint>

namespace rbcpu {

constexpr int kSmall = 32;     // the most rows and columns
constexpr int kMaxLanes = 16;  // the most matrices at a time

/// All matrices are column-major: element (i, j) of lane l is at [(j * rows + i) * lanes + l].
/// Numbers by lane are `lanes` elements.
template <class T>
struct SmallTable {
  int lanes;
  /// The first n columns become L and U with rows exchanged, others the solution of L X = B.
  /// `pivots` (min(m, n) by lanes, from 1 on) may be null. `info`: the first zero on the diagonal,
  /// from 1 on, or 0; `sign`: of the permutation.
  void (*lu)(T* a, int m, int n, int columns, int32_t* pivots, T* info, T* sign);
  /// b of `columns` columns becomes the solution of U X = B.
  void (*solve_upper)(const T* u, int n, int columns, T* b);
  /// The product of the diagonal and `sign`, and if `log` is not null the sign of the product and
  /// the logarithm of its size.
  void (*determinant)(const T* u, int n, const T* sign, T* product, T* log);
  /// The lower triangle becomes L, the upper one 0. `info`: the first minor that is not positive.
  void (*cholesky)(T* a, int n, T* info);
  /// R in the upper triangle, and the columns of Q that `q` has; null: none. False: not computed,
  /// as numbers are too large or small.
  bool (*qr)(T* a, int m, int n, T* q, int q_columns);
  /// From the lower triangle the eigenvalues, in no order, and eigenvectors (or null). `finite`:
  /// 0 for matrices that are not. False: not converged.
  bool (*eigh)(T* a, int n, T* vectors, T* values, T* finite);
  /// m >= n: a becomes U, with the singular values in no order, and V (or null). False: not
  /// computed, as a matrix is singular, not finite, or did not converge.
  bool (*svd)(T* a, int m, int n, T* v, T* values);
};
struct SmallTables {
  SmallTable<float> f32;
  SmallTable<double> f64;
};
extern const SmallTables small_table_v2, small_table_v3, small_table_v4;

}  // namespace rbcpu

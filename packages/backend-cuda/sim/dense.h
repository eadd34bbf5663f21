// Dense linear algebra on the host, in double precision, with LAPACK's conventions: plain
// algorithms for the stand-ins of cuSOLVER and cuBLAS. Matrices are column-major.
#pragma once
#include <complex>
#include <cstdint>
#include <vector>

#include "work.h"

namespace cusim {

using Number = std::complex<double>;

struct Dense {
  Dense(int64_t rows, int64_t columns) : rows(rows), columns(columns), at(rows * columns) {}
  Number& operator()(int64_t i, int64_t j) { return at[j * rows + i]; }
  const Number& operator()(int64_t i, int64_t j) const { return at[j * rows + i]; }
  int64_t rows, columns;
  std::vector<Number> at;
};
Dense load_dense(const void* from, int type, int64_t ld, int64_t rows, int64_t columns);
void store_dense(void* to, int type, int64_t ld, const Dense& x);
/// Whether a matrix with this leading dimension is valid.
inline bool fits(int64_t rows, int64_t ld) { return rows >= 0 && ld >= (rows > 1 ? rows : 1); }
/// The memory of one matrix, for the checks of accesses.
CusimRegion region_of(const void* data, int type, int64_t ld, int64_t rows, int64_t columns,
                      bool written);

enum class Op { kPlain, kTransposed, kAdjoint };

/// Both return LAPACK's `info`.
int factor_cholesky(Dense& a, bool upper);
/// `pivots` count from 1; null: without row exchanges.
int factor_lu(Dense& a, std::vector<int64_t>* pivots);
void solve_lu(const Dense& lu, const std::vector<int64_t>* pivots, Op op, Dense& b);
/// op(a) x = alpha b, or x op(a) = alpha b, in place of b.
void solve_triangular(bool left, bool upper, Op op, bool unit, Number alpha, const Dense& a,
                      Dense& b);
void factor_qr(Dense& a, std::vector<Number>& tau);
/// Replaces the reflections by the first columns of Q.
void form_q(Dense& a, const std::vector<Number>& tau);
/// c = Q c, or c Q; with `adjoint` the adjoint of Q.
void multiply_q(bool left, bool adjoint, const Dense& a, const std::vector<Number>& tau, Dense& c);
/// Returns the eigenvalues of a Hermitian matrix, ascending, and replaces it by its eigenvectors.
/// Only one triangle is read.
std::vector<double> find_eigen(Dense& a, bool upper);
/// Returns singular values, descending, and finds U, which is square, and V^H. The matrix has at
/// least as many rows as columns.
std::vector<double> find_singular(const Dense& a, Dense& u, Dense& vh);

}  // namespace cusim

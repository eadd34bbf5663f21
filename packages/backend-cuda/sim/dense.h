// Dense linear algebra on the host, in double precision, as LAPACK states it: plain algorithms for
// the stand-ins of cuSOLVER and cuBLAS. Matrices are column-major.
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
/// One matrix in memory, for the checks of an access.
CusimRegion region_of(const void* data, int type, int64_t ld, int64_t rows, int64_t columns,
                      bool written);

enum class Op { kPlain, kTransposed, kAdjoint };

/// Each gives LAPACK's `info`.
int factor_cholesky(Dense& a, bool upper);
/// `pivots` count from 1; null: without exchanges of rows.
int factor_lu(Dense& a, std::vector<int64_t>* pivots);
void solve_lu(const Dense& lu, const std::vector<int64_t>* pivots, Op op, Dense& b);
/// op(a) x = alpha b, or x op(a) = alpha b, in place of b.
void solve_triangular(bool left, bool upper, Op op, bool unit, Number alpha, const Dense& a,
                      Dense& b);
void factor_qr(Dense& a, std::vector<Number>& tau);
/// The first columns of Q in place of its reflections.
void form_q(Dense& a, const std::vector<Number>& tau);
/// Q c, or c Q, or with the adjoint of Q.
void multiply_q(bool left, bool adjoint, const Dense& a, const std::vector<Number>& tau, Dense& c);
/// Eigenvalues, ascending, and the vectors in place of a Hermitian matrix of which one triangle is
/// read.
std::vector<double> find_eigen(Dense& a, bool upper);
/// Of a matrix with no more columns than rows: singular values, descending; U square, V^H.
std::vector<double> find_singular(const Dense& a, Dense& u, Dense& vh);

}  // namespace cusim

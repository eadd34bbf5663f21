// Eigenvalues of Hermitian matrices and singular values, by cuSOLVER.
#include <algorithm>
#include <optional>

#include "ops/families.h"
#include "ops/solver.h"
#include "ops/target.h"
#include "rabbet/capture.h"

namespace rbcuda {
namespace {

// Up to this size, one call of Jacobi's method takes a whole batch.
constexpr int64_t kSmall = 32;

// Finds eigenvalues. Replaces the matrices by their eigenvectors, if these are wanted.
void find_eigen(Solver& solver, const Columns& m, bool upper, bool with_vectors, char* values,
                int* info) {
  const Cusolver& lib = *cusolver();
  const SolverHandle handle = solver.handle();
  const int job = with_vectors ? kVectors : kNoVectors, uplo = upper ? kBlasUpper : kBlasLower;
  const int real = real_dtype(m.dtype());
  if (m.count > 1 && m.rows <= kSmall) {
    const SolverJacobi jacobi = solver.jacobi();
    const int n = static_cast<int>(m.rows), count = static_cast<int>(m.count);
    solver.each_of(
        1, stored_size(m.dtype()), "cusolverDnsyevjBatched",
        [&](int* elements) {
          return RB_BY_DTYPE(m.dtype(), lib, syevj_room)(handle, job, uplo, n, m.at(0), n, values,
                                                         elements, jacobi, count);
        },
        [&](int64_t, void* room, int elements) {
          return RB_BY_DTYPE(m.dtype(), lib, syevj)(handle, job, uplo, n, m.at(0), n, values, room,
                                                    elements, info, jacobi, count);
        });
    return;
  }
  const SolverParams params = solver.params();
  const int type = data_type(m.dtype()), real_type = data_type(real);
  const int64_t step = m.rows * stored_size(real);
  solver.each(
      m.count, "cusolverDnXsyevd",
      [&](size_t* device, size_t* host) {
        return lib.syevd_room(handle, params, job, uplo, m.rows, type, m.at(0), m.ld(), real_type,
                              values, type, device, host);
      },
      [&](int64_t i, void* device, size_t bytes, void* host, size_t host_bytes) {
        return lib.syevd(handle, params, job, uplo, m.rows, type, m.at(i), m.ld(), real_type,
                         values + i * step, type, device, bytes, host, host_bytes, info + i);
      });
}

void eigh_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_eigh";
  const RbTensor& x = a.tensor(0);
  const bool upper = a.str(1)[0] == 'U' || a.str(1)[0] == 'u', with_vectors = a.boolean(2);
  need_cusolver();
  const int64_t n = x.shape[x.ndim - 1];
  const Target values(op, a.ret(0)), infos(op, a.ret(2));
  if (infos.tensor().numel == 0) return;
  if (n == 0) {
    fill(op, infos.tensor(), rb::int_value(0), rb::int_value(0));
    return infos.done();
  }
  const Columns m = with_vectors ? Columns(op, a.ret(1)) : Columns(op, x, n, n);
  m.load(x);
  const Temporary flags = clear_not_finite(op, m);
  {
    Solver solver(op, x);
    find_eigen(solver, m, upper, with_vectors, static_cast<char*>(values.data()),
               static_cast<int*>(infos.data()));
  }
  mark_not_finite(op, flags.tensor(), values.tensor(), infos.tensor());
  m.done();
  values.done();
  infos.done();
}

// Finds singular values, of matrices with at least as many rows as columns. `u` and `vh` are null
// if vectors are not wanted.
void find_singular(Solver& solver, const Columns& m, char* values, const Columns* u,
                   const Columns* vh, int* info) {
  const Cusolver& lib = *cusolver();
  const SolverHandle handle = solver.handle();
  const SolverParams params = solver.params();
  const int real = real_dtype(m.dtype()), type = data_type(m.dtype()), real_type = data_type(real);
  const signed char job = !u ? 'N' : u->columns == m.rows ? 'A' : 'S';
  const auto of = [](const Columns* c, int64_t i) { return c ? c->at(i) : nullptr; };
  const int64_t step = m.columns * stored_size(real);
  solver.each(
      m.count, "cusolverDnXgesvd",
      [&](size_t* device, size_t* host) {
        return lib.gesvd_room(handle, params, job, job, m.rows, m.columns, type, m.at(0), m.ld(),
                              real_type, values, type, of(u, 0), m.rows, type, of(vh, 0), m.columns,
                              type, device, host);
      },
      [&](int64_t i, void* device, size_t bytes, void* host, size_t host_bytes) {
        return lib.gesvd(handle, params, job, job, m.rows, m.columns, type, m.at(i), m.ld(),
                         real_type, values + i * step, type, of(u, i), m.rows, type, of(vh, i),
                         m.columns, type, device, bytes, host, host_bytes, info + i);
      });
}

void svd_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_svd";
  const RbTensor &x = a.tensor(0), &u_out = a.ret(0), &vh_out = a.ret(2);
  const bool full = a.boolean(1), with_vectors = a.boolean(2);
  need_cusolver();
  const int64_t m = x.shape[x.ndim - 2], n = x.shape[x.ndim - 1], k = std::min(m, n);
  const Target values(op, a.ret(1)), infos(op, a.ret(3));
  if (infos.tensor().numel == 0) return;
  if (k == 0) {
    fill(op, infos.tensor(), rb::int_value(0), rb::int_value(0));
    infos.done();
    if (!with_vectors) return;
    identity(op, u_out);
    return identity(op, vh_out);
  }
  // The library takes no matrices with more columns than rows. They are factored as A^H = V S U^H.
  const bool wide = m < n;
  const int64_t rows = std::max(m, n);
  const Columns matrices(op, x, rows, k);
  matrices.load(x, wide);
  const Temporary flags = clear_not_finite(op, matrices);
  std::optional<Columns> left, right;
  if (with_vectors && wide) {
    left.emplace(op, x, rows, full ? rows : k);
    right.emplace(op, x, k, k);
  } else if (with_vectors) {
    left.emplace(op, u_out);
    right.emplace(op, vh_out);
  }
  {
    Solver solver(op, x);
    find_singular(solver, matrices, static_cast<char*>(values.data()), left ? &*left : nullptr,
                  right ? &*right : nullptr, static_cast<int*>(infos.data()));
  }
  mark_not_finite(op, flags.tensor(), values.tensor(), infos.tensor());
  if (with_vectors && wide) {
    const Columns u(op, u_out), vh(op, vh_out);
    u.load(right->tensor(), true);
    vh.load(left->tensor(), true);
    u.done();
    vh.done();
  } else if (with_vectors) {
    left->done();
    right->done();
  }
  values.done();
  infos.done();
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_eigh", rb::wrap<eigh_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"_linalg_svd", rb::wrap<svd_kernel>, RB_K_NO_CAPTURE, kSolved},
};

}  // namespace

int32_t add_eigen(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// LU factors and solves with general matrices: one matrix by cuSOLVER, batches of small ones by
// cuBLAS.
#include <algorithm>

#include "device/report.h"
#include "launch/jit.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "ops/solver.h"
#include "ops/target.h"
#include "rabbet/capture.h"

namespace rbcuda {
namespace {

// Whether one call of cuBLAS factors all matrices.
bool is_batch(const Columns& m) {
  return m.count > 1 && m.rows == m.columns && m.rows <= kFactoredTogether && cublas();
}

// Factors all matrices by one call. `pivots` are int32; null: without row exchanges.
void factor_batch(Solver& solver, const Columns& m, const Temporary& addresses, int* pivots,
                  int* info) {
  const int n = static_cast<int>(m.rows);
  solver.blas_done(RB_BY_DTYPE(m.dtype(), *cublas(), getrf_batched)(
                       solver.blas(), n, static_cast<void* const*>(addresses.data()), n, pivots,
                       info, static_cast<int>(m.count)),
                   "cublasgetrfBatched");
}

// Factors one matrix after another. `pivots` are int64; null: without row exchanges.
void factor_each(Solver& solver, const Columns& m, int64_t* pivots, int* info) {
  const Cusolver& lib = *cusolver();
  const SolverHandle handle = solver.handle();
  const SolverParams params = solver.params();
  const int type = data_type(m.dtype());
  const int64_t k = std::min(m.rows, m.columns);
  solver.each(
      m.count, "cusolverDnXgetrf",
      [&](size_t* device, size_t* host) {
        return lib.getrf_room(handle, params, m.rows, m.columns, type, m.at(0), m.ld(), type,
                              device, host);
      },
      [&](int64_t i, void* device, size_t bytes, void* host, size_t host_bytes) {
        return lib.getrf(handle, params, m.rows, m.columns, type, m.at(i), m.ld(),
                         pivots ? pivots + i * k : nullptr, type, device, bytes, host, host_bytes,
                         info + i);
      });
}

void lu_factor_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_lu_factor";
  const RbTensor &x = a.tensor(0), &out = a.ret(0);
  const bool exchanges = !a.has(1) || a.boolean(1);
  need_cusolver();
  const Columns m(op, out);
  const Target pivots(op, a.ret(1)), infos(op, a.ret(2));
  if (m.count == 0) return;
  const int64_t k = std::min(m.rows, m.columns);
  auto* const info = static_cast<int*>(infos.data());
  m.load(x);
  if (!exchanges && k) {  // each row is exchanged with itself
    const Temporary rows(out, RB_I32, 1, &k);
    fill(op, rows.tensor(), rb::int_value(1), rb::int_value(1));
    copy(op, pivots.tensor(), rows.tensor());
  }
  if (k == 0) {
    fill(op, infos.tensor(), rb::int_value(0), rb::int_value(0));
  } else if (is_batch(m)) {
    const Temporary addresses = m.addresses();
    Solver solver(op, out);
    factor_batch(solver, m, addresses, exchanges ? static_cast<int*>(pivots.data()) : nullptr,
                 info);
  } else {
    const RbTensor& found = pivots.tensor();
    const Temporary wide =
        exchanges ? Temporary(out, RB_I64, found.ndim, found.shape) : Temporary();
    {
      Solver solver(op, out);
      factor_each(solver, m, static_cast<int64_t*>(wide.data()), info);
    }
    if (exchanges) copy(op, found, wide.tensor());
  }
  m.done();
  pivots.done();
  infos.done();
}

void solve_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_solve";
  const RbTensor &A = a.tensor(0), &B = a.tensor(1), &out = a.ret(0);
  need_cusolver();
  const Columns x(op, out);
  const int64_t n = x.rows;
  const Columns factors(op, out, n, n);
  const Target infos(op, a.ret(1));
  if (x.count == 0) return;
  if (n == 0) {
    fill(op, infos.tensor(), rb::int_value(0), rb::int_value(0));
    return infos.done();
  }
  auto* const info = static_cast<int*>(infos.data());
  factors.load(A);
  x.load(B);
  const int64_t shape[] = {x.count, n};
  if (is_batch(factors)) {
    const Temporary from = factors.addresses(), to = x.addresses(), pivots(out, RB_I32, 2, shape);
    Solver solver(op, out);
    factor_batch(solver, factors, from, static_cast<int*>(pivots.data()), info);
    int wrong = 0;
    const int size = static_cast<int>(n), columns = static_cast<int>(x.columns);
    if (columns)
      solver.blas_done(
          RB_BY_DTYPE(x.dtype(), *cublas(), getrs_batched)(
              solver.blas(), kBlasPlain, size, columns,
              static_cast<const void* const*>(from.data()), size,
              static_cast<const int*>(pivots.data()), static_cast<void* const*>(to.data()), size,
              &wrong, static_cast<int>(x.count)),
          "cublasgetrsBatched");
  } else {
    const Temporary pivots(out, RB_I64, 2, shape);
    const Temporary ignored(out, sizeof(int));  // `info` of the solves, which cannot fail
    Solver solver(op, out);
    auto* const places = static_cast<int64_t*>(pivots.data());
    factor_each(solver, factors, places, info);
    const int type = data_type(x.dtype());
    for (int64_t i = 0; i < x.count && x.columns; ++i)
      solver.solver_done(cusolver()->getrs(solver.handle(), solver.params(), kBlasPlain, n,
                                           x.columns, type, factors.at(i), n, places + i * n, type,
                                           x.at(i), n, static_cast<int*>(ignored.data())),
                         "cusolverDnXgetrs");
  }
  x.done();
  infos.done();
}

void lu_rows_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const Target to("lu", a.ret());
  const RbTensor& out = to.tensor();
  if (out.numel == 0) return;
  const Temporary held = x.flags & RB_T_CONTIGUOUS ? Temporary() : dense_copy("lu", x);
  int64_t m = out.shape[out.ndim - 1], k = x.shape[x.ndim - 1], count = out.numel / m;
  int inverse = a.has(2) && a.boolean(2);
  void *rows = out.data, *pivots = held.is_made() ? held.data() : x.data;
  Finder wrong = finder(device_of(out), "lu", kBadIndex, m);
  void* arguments[] = {&rows, &pivots, &count, &m, &k, &inverse, &wrong};
  launch(device_of(out), Kernel{"lu", {{"T", RB_F32}}, kText_linalg, "RB_LU_ROWS()\n"}, count,
         arguments);
  to.done();
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_lu_factor", rb::wrap<lu_factor_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"_linalg_solve", rb::wrap<solve_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"_lu_rows", rb::wrap<lu_rows_kernel>},
};

}  // namespace

int32_t add_lu(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

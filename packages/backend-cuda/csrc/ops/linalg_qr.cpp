// QR factors and products of Householder reflections by cuSOLVER.
#include <algorithm>
#include <cstring>

#include "ops/families.h"
#include "ops/solver.h"
#include "ops/target.h"
#include "rabbet/capture.h"

namespace rbcuda {
namespace {

// Replaces the matrices by their reflections and R. `tau` has one factor for each reflection.
void factor(Solver& solver, const Columns& m, int64_t columns, char* tau) {
  const int64_t k = std::min(m.rows, columns), item = stored_size(m.dtype());
  const Cusolver& lib = *cusolver();
  const SolverHandle handle = solver.handle();
  const SolverParams params = solver.params();
  const int type = data_type(m.dtype());
  const Temporary ignored(m.tensor(), sizeof(int));  // `info`: the routine cannot fail
  solver.each(
      m.count, "cusolverDnXgeqrf",
      [&](size_t* device, size_t* host) {
        return lib.geqrf_room(handle, params, m.rows, columns, type, m.at(0), m.ld(), type, tau,
                              type, device, host);
      },
      [&](int64_t i, void* device, size_t bytes, void* host, size_t host_bytes) {
        return lib.geqrf(handle, params, m.rows, columns, type, m.at(i), m.ld(), type,
                         tau + i * k * item, type, device, bytes, host, host_bytes,
                         static_cast<int*>(ignored.data()));
      });
}

// Replaces the reflections by the first columns of Q.
void form_q(Solver& solver, const Columns& q, int64_t reflections, const char* tau) {
  const int64_t item = stored_size(q.dtype());
  const int m = static_cast<int>(q.rows), n = static_cast<int>(q.columns),
            k = static_cast<int>(reflections);
  const Cusolver& lib = *cusolver();
  const SolverHandle handle = solver.handle();
  const Temporary ignored(q.tensor(), sizeof(int));
  solver.each_of(
      q.count, item, is_complex(q.dtype()) ? "cusolverDnungqr" : "cusolverDnorgqr",
      [&](int* elements) {
        return RB_BY_DTYPE(q.dtype(), lib, orgqr_room)(handle, m, n, k, q.at(0), m, tau, elements);
      },
      [&](int64_t i, void* room, int elements) {
        return RB_BY_DTYPE(q.dtype(), lib, orgqr)(handle, m, n, k, q.at(i), m,
                                                  tau + i * reflections * item, room, elements,
                                                  static_cast<int*>(ignored.data()));
      });
}

// r = the upper triangle of the factors, cut to the shape of r.
void take_upper(const char* op, const RbTensor& r, const Columns& factors) {
  const Columns upper(op, r);
  upper.load(factors);
  triangle(op, upper.tensor(), upper.tensor(), 0, false);
  upper.done();
}

void qr_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_qr";
  const RbTensor &x = a.tensor(0), &q_out = a.ret(0), &r_out = a.ret(1);
  const bool with_q = std::strcmp(a.str(1), "r") != 0;
  need_cusolver();
  const int64_t m = x.shape[x.ndim - 2], n = x.shape[x.ndim - 1], k = std::min(m, n);
  if (k == 0) {  // no reflections
    if (r_out.numel) fill(op, r_out, rb::int_value(0), rb::int_value(0));
    return identity(op, q_out);
  }
  if (x.numel == 0) return;
  const Columns factors(op, x, m, n);
  factors.load(x);
  const int64_t shape[] = {factors.count * k};
  const Temporary tau(x, x.dtype_id, 1, shape);
  {
    Solver solver(op, x);
    factor(solver, factors, n, static_cast<char*>(tau.data()));
  }
  take_upper(op, r_out, factors);
  if (!with_q) return;
  const Columns q(op, q_out);
  q.load(factors);
  {
    Solver solver(op, x);
    form_q(solver, q, k, static_cast<char*>(tau.data()));
  }
  q.done();
}

void geqrf_kernel(const rb::Args& a) {
  constexpr const char* op = "geqrf";
  const RbTensor &x = a.tensor(0), &out = a.ret(0);
  need_cusolver();
  const Columns m(op, out);
  const Target tau(op, a.ret(1));
  if (out.numel == 0) return;
  m.load(x);
  {
    Solver solver(op, out);
    factor(solver, m, m.columns, static_cast<char*>(tau.data()));
  }
  m.done();
  tau.done();
}

void householder_product_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_householder_product";
  const RbTensor &x = a.tensor(0), &given = a.tensor(1), &out = a.ret();
  need_cusolver();
  const Columns q(op, out);
  if (out.numel == 0) return;
  const int64_t k = given.shape[given.ndim - 1];
  if (k == 0) return identity(op, out);
  q.load(x);
  const Temporary tau = vectors(op, given, out);
  {
    Solver solver(op, out);
    form_q(solver, q, k, static_cast<char*>(tau.data()));
  }
  q.done();
}

void ormqr_kernel(const rb::Args& a) {
  constexpr const char* op = "ormqr";
  const RbTensor &x = a.tensor(0), &given = a.tensor(1), &other = a.tensor(2), &out = a.ret();
  const bool left = !a.has(3) || a.boolean(3), transpose = a.has(4) && a.boolean(4);
  need_cusolver();
  const Columns c(op, out);
  if (out.numel == 0) return;
  c.load(other);
  const int64_t k = given.shape[given.ndim - 1], rows = x.shape[x.ndim - 2],
                item = stored_size(c.dtype());
  if (k) {
    const Columns reflections(op, out, rows, x.shape[x.ndim - 1]);
    reflections.load(x);
    const Temporary tau = vectors(op, given, out), ignored(out, sizeof(int));
    const auto* const factors = static_cast<const char*>(tau.data());
    Solver solver(op, out);
    const SolverHandle handle = solver.handle();
    const int side = left ? kBlasLeft : kBlasRight;
    const int trans = !transpose              ? kBlasPlain
                      : is_complex(c.dtype()) ? kBlasAdjoint
                                              : kBlasTransposed;
    const int m = static_cast<int>(c.rows), n = static_cast<int>(c.columns),
              count = static_cast<int>(k), ld = static_cast<int>(rows);
    solver.each_of(
        c.count, item, is_complex(c.dtype()) ? "cusolverDnunmqr" : "cusolverDnormqr",
        [&](int* elements) {
          return RB_BY_DTYPE(c.dtype(), *cusolver(), ormqr_room)(handle, side, trans, m, n, count,
                                                                 reflections.at(0), ld, factors,
                                                                 c.at(0), m, elements);
        },
        [&](int64_t i, void* room, int elements) {
          return RB_BY_DTYPE(c.dtype(), *cusolver(), ormqr)(
              handle, side, trans, m, n, count, reflections.at(i), ld, factors + i * k * item,
              c.at(i), m, room, elements, static_cast<int*>(ignored.data()));
        });
  }
  c.done();
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_qr", rb::wrap<qr_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"geqrf", rb::wrap<geqrf_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"_linalg_householder_product", rb::wrap<householder_product_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"_ormqr", rb::wrap<ormqr_kernel>, RB_K_NO_CAPTURE, kSolved},
};

}  // namespace

int32_t add_orthogonal(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

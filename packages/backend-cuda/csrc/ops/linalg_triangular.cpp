// Cholesky factors by cuSOLVER, and triangular solves by cuBLAS.
#include <optional>

#include "launch/jit.h"
#include "launch/texts.h"
#include "ops/families.h"
#include "ops/solver.h"
#include "ops/target.h"
#include "rabbet/capture.h"

namespace rbcuda {
namespace {

// Sets `info` where a diagonal contains NaN, which the library may not notice.
void find_nan_pivots(const char* op, const Columns& m, const RbTensor& info) {
  const int parts = is_complex(m.dtype()) ? 2 : 1;
  const Kernel kernel{op, {{"T", real_dtype(m.dtype())}}, kText_linalg, "RB_NAN_PIVOTS()\n"};
  void *data = m.tensor().data, *to = info.data;
  int64_t count = m.count, size = m.size() * parts, n = m.rows, step = (m.rows + 1) * parts;
  void* arguments[] = {&data, &to, &count, &size, &n, &step};
  launch(device_of(info), kernel, count, arguments);
}

void cholesky_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_cholesky";
  const RbTensor &x = a.tensor(0), &out = a.ret(0);
  const bool upper = a.has(1) && a.boolean(1);
  need_cusolver();
  const Columns m(op, out);
  const Target infos(op, a.ret(1));
  if (m.count == 0) return;
  auto* const info = static_cast<int*>(infos.data());
  m.load(x);
  if (m.rows == 0) {
    fill(op, infos.tensor(), rb::int_value(0), rb::int_value(0));
  } else if (m.count > 1 && m.rows <= kFactoredTogether) {
    const Temporary addresses = m.addresses();
    Solver solver(op, out);
    const int n = static_cast<int>(m.rows), count = static_cast<int>(m.count);
    solver.solver_done(RB_BY_DTYPE(m.dtype(), *cusolver(), potrf_batched)(
                           solver.handle(), upper ? kBlasUpper : kBlasLower, n,
                           static_cast<void**>(addresses.data()), n, info, count),
                       "cusolverDnpotrfBatched");
  } else {
    Solver solver(op, out);
    const Cusolver& lib = *cusolver();
    const SolverHandle handle = solver.handle();
    const SolverParams params = solver.params();
    const int uplo = upper ? kBlasUpper : kBlasLower, type = data_type(m.dtype());
    solver.each(
        m.count, "cusolverDnXpotrf",
        [&](size_t* device, size_t* host) {
          return lib.potrf_room(handle, params, uplo, m.rows, type, m.at(0), m.ld(), type, device,
                                host);
        },
        [&](int64_t i, void* device, size_t bytes, void* host, size_t host_bytes) {
          return lib.potrf(handle, params, uplo, m.rows, type, m.at(i), m.ld(), type, device, bytes,
                           host, host_bytes, info + i);
        });
  }
  if (m.rows) find_nan_pivots(op, m, infos.tensor());
  triangle(op, m.tensor(), m.tensor(), 0, !upper);
  m.done();
  infos.done();
}

// Triangular matrices in their own layout, column-major or row-major.
struct Triangles {
  const char* data;
  int64_t ld, step;  // step: bytes from one matrix to the next; 0 if there is only one
  bool turned;       // row-major: the transposes are column-major
};

// Whether one stride, `step`, leads through all matrices of `t` in the order of those of `out`.
bool is_one_batch(const RbTensor& t, const RbTensor& out, int64_t* step) {
  int64_t size = 1;
  bool is_single = true;
  for (int d = 0; d < t.ndim - 2; ++d) is_single = is_single && t.shape[d] == 1;
  *step = 0;
  if (is_single) return true;
  for (int d = out.ndim - 3; d >= 0; --d) {
    const int own = d - (out.ndim - t.ndim);
    if (out.shape[d] == 1) continue;
    if (own < 0 || t.shape[own] != out.shape[d]) return false;
    if (size == 1) *step = t.strides[own];
    if (t.strides[own] != *step * size || *step <= 0) return false;
    size *= out.shape[d];
  }
  return true;
}

void solve_triangular_kernel(const rb::Args& a) {
  constexpr const char* op = "linalg_solve_triangular";
  const RbTensor &A = a.tensor(0), &B = a.tensor(1), &out = a.ret();
  const bool upper = a.boolean(2), left = !a.has(3) || a.boolean(3),
             unit = a.has(4) && a.boolean(4);
  need_cublas();
  if (out.numel == 0) return;
  const Columns x(op, out);
  x.load(B);
  const int rows = A.ndim - 2, columns = A.ndim - 1;
  const int64_t n = A.shape[rows];
  Triangles t = {static_cast<const char*>(A.data), 0, 0, false};
  std::optional<Columns> copied;
  const bool plain = (A.strides[rows] == 1 || n == 1) && (A.strides[columns] >= n || n == 1);
  t.turned = !plain && A.strides[columns] == 1 && A.strides[rows] >= n;
  if ((plain || t.turned) && is_one_batch(A, out, &t.step)) {
    t.ld = n == 1 ? 1 : t.turned ? A.strides[rows] : A.strides[columns];
    t.step *= stored_size(A.dtype_id);
  } else {
    copied.emplace(op, out, n, n);
    copied->load(A);
    t = {copied->at(0), copied->ld(), copied->size() * stored_size(A.dtype_id), false};
  }
  const int side = left ? kBlasLeft : kBlasRight;
  const int uplo = upper != t.turned ? kBlasUpper : kBlasLower;
  const int trans = t.turned ? kBlasTransposed : kBlasPlain, diag = unit ? kBlasUnit : kBlasGeneral;
  const int m = static_cast<int>(x.rows), k = static_cast<int>(x.columns);
  const int lda = static_cast<int>(t.ld), ldb = static_cast<int>(x.ld());
  const double one_double[] = {1, 0};
  const float one_float[] = {1, 0};
  const bool wide = real_dtype(x.dtype()) == RB_F64;
  const void* one = wide ? static_cast<const void*>(one_double) : one_float;
  const Cublas& blas = *cublas();
  if (x.count == 1) {
    Solver solver(op, out);
    const BlasHandle handle = solver.blas();
    const Temporary room = solver.give_blas_workspace();
    solver.blas_done(RB_BY_DTYPE(x.dtype(), blas, trsm)(handle, side, uplo, trans, diag, m, k, one,
                                                        t.data, lda, x.at(0), ldb),
                     "cublastrsm");
  } else {
    const Temporary from(out, RB_I64, 1, &x.count), to = x.addresses();
    fill(op, from.tensor(), rb::int_value(reinterpret_cast<intptr_t>(t.data)),
         rb::int_value(t.step));
    Solver solver(op, out);
    const BlasHandle handle = solver.blas();
    const Temporary room = solver.give_blas_workspace();
    solver.blas_done(RB_BY_DTYPE(x.dtype(), blas, trsm_batched)(
                         handle, side, uplo, trans, diag, m, k, one,
                         static_cast<const void* const*>(from.data()), lda,
                         static_cast<void* const*>(to.data()), ldb, static_cast<int>(x.count)),
                     "cublastrsmBatched");
  }
  x.done();
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_cholesky", rb::wrap<cholesky_kernel>, RB_K_NO_CAPTURE, kSolved},
    {"linalg_solve_triangular", rb::wrap<solve_triangular_kernel>, 0, kSolved},
};

}  // namespace

int32_t add_triangular(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// LU factorisation with row pivoting, and solves with general matrices.
#include "common/kernels.h"
#include "linalg/matrices.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Getrf = void(const Int* m, const Int* n, T* a, const Int* lda, Int* pivots, Int* info);
template <class T>
using Gesv = void(const Int* n, const Int* columns, T* a, const Int* lda, Int* pivots, T* b,
                  const Int* ldb, Int* info);

void lu_factor_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  if (a.has(1) && !a.boolean(1)) {
    rb::fail(RB_E_NOTIMPL, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  }
  dispatch_dtype<kMaskLinalg>("linalg_lu_factor_ex", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const getrf = lapack::routine<T, Getrf<T>>("getrf");
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 2, batch);
    const Items<int32_t> places(a.ret(1), 1, batch), infos(a.ret(2), 0, batch);
    const Int m = from.rows, n = from.columns, k = std::min(m, n), ld = leading(m);
    for_each_matrix(batch, double(m) * n * k, [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      rb::Scratch<Int> pivots(k);
      for (int64_t i = begin; i < end; ++i) {
        T* const matrix = work.begin(i);
        from.load(i, matrix, m);
        Int info = 0;
        if (k) getrf(&m, &n, matrix, &ld, pivots.data(), &info);
        work.done();
        places.store_vector(i, pivots.data());
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

void lu_rows_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool inverse = a.has(2) && a.boolean(2);
  if (x.dtype_id != RB_I32)
    rb::fail(RB_E_TYPE, "lu: the pivots must have dtype int32, got %s", kDTypeNames[x.dtype_id]);
  const Batch batch(x, 1);
  const Items<int32_t> pivots(x, 1, batch);
  const Items<int64_t> rows(a.ret(), 1, batch);
  const int64_t m = rows.rows;
  if (pivots.rows > m) rb::fail(RB_E_ARG, "lu: more pivots than rows");
  for (int64_t i = 0; i < batch.count; ++i) {
    rb::Scratch<int64_t> order(m), found(m);
    for (int64_t r = 0; r < m; ++r) order[r] = r;
    const int32_t* const pivot = pivots.at(i);
    for (int64_t r = 0; r < pivots.rows; ++r) {
      const int64_t other = pivot[r * pivots.row_step] - 1;
      if (other < 0 || other >= m) {
        rb::fail(RB_E_INDEX, "lu: pivots must be between 1 and the number of rows %lld, got %lld",
                 static_cast<long long>(m), static_cast<long long>(other + 1));
      }
      std::swap(order[r], order[other]);
    }
    for (int64_t r = 0; r < m; ++r) (inverse ? found[order[r]] : found[r]) = inverse ? r : order[r];
    rows.store_vector(i, found.data());
  }
}

void solve_kernel(const rb::Args& a) {
  const RbTensor &A = a.tensor(0), &B = a.tensor(1);
  dispatch_dtype<kMaskLinalg>("linalg_solve", B.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const gesv = lapack::routine<T, Gesv<T>>("gesv");
    const Batch batch(a.ret(0), 2);
    const Items<T> from(A, 2, batch), right(B, 2, batch), to(a.ret(0), 2, batch);
    const Items<int32_t> infos(a.ret(1), 0, batch);
    const Int n = from.rows, columns = to.columns, ld = leading(n);
    for_each_matrix(batch, double(n) * n * (n + columns), [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      rb::Scratch<Int> pivots(n);
      rb::Scratch<T> factors(n * n);
      for (int64_t i = begin; i < end; ++i) {
        T* const x = work.begin(i);
        from.load(i, factors.data(), n);
        right.load(i, x, n);
        Int info = 0;
        if (n) gesv(&n, &columns, factors.data(), &ld, pivots.data(), x, &ld, &info);
        work.done();
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_lu_factor", rb::wrap<lu_factor_kernel>, 0, kMaskLinalg},
    {"_lu_rows", rb::wrap<lu_rows_kernel>},
    {"_linalg_solve", rb::wrap<solve_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_lu(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

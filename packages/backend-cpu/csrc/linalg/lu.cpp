// LU factorisation with row pivoting, and solves with general matrices.
#include "common/kernels.h"
#include "linalg/lanes.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Getrf = void(const Int* m, const Int* n, T* a, const Int* lda, Int* pivots, Int* info);
template <class T>
using Gesv = void(const Int* n, const Int* columns, T* a, const Int* lda, Int* pivots, T* b,
                  const Int* ldb, Int* info);

// Factor A = P L U and, if `right` (B) is given, solve L X = B for groups of small matrices. Then
// call finish(first, count, factors, pivots, info, sign) with [L and U | X] as `factors`.
template <class T, class Finish>
void factor_groups(const Batch& batch, const Items<T>& matrices, const Items<T>* right,
                   const Finish& finish) {
  const int m = static_cast<int>(matrices.rows), n = static_cast<int>(matrices.columns),
            columns = n + (right ? static_cast<int>(right->columns) : 0);
  for_each_group<T>(batch, double(m) * n * columns, [&](int64_t begin, int64_t end) {
    const SmallTable<T>& small = small_table(T());
    const Group<T> from(matrices), beside(right ? *right : matrices);
    const Workspace<T> a(m * columns * small.lanes);
    int32_t pivots[kSmall * kMaxLanes];
    T info[kMaxLanes], sign[kMaxLanes];
    for (int64_t i = begin; i < end; i += small.lanes) {
      const int count = static_cast<int>(std::min<int64_t>(small.lanes, end - i));
      from.load(i, count, a.data());
      if (right) beside.load(i, count, a.data() + m * n * small.lanes);
      small.lu(a.data(), m, n, columns, pivots, info, sign);
      finish(i, count, a.data(), pivots, info, sign);
    }
  });
}

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
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(m, n)) {
        const int lanes = small_table(T()).lanes;
        return factor_groups<T>(
            batch, from, nullptr,
            [&](int64_t i, int count, T* factors, const int32_t* pivots, const T* info, const T*) {
              Group<T>(to).store(i, count, factors);
              for (int l = 0; l < count; ++l) {
                int32_t own[kSmall];
                for (Int r = 0; r < k; ++r) own[r] = pivots[r * lanes + l];
                places.store_vector(i + l, own);
                *infos.at(i + l) = static_cast<int32_t>(info[l]);
              }
            });
      }
    }
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
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(n, columns)) {
        const SmallTable<T>& small = small_table(T());
        return factor_groups<T>(
            batch, from, &right,
            [&](int64_t i, int count, T* factors, const int32_t*, const T* info, const T*) {
              T* const x = factors + n * n * small.lanes;
              small.solve_upper(factors, static_cast<int>(n), static_cast<int>(columns), x);
              Group<T>(to).store(i, count, x);
              for (int l = 0; l < count; ++l) *infos.at(i + l) = static_cast<int32_t>(info[l]);
            });
      }
    }
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

// Determinants of small matrices. With `Log`, their signs and the logarithms of their absolute
// values. The decomposition of the operator handles larger matrices.
template <bool Log>
void det_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const int64_t n = x.shape[x.ndim - 1];
  if (n < 1 || n > kSmall) rb::fail(RB_E_NOTIMPL, "%s: for small matrices", a.op_name());
  dispatch_dtype<bit(RB_F32) | bit(RB_F64)>(a.op_name(), x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 0, batch), logs(a.ret(Log ? 1 : 0), 0, batch);
    factor_groups<T>(
        batch, from, nullptr,
        [&](int64_t i, int count, T* factors, const int32_t*, const T*, const T* sign) {
          T product[kMaxLanes], log[kMaxLanes];
          small_table(T()).determinant(factors, static_cast<int>(n), sign, product,
                                       Log ? log : nullptr);
          for (int l = 0; l < count; ++l) {
            *to.at(i + l) = product[l];
            if (Log) *logs.at(i + l) = log[l];
          }
        });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_lu_factor", rb::wrap<lu_factor_kernel>, 0, kMaskLinalg},
    {"_lu_rows", rb::wrap<lu_rows_kernel>},
    {"_linalg_solve", rb::wrap<solve_kernel>, 0, kMaskLinalg},
    {"linalg_det", rb::wrap<det_kernel<false>>, 0, bit(RB_F32) | bit(RB_F64)},
    {"linalg_slogdet", rb::wrap<det_kernel<true>>, 0, bit(RB_F32) | bit(RB_F64)},
};

}  // namespace

int32_t add_lu(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

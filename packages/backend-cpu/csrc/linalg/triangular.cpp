// Cholesky factorisation and triangular solves.
#include <cmath>
#include <limits>

#include "common/kernels.h"
#include "linalg/lanes.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Potrf = void(const char* uplo, const Int* n, T* a, const Int* lda, Int* info, size_t);
template <class T>
using Trsm = void(const char* side, const char* uplo, const char* trans, const char* diag,
                  const Int* m, const Int* n, const T* alpha, const T* a, const Int* lda, T* b,
                  const Int* ldb, size_t, size_t, size_t, size_t);

template <class T>
void cholesky_groups(const Batch& batch, Items<T> from, Items<T> to, const Items<int32_t>& infos,
                     bool upper) {
  if (upper) {  // factor the transpose and store the transposed factor
    from = from.turned();
    to = to.turned();
  }
  const int n = static_cast<int>(from.rows);
  for_each_group<T>(batch, 0.3 * n * n * n, [&](int64_t begin, int64_t end) {
    const SmallTable<T>& small = small_table(T());
    const Group<T> source(from), target(to);
    const Workspace<T> a(n * n * small.lanes);
    T info[kMaxLanes];
    for (int64_t i = begin; i < end; i += small.lanes) {
      const int count = static_cast<int>(std::min<int64_t>(small.lanes, end - i));
      source.load(i, count, a.data());
      small.cholesky(a.data(), n, info);
      target.store(i, count, a.data());
      for (int l = 0; l < count; ++l) *infos.at(i + l) = static_cast<int32_t>(info[l]);
    }
  });
}

void cholesky_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool upper = a.has(1) && a.boolean(1);
  const char uplo = upper ? 'U' : 'L';
  dispatch_dtype<kMaskLinalg>("linalg_cholesky_ex", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const potrf = lapack::routine<T, Potrf<T>>("potrf");
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 2, batch);
    const Items<int32_t> infos(a.ret(1), 0, batch);
    const Int n = from.rows, ld = leading(n);
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(n, n)) return cholesky_groups<T>(batch, from, to, infos, upper);
    }
    for_each_matrix(batch, 0.3 * double(n) * n * n, [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      for (int64_t i = begin; i < end; ++i) {
        T* const m = work.begin(i);
        from.load(i, m, n);
        Int info = 0;
        if (n) potrf(&uplo, &n, m, &ld, &info, 1);
        for (int64_t c = 0; c < n && info == 0; ++c) {  // not every LAPACK notices NaN
          if (std::isnan(std::real(m[c * n + c]))) info = c + 1;
        }
        for (int64_t c = 0; c < n; ++c) {
          const int64_t first = upper ? c + 1 : 0, last = upper ? n : c;
          std::fill(m + c * n + first, m + c * n + last, T(0));
        }
        work.done();
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

template <class T>
using Potri = void(const char* uplo, const Int* n, T* a, const Int* lda, Int* info, size_t);

void cholesky_inverse_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool upper = a.has(1) && a.boolean(1);
  const char uplo = upper ? 'U' : 'L';
  dispatch_dtype<kMaskLinalg>("cholesky_inverse", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const potri = lapack::routine<T, Potri<T>>("potri");
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(), 2, batch);
    const Int n = from.rows, ld = leading(n);
    for_each_matrix(batch, double(n) * n * n, [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      for (int64_t i = begin; i < end; ++i) {
        T* const m = work.begin(i);
        from.load(i, m, n);
        Int info = 0;
        if (n) potri(&uplo, &n, m, &ld, &info, 1);
        if (info) std::fill_n(m, n * n, T(std::numeric_limits<real_t<T>>::infinity()));
        for (int64_t c = 0; c < n; ++c) {  // potri fills one triangle only
          for (int64_t r = c + 1; r < n; ++r) {
            T &low = m[c * n + r], &high = m[r * n + c];
            if constexpr (is_complex_v<T>) {
              (upper ? low : high) = std::conj(upper ? high : low);
            } else {
              (upper ? low : high) = upper ? high : low;
            }
          }
        }
        work.done();
      }
    });
  });
}

void solve_triangular_kernel(const rb::Args& a) {
  const RbTensor &A = a.tensor(0), &B = a.tensor(1), &X = a.ret();
  const bool upper = a.boolean(2), left = !a.has(3) || a.boolean(3);
  const bool unit = a.has(4) && a.boolean(4);
  dispatch_dtype<kMaskLinalg>("linalg_solve_triangular", B.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const trsm = lapack::routine<T, Trsm<T>>("trsm");
    const Batch batch(X, 2);
    const Items<T> from(A, 2, batch), right(B, 2, batch), to(X, 2, batch);
    const Int n = from.rows, p = to.rows, q = to.columns;
    // A row-major matrix is the transpose of a column-major one.
    const bool plain = from.row_step == 1 && from.column_step >= n;
    const bool turned = !plain && from.column_step == 1 && from.row_step >= n;
    const bool copied = !plain && !turned;
    const Int lda = leading(copied ? n : turned ? from.row_step : from.column_step);
    const Int ldb = leading(p);
    const char side = left ? 'L' : 'R', uplo = upper != turned ? 'U' : 'L';
    const char trans = turned ? 'T' : 'N', diag = unit ? 'U' : 'N';
    for_each_matrix(batch, double(n) * p * q, [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      rb::Scratch<T> copy(copied ? n * n : 0);
      const T one(1);
      for (int64_t i = begin; i < end; ++i) {
        T* const x = work.begin(i);
        right.load(i, x, p);
        if (copied) from.load(i, copy.data(), n);
        const T* const matrix = copied ? copy.data() : from.at(i);
        if (p && q)
          trsm(&side, &uplo, &trans, &diag, &p, &q, &one, matrix, &lda, x, &ldb, 1, 1, 1, 1);
        work.done();
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_cholesky", rb::wrap<cholesky_kernel>, 0, kMaskLinalg},
    {"cholesky_inverse", rb::wrap<cholesky_inverse_kernel>, 0, kMaskLinalg},
    {"linalg_solve_triangular", rb::wrap<solve_triangular_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_triangular(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

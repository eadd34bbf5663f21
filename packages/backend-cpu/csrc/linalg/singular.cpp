// Singular values, and least squares.
#include <cstring>
#include <limits>

#include "common/kernels.h"
#include "linalg/lanes.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using GesddReal = void(const char* job, const Int* m, const Int* n, T* a, const Int* lda, T* s,
                       T* u, const Int* ldu, T* vt, const Int* ldvt, T* work, const Int* lwork,
                       Int* iwork, Int* info, size_t);
template <class T>
using GesddComplex = void(const char* job, const Int* m, const Int* n, T* a, const Int* lda,
                          real_t<T>* s, T* u, const Int* ldu, T* vt, const Int* ldvt, T* work,
                          const Int* lwork, real_t<T>* rwork, Int* iwork, Int* info, size_t);

/// Singular values, descending, and vectors for one shape of matrices.
template <class T>
class Singular {
 public:
  Singular(Int m, Int n, char job, Int ldvt)
      : m_(m),
        n_(n),
        k_(std::min(m, n)),
        ld_(leading(m)),
        ldvt_(leading(ldvt)),
        job_(job),
        int_(8 * k_ + 1),
        real_(is_complex_v<T> ? real_size() : 0) {
    T size(0);
    const Int ask = -1;
    call(nullptr, nullptr, nullptr, nullptr, &size, &ask);
    size_ = std::max<Int>(1, static_cast<Int>(std::real(size)));
    work_ = std::make_unique<rb::Scratch<T>>(size_);
  }
  Int run(T* a, real_t<T>* s, T* u, T* vt) { return call(a, s, u, vt, work_->data(), &size_); }

 private:
  Int real_size() const {
    const Int most = std::max(m_, n_);
    return 1 + std::max(5 * k_ * k_ + 7 * k_, 2 * most * k_ + 2 * k_ * k_ + k_);
  }
  Int call(T* a, real_t<T>* s, T* u, T* vt, T* work, const Int* lwork) {
    Int info = 0;
    if constexpr (is_complex_v<T>) {
      static auto* const gesdd = lapack::routine<T, GesddComplex<T>>("gesdd");
      gesdd(&job_, &m_, &n_, a, &ld_, s, u, &ld_, vt, &ldvt_, work, lwork, real_.data(),
            int_.data(), &info, 1);
    } else {
      static auto* const gesdd = lapack::routine<T, GesddReal<T>>("gesdd");
      gesdd(&job_, &m_, &n_, a, &ld_, s, u, &ld_, vt, &ldvt_, work, lwork, int_.data(), &info, 1);
    }
    return info;
  }

  const Int m_, n_, k_, ld_, ldvt_;
  const char job_;
  Int size_ = 1;
  rb::Scratch<Int> int_;
  rb::Scratch<real_t<T>> real_;
  std::unique_ptr<rb::Scratch<T>> work_;
};

template <class T>
void store_identity(const Items<T>& to, int64_t place) {
  T* const data = to.at(place);
  for (int64_t j = 0; j < to.columns; ++j)
    for (int64_t i = 0; i < to.rows; ++i)
      data[i * to.row_step + j * to.column_step] = T(i == j ? 1 : 0);
}

// Singular values of groups of small matrices with at least as many rows as columns. LAPACK
// (`fallback`) takes over for a group that the lane kernel refuses. It also computes all singular
// vectors, so that their signs do not depend on the batch.
template <class T, class Fallback>
void singular_values_of_groups(const Batch& batch, const Items<T>& from, const Items<T>& values,
                               const Items<int32_t>& infos, const Fallback& fallback) {
  const int m = static_cast<int>(from.rows), n = static_cast<int>(from.columns);
  for_each_group<T>(batch, 30.0 * m * n * n, [&](int64_t begin, int64_t end) {
    const SmallTable<T>& small = small_table(T());
    const int lanes = small.lanes;
    const Group<T> source(from);
    const Workspace<T> a(m * n * lanes);
    T found[kSmall * kMaxLanes], sorted[kSmall];
    for (int64_t i = begin; i < end; i += lanes) {
      const int count = static_cast<int>(std::min<int64_t>(lanes, end - i));
      source.load(i, count, a.data());
      if (!small.svd(a.data(), m, n, found)) {
        const lapack::OneThread alone;
        fallback(i, i + count);
        continue;
      }
      for (int l = 0; l < count; ++l) {
        sort_lane(found, lanes, l, n, true, sorted);
        values.store_vector(i + l, sorted);
        *infos.at(i + l) = 0;
      }
    }
  });
}

void svd_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool full = a.boolean(1), vectors = a.boolean(2);
  dispatch_dtype<kMaskLinalg>("linalg_svd", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), left(a.ret(0), 2, batch), right(a.ret(2), 2, batch);
    const Items<real_t<T>> values(a.ret(1), 1, batch);
    const Items<int32_t> infos(a.ret(3), 0, batch);
    const Int m = from.rows, n = from.columns, k = std::min(m, n);
    const char job = !vectors ? 'N' : full ? 'A' : 'S';
    const auto by_lapack = [&](int64_t begin, int64_t end) {
      Singular<T> singular(m, n, job, full ? n : k);
      rb::Scratch<T> matrix(m * n), u(vectors ? m * left.columns : 0);
      rb::Scratch<T> vt(vectors ? right.rows * n : 0);
      rb::Scratch<real_t<T>> found(k);
      for (int64_t i = begin; i < end; ++i) {
        from.load(i, matrix.data(), m);
        Int info = 0;
        if (k && all_finite(matrix.data(), m * n)) {
          info = singular.run(matrix.data(), found.data(), u.data(), vt.data());
        } else if (k) {
          info = kNotFinite;
          std::fill_n(found.data(), k, std::numeric_limits<real_t<T>>::quiet_NaN());
          std::fill_n(u.data(), vectors ? m * left.columns : 0, T(0));
          std::fill_n(vt.data(), vectors ? right.rows * n : 0, T(0));
        }
        values.store_vector(i, found.data());
        if (vectors && k) {
          left.store(i, u.data(), m);
          right.store(i, vt.data(), right.rows);
        } else if (vectors) {
          store_identity(left, i);
          store_identity(right, i);
        }
        *infos.at(i) = static_cast<int32_t>(info);
      }
    };
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(m, n) && batch.count > 1 && !vectors) {
        return singular_values_of_groups<T>(batch, n > m ? from.turned() : from, values, infos,
                                            by_lapack);
      }
    }
    for_each_matrix(batch, (vectors ? 20.0 : 4.0) * m * n * k, by_lapack);
  });
}

// ---- least squares

template <class T>
using Gels = void(const char* trans, const Int* m, const Int* n, const Int* columns, T* a,
                  const Int* lda, T* b, const Int* ldb, T* work, const Int* lwork, Int* info,
                  size_t);
template <class T>
using GelsyReal = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda, T* b,
                       const Int* ldb, Int* jpvt, const T* rcond, Int* rank, T* work,
                       const Int* lwork, Int* info);
template <class T>
using GelsyComplex = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda,
                          T* b, const Int* ldb, Int* jpvt, const real_t<T>* rcond, Int* rank,
                          T* work, const Int* lwork, real_t<T>* rwork, Int* info);
template <class T>
using GelsdReal = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda, T* b,
                       const Int* ldb, T* s, const T* rcond, Int* rank, T* work, const Int* lwork,
                       Int* iwork, Int* info);
template <class T>
using GelsdComplex = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda,
                          T* b, const Int* ldb, real_t<T>* s, const real_t<T>* rcond, Int* rank,
                          T* work, const Int* lwork, real_t<T>* rwork, Int* iwork, Int* info);
template <class T>
using GelssReal = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda, T* b,
                       const Int* ldb, T* s, const T* rcond, Int* rank, T* work, const Int* lwork,
                       Int* info);
template <class T>
using GelssComplex = void(const Int* m, const Int* n, const Int* columns, T* a, const Int* lda,
                          T* b, const Int* ldb, real_t<T>* s, const real_t<T>* rcond, Int* rank,
                          T* work, const Int* lwork, real_t<T>* rwork, Int* info);

enum class Driver { kGels, kGelsy, kGelsd, kGelss };

Driver driver_of(const char* name) {
  if (!std::strcmp(name, "gels")) return Driver::kGels;
  if (!std::strcmp(name, "gelsd")) return Driver::kGelsd;
  if (!std::strcmp(name, "gelss")) return Driver::kGelss;
  return Driver::kGelsy;
}

template <class T>
class LeastSquares {
 public:
  LeastSquares(Driver driver, Int m, Int n, Int columns, real_t<T> rcond)
      : driver_(driver),
        m_(m),
        n_(n),
        columns_(columns),
        lda_(leading(m)),
        ldb_(leading(std::max(m, n))),
        rcond_(rcond),
        pivots_(n) {
    T size(0);
    real_t<T> real_size(0);
    Int int_size = 0;
    Int rank;
    const Int ask = -1;
    call(nullptr, nullptr, nullptr, &rank, &size, &ask, &real_size, &int_size);
    size_ = std::max<Int>(1, static_cast<Int>(std::real(size)));
    work_ = std::make_unique<rb::Scratch<T>>(size_);
    const Int own = std::max<Int>({static_cast<Int>(real_size), 2 * n, 5 * std::min(m, n), 1});
    real_ = std::make_unique<rb::Scratch<real_t<T>>>(own);
    int_ = std::make_unique<rb::Scratch<Int>>(std::max<Int>(1, int_size));
  }
  Int run(T* a, T* b, real_t<T>* s, Int* rank) {
    std::fill_n(pivots_.data(), n_, Int{0});
    return call(a, b, s, rank, work_->data(), &size_, real_->data(), int_->data());
  }

 private:
  Int call(T* a, T* b, real_t<T>* s, Int* rank, T* work, const Int* lwork, real_t<T>* rwork,
           Int* iwork) {
    Int info = 0;
    const char none = 'N';
    const Int *m = &m_, *n = &n_, *c = &columns_;
    if (driver_ == Driver::kGels) {
      static auto* const gels = lapack::routine<T, Gels<T>>("gels");
      gels(&none, m, n, c, a, &lda_, b, &ldb_, work, lwork, &info, 1);
      *rank = std::min(m_, n_);
      return info;
    }
    if constexpr (is_complex_v<T>) {
      if (driver_ == Driver::kGelsy) {
        static auto* const gelsy = lapack::routine<T, GelsyComplex<T>>("gelsy");
        gelsy(m, n, c, a, &lda_, b, &ldb_, pivots_.data(), &rcond_, rank, work, lwork, rwork,
              &info);
      } else if (driver_ == Driver::kGelsd) {
        static auto* const gelsd = lapack::routine<T, GelsdComplex<T>>("gelsd");
        gelsd(m, n, c, a, &lda_, b, &ldb_, s, &rcond_, rank, work, lwork, rwork, iwork, &info);
      } else {
        static auto* const gelss = lapack::routine<T, GelssComplex<T>>("gelss");
        gelss(m, n, c, a, &lda_, b, &ldb_, s, &rcond_, rank, work, lwork, rwork, &info);
      }
    } else {
      if (driver_ == Driver::kGelsy) {
        static auto* const gelsy = lapack::routine<T, GelsyReal<T>>("gelsy");
        gelsy(m, n, c, a, &lda_, b, &ldb_, pivots_.data(), &rcond_, rank, work, lwork, &info);
      } else if (driver_ == Driver::kGelsd) {
        static auto* const gelsd = lapack::routine<T, GelsdReal<T>>("gelsd");
        gelsd(m, n, c, a, &lda_, b, &ldb_, s, &rcond_, rank, work, lwork, iwork, &info);
      } else {
        static auto* const gelss = lapack::routine<T, GelssReal<T>>("gelss");
        gelss(m, n, c, a, &lda_, b, &ldb_, s, &rcond_, rank, work, lwork, &info);
      }
    }
    return info;
  }

  const Driver driver_;
  const Int m_, n_, columns_, lda_, ldb_;
  const real_t<T> rcond_;
  Int size_ = 1;
  rb::Scratch<Int> pivots_;
  std::unique_ptr<rb::Scratch<T>> work_;
  std::unique_ptr<rb::Scratch<real_t<T>>> real_;
  std::unique_ptr<rb::Scratch<Int>> int_;
};

// The rows of the result below the solution hold the residuals, as in LAPACK.
void lstsq_kernel(const rb::Args& a) {
  const RbTensor &A = a.tensor(0), &B = a.tensor(1);
  const double rcond = a.real(2);
  const Driver driver = driver_of(a.str(3));
  dispatch_dtype<kMaskLinalg>("linalg_lstsq", A.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(a.ret(0), 2);
    const Items<T> from(A, 2, batch), right(B, 2, batch), to(a.ret(0), 2, batch);
    const Items<int64_t> ranks(a.ret(1), 0, batch);
    const Items<real_t<T>> values(a.ret(2), 1, batch);
    const Items<int32_t> infos(a.ret(3), 0, batch);
    const Int m = from.rows, n = from.columns, columns = right.columns, rows = to.rows;
    for_each_matrix(batch, 4.0 * m * n * (n + columns), [&](int64_t begin, int64_t end) {
      LeastSquares<T> solver(driver, m, n, columns, static_cast<real_t<T>>(rcond));
      rb::Scratch<T> matrix(m * n), b(rows * columns);
      rb::Scratch<real_t<T>> s(n);
      for (int64_t i = begin; i < end; ++i) {
        from.load(i, matrix.data(), m);
        std::fill_n(b.data(), rows * columns, T(0));
        right.load(i, b.data(), rows);
        std::fill_n(s.data(), n, real_t<T>(0));
        Int rank = 0, info = 0;
        if (!all_finite(matrix.data(), m * n) || !all_finite(b.data(), rows * columns)) {
          std::fill_n(b.data(), rows * columns, T(std::numeric_limits<real_t<T>>::quiet_NaN()));
          std::fill_n(s.data(), std::min(m, n), std::numeric_limits<real_t<T>>::quiet_NaN());
        } else if (m && n) {
          info = solver.run(matrix.data(), b.data(), s.data(), &rank);
        }
        to.store(i, b.data(), rows);
        values.store_vector(i, s.data());
        *ranks.at(i) = rank;
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_svd", rb::wrap<svd_kernel>, 0, kMaskLinalg},
    {"_linalg_lstsq", rb::wrap<lstsq_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_singular(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

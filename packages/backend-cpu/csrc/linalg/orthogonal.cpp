// QR: factors, and products of Householder reflections.
#include <cstring>

#include "common/kernels.h"
#include "linalg/lanes.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Geqrf = void(const Int* m, const Int* n, T* a, const Int* lda, T* tau, T* work,
                   const Int* lwork, Int* info);
template <class T>
using Orgqr = void(const Int* m, const Int* n, const Int* k, T* a, const Int* lda, const T* tau,
                   T* work, const Int* lwork, Int* info);
template <class T>
using Ormqr = void(const char* side, const char* trans, const Int* m, const Int* n, const Int* k,
                   const T* a, const Int* lda, const T* tau, T* c, const Int* ldc, T* work,
                   const Int* lwork, Int* info, size_t, size_t);

template <class T>
constexpr const char* kOrgqr = is_complex_v<T> ? "ungqr" : "orgqr";
template <class T>
constexpr const char* kOrmqr = is_complex_v<T> ? "unmqr" : "ormqr";

/// Householder routines for matrices of one shape, with the workspace that LAPACK asks for.
template <class T>
class Householder {
 public:
  Householder(Int m, Int n, Int k, Int columns)
      : m_(m), n_(n), k_(k), ld_(leading(m)), work_(workspace(m, n, k, columns)) {}

  void factor(T* a, T* tau) const {
    Int info;
    if (k_) geqrf_(&m_, &n_, a, &ld_, tau, work_.data(), &size_, &info);
  }
  void multiply_out(T* a, Int columns, Int reflections, const T* tau) const {
    Int info;
    if (m_ && columns)
      orgqr_(&m_, &columns, &reflections, a, &ld_, tau, work_.data(), &size_, &info);
  }

 private:
  rb::Scratch<T> workspace(Int m, Int n, Int k, Int columns) {
    const Int ask = -1, ld = leading(m);
    T found(0), other(0);
    Int info;
    geqrf_(&m, &n, nullptr, &ld, nullptr, &found, &ask, &info);
    const Int most = std::max<Int>(columns, k);
    if (most <= m) orgqr_(&m, &most, &k, nullptr, &ld, nullptr, &other, &ask, &info);
    size_ = std::max<Int>(
        {static_cast<Int>(std::real(found)), static_cast<Int>(std::real(other)), n, most, 1});
    return rb::Scratch<T>(size_);
  }

  Geqrf<T>* const geqrf_ = lapack::routine<T, Geqrf<T>>("geqrf");
  Orgqr<T>* const orgqr_ = lapack::routine<T, Orgqr<T>>(kOrgqr<T>);
  const Int m_, n_, k_, ld_;
  Int size_ = 1;
  rb::Scratch<T> work_;
};

// QR factors of groups of small matrices, or only R if `q` is null. LAPACK (`fallback`) takes over
// for a group that the lane kernel refuses.
template <class T, class Fallback>
void qr_groups(const Batch& batch, const Items<T>& from, const Items<T>* q, const Items<T>& r,
               const Fallback& fallback) {
  const int m = static_cast<int>(from.rows), n = static_cast<int>(from.columns),
            rows = static_cast<int>(r.rows), columns = q ? static_cast<int>(q->columns) : 0;
  for_each_group<T>(batch, 2.0 * m * n * std::max(n, columns), [&](int64_t begin, int64_t end) {
    const SmallTable<T>& small = small_table(T());
    const int lanes = small.lanes;
    const Group<T> source(from), triangular(r), orthogonal(q ? *q : r);
    const Workspace<T> a(m * n * lanes), out(m * columns * lanes), upper(rows * n * lanes);
    for (int64_t i = begin; i < end; i += lanes) {
      const int count = static_cast<int>(std::min<int64_t>(lanes, end - i));
      source.load(i, count, a.data());
      if (!small.qr(a.data(), m, n, q ? out.data() : nullptr, columns)) {
        const lapack::OneThread alone;
        fallback(i, i + count);
        continue;
      }
      for (int j = 0; j < n; ++j) {
        for (int k = 0; k < rows; ++k) {
          T* const to = upper.data() + (j * rows + k) * lanes;
          if (k <= j) {
            std::copy_n(a.data() + (j * m + k) * lanes, lanes, to);
          } else {
            std::fill_n(to, lanes, T(0));
          }
        }
      }
      triangular.store(i, count, upper.data());
      if (q) orthogonal.store(i, count, out.data());
    }
  });
}

void qr_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool with_q = std::strcmp(a.str(1), "r") != 0;
  dispatch_dtype<kMaskLinalg>("linalg_qr", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), q(a.ret(0), 2, batch), r(a.ret(1), 2, batch);
    const Int m = from.rows, n = from.columns, k = std::min(m, n);
    const Int columns = std::max(n, with_q ? q.columns : 0);
    const auto by_lapack = [&](int64_t begin, int64_t end) {
      const Householder<T> householder(m, n, k, with_q ? q.columns : k);
      rb::Scratch<T> matrix(m * columns), upper(r.rows * n), tau(k);
      for (int64_t i = begin; i < end; ++i) {
        from.load(i, matrix.data(), m);
        householder.factor(matrix.data(), tau.data());
        for (Int j = 0; j < n; ++j) {
          for (Int row = 0; row < r.rows; ++row)
            upper[j * r.rows + row] = row <= j && row < k ? matrix[j * m + row] : T(0);
        }
        r.store(i, upper.data(), r.rows);
        if (!with_q) continue;
        householder.multiply_out(matrix.data(), q.columns, k, tau.data());
        q.store(i, matrix.data(), m);
      }
    };
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(m, n)) {
        return qr_groups<T>(batch, from, with_q ? &q : nullptr, r, by_lapack);
      }
    }
    for_each_matrix(batch, 2.0 * m * n * k, by_lapack);
  });
}

void geqrf_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  dispatch_dtype<kMaskLinalg>("geqrf", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 2, batch), taus(a.ret(1), 1, batch);
    const Int m = from.rows, n = from.columns, k = std::min(m, n);
    for_each_matrix(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
      const Householder<T> householder(m, n, k, k);
      Work<T> work(to);
      rb::Scratch<T> tau(k);
      for (int64_t i = begin; i < end; ++i) {
        T* const matrix = work.begin(i);
        from.load(i, matrix, m);
        householder.factor(matrix, tau.data());
        work.done();
        taus.store_vector(i, tau.data());
      }
    });
  });
}

void householder_product_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &t = a.tensor(1);
  dispatch_dtype<kMaskLinalg>("linalg_householder_product", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(a.ret(0), 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 2, batch), taus(t, 1, batch);
    const Int m = from.rows, n = from.columns, k = taus.rows;
    for_each_matrix(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
      const Householder<T> householder(m, n, k, n);
      Work<T> work(to);
      rb::Scratch<T> tau(k);
      for (int64_t i = begin; i < end; ++i) {
        T* const matrix = work.begin(i);
        from.load(i, matrix, m);
        taus.load_vector(i, tau.data());
        householder.multiply_out(matrix, n, k, tau.data());
        work.done();
      }
    });
  });
}

void ormqr_kernel(const rb::Args& a) {
  const RbTensor &x = a.tensor(0), &t = a.tensor(1), &other = a.tensor(2);
  const bool left = !a.has(3) || a.boolean(3), transpose = a.has(4) && a.boolean(4);
  dispatch_dtype<kMaskLinalg>("ormqr", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const ormqr = lapack::routine<T, Ormqr<T>>(kOrmqr<T>);
    const Batch batch(a.ret(0), 2);
    const Items<T> reflections(x, 2, batch), taus(t, 1, batch), from(other, 2, batch);
    const Items<T> to(a.ret(0), 2, batch);
    const Int rows = reflections.rows, k = taus.rows, m = to.rows, n = to.columns;
    const char side = left ? 'L' : 'R', trans = !transpose ? 'N' : is_complex_v<T> ? 'C' : 'T';
    const Int lda = leading(rows), ldc = leading(m);
    for_each_matrix(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
      Work<T> work(to);
      rb::Scratch<T> matrix(rows * reflections.columns), tau(k);
      T found(0);
      Int ask = -1, info;
      ormqr(&side, &trans, &m, &n, &k, matrix.data(), &lda, tau.data(), nullptr, &ldc, &found, &ask,
            &info, 1, 1);
      const Int size = std::max<Int>({static_cast<Int>(std::real(found)), m, n, 1});
      rb::Scratch<T> space(size);
      for (int64_t i = begin; i < end; ++i) {
        T* const c = work.begin(i);
        from.load(i, c, m);
        reflections.load(i, matrix.data(), rows);
        taus.load_vector(i, tau.data());
        if (m && n && k)
          ormqr(&side, &trans, &m, &n, &k, matrix.data(), &lda, tau.data(), c, &ldc, space.data(),
                &size, &info, 1, 1);
        work.done();
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_qr", rb::wrap<qr_kernel>, 0, kMaskLinalg},
    {"geqrf", rb::wrap<geqrf_kernel>, 0, kMaskLinalg},
    {"_linalg_householder_product", rb::wrap<householder_product_kernel>, 0, kMaskLinalg},
    {"_ormqr", rb::wrap<ormqr_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_orthogonal(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

// Eigenvalues and eigenvectors of Hermitian and general matrices.
#include <limits>

#include "common/kernels.h"
#include "linalg/lanes.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Syevd = void(const char* job, const char* uplo, const Int* n, T* a, const Int* lda, T* w,
                   T* work, const Int* lwork, Int* iwork, const Int* liwork, Int* info, size_t,
                   size_t);
template <class T>
using Heevd = void(const char* job, const char* uplo, const Int* n, T* a, const Int* lda,
                   real_t<T>* w, T* work, const Int* lwork, real_t<T>* rwork, const Int* lrwork,
                   Int* iwork, const Int* liwork, Int* info, size_t, size_t);
template <class T>
using GeevReal = void(const char* left, const char* right, const Int* n, T* a, const Int* lda,
                      T* real, T* imag, T* vl, const Int* ldvl, T* vr, const Int* ldvr, T* work,
                      const Int* lwork, Int* info, size_t, size_t);
template <class T>
using GeevComplex = void(const char* left, const char* right, const Int* n, T* a, const Int* lda,
                         T* w, T* vl, const Int* ldvl, T* vr, const Int* ldvr, T* work,
                         const Int* lwork, real_t<T>* rwork, Int* info, size_t, size_t);

/// Eigenvalues, ascending, and eigenvectors in place of the matrix.
template <class T>
class Hermitian {
 public:
  Hermitian(Int n, char uplo, bool vectors)
      : n_(n), ld_(leading(n)), uplo_(uplo), job_(vectors ? 'V' : 'N') {
    T size(0);
    real_t<T> real_size(0);
    Int int_size = 0;
    const Int ask = -1;
    call(nullptr, nullptr, &size, &ask, &real_size, &ask, &int_size, &ask);
    work_size_ = std::max<Int>(1, static_cast<Int>(std::real(size)));
    real_size_ = std::max<Int>(1, static_cast<Int>(real_size));
    int_size_ = std::max<Int>(1, int_size);
    work_ = std::make_unique<rb::Scratch<T>>(work_size_);
    real_ = std::make_unique<rb::Scratch<real_t<T>>>(real_size_);
    int_ = std::make_unique<rb::Scratch<Int>>(int_size_);
  }
  Int run(T* a, real_t<T>* w) const {
    return call(a, w, work_->data(), &work_size_, real_->data(), &real_size_, int_->data(),
                &int_size_);
  }

 private:
  Int call(T* a, real_t<T>* w, T* work, const Int* lwork, real_t<T>* rwork, const Int* lrwork,
           Int* iwork, const Int* liwork) const {
    Int info = 0;
    if constexpr (is_complex_v<T>) {
      static auto* const heevd = lapack::routine<T, Heevd<T>>("heevd");
      heevd(&job_, &uplo_, &n_, a, &ld_, w, work, lwork, rwork, lrwork, iwork, liwork, &info, 1, 1);
    } else {
      static auto* const syevd = lapack::routine<T, Syevd<T>>("syevd");
      syevd(&job_, &uplo_, &n_, a, &ld_, w, work, lwork, iwork, liwork, &info, 1, 1);
    }
    return info;
  }

  const Int n_, ld_;
  const char uplo_, job_;
  Int work_size_ = 1, real_size_ = 1, int_size_ = 1;
  std::unique_ptr<rb::Scratch<T>> work_;
  std::unique_ptr<rb::Scratch<real_t<T>>> real_;
  std::unique_ptr<rb::Scratch<Int>> int_;
};

// Eigenvalues of groups of small matrices, from their lower triangles. LAPACK (`fallback`) takes
// over for a group that does not converge. It also computes all eigenvectors, so that their signs
// do not depend on the batch.
template <class T, class Fallback>
void eigenvalues_of_groups(const Batch& batch, const Items<T>& from, const Items<T>& values,
                           const Items<int32_t>& infos, const Fallback& fallback) {
  const int n = static_cast<int>(from.rows);
  for_each_group<T>(batch, 20.0 * n * n * n, [&](int64_t begin, int64_t end) {
    const SmallTable<T>& small = small_table(T());
    const int lanes = small.lanes;
    const Group<T> source(from);
    const Workspace<T> a(n * n * lanes);
    T found[kSmall * kMaxLanes], finite[kMaxLanes], sorted[kSmall];
    for (int64_t i = begin; i < end; i += lanes) {
      const int count = static_cast<int>(std::min<int64_t>(lanes, end - i));
      source.load(i, count, a.data());
      if (!small.eigh(a.data(), n, found, finite)) {
        const lapack::OneThread alone;
        fallback(i, i + count);
        continue;
      }
      for (int l = 0; l < count; ++l) {
        const bool sound = finite[l] != 0;
        if (sound) {
          sort_lane(found, lanes, l, n, false, sorted);
        } else {
          std::fill_n(sorted, n, std::numeric_limits<T>::quiet_NaN());
        }
        values.store_vector(i + l, sorted);
        *infos.at(i + l) = sound ? 0 : static_cast<int32_t>(kNotFinite);
      }
    }
  });
}

void eigh_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const char uplo = a.str(1)[0] == 'U' || a.str(1)[0] == 'u' ? 'U' : 'L';
  const bool vectors = a.boolean(2);
  dispatch_dtype<kMaskLinalg>("linalg_eigh", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(1), 2, batch);
    const Items<real_t<T>> values(a.ret(0), 1, batch);
    const Items<int32_t> infos(a.ret(2), 0, batch);
    const Int n = from.rows;
    const auto by_lapack = [&](int64_t begin, int64_t end) {
      const Hermitian<T> hermitian(n, uplo, vectors);
      rb::Scratch<T> matrix(n * n);
      rb::Scratch<real_t<T>> found(n);
      for (int64_t i = begin; i < end; ++i) {
        from.load(i, matrix.data(), n);
        Int info = 0;
        if (!all_finite(matrix.data(), n * n)) {
          info = kNotFinite;
          std::fill_n(found.data(), n, std::numeric_limits<real_t<T>>::quiet_NaN());
        } else if (n) {
          info = hermitian.run(matrix.data(), found.data());
        }
        values.store_vector(i, found.data());
        if (vectors) to.store(i, matrix.data(), n);
        *infos.at(i) = static_cast<int32_t>(info);
      }
    };
    if constexpr (kHasSmall<T>) {
      if (is_small<T>(n, n) && batch.count > 1 && !vectors) {
        return eigenvalues_of_groups<T>(batch, uplo == 'U' ? from.turned() : from, values, infos,
                                        by_lapack);
      }
    }
    for_each_matrix(batch, (vectors ? 9.0 : 2.0) * n * n * n, by_lapack);
  });
}

/// Eigenvalues and right eigenvectors, columns of norm 1.
template <class T>
class General {
 public:
  using C = std::conditional_t<is_complex_v<T>, T, std::complex<real_t<T>>>;

  explicit General(Int n)
      : n_(n), ld_(leading(n)), real_(2 * n), vectors_(is_complex_v<T> ? 0 : n * n) {
    T size(0);
    const Int ask = -1;
    C unused(0);
    call(nullptr, &unused, nullptr, &size, &ask);
    size_ = std::max<Int>({1, 4 * n, static_cast<Int>(std::real(size))});
    work_ = std::make_unique<rb::Scratch<T>>(size_);
  }
  Int run(T* a, C* w, C* v) { return call(a, w, v, work_->data(), &size_); }

 private:
  Int call(T* a, C* w, C* v, T* work, const Int* lwork) {
    const char none = 'N', wanted = 'V';
    const Int one = 1;
    Int info = 0;
    if constexpr (is_complex_v<T>) {
      static auto* const geev = lapack::routine<T, GeevComplex<T>>("geev");
      geev(&none, &wanted, &n_, a, &ld_, w, nullptr, &one, v, &ld_, work, lwork, real_.data(),
           &info, 1, 1);
    } else {
      static auto* const geev = lapack::routine<T, GeevReal<T>>("geev");
      T* const imag = real_.data() + n_;
      geev(&none, &wanted, &n_, a, &ld_, real_.data(), imag, nullptr, &one, vectors_.data(), &ld_,
           work, lwork, &info, 1, 1);
      if (v) spread(w, v);
    }
    return info;
  }
  // Conjugate pairs lie in two columns: the real and the imaginary part of the first vector.
  void spread(C* w, C* v) const {
    const T* const imag = real_.data() + n_;
    for (Int j = 0; j < n_; ++j) {
      w[j] = C(std::real(real_[j]), std::real(imag[j]));
      const bool first = std::real(imag[j]) > 0, second = std::real(imag[j]) < 0;
      const T* const x = vectors_.data() + (second ? j - 1 : j) * n_;
      for (Int i = 0; i < n_; ++i) {
        const auto y = first || second ? std::real(x[n_ + i]) : real_t<T>(0);
        v[j * n_ + i] = C(std::real(x[i]), second ? -y : y);
      }
    }
  }

  const Int n_, ld_;
  Int size_ = 1;
  rb::Scratch<real_t<T>> real_;
  rb::Scratch<T> vectors_;
  std::unique_ptr<rb::Scratch<T>> work_;
};

void eig_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  dispatch_dtype<kMaskLinalg>("linalg_eig", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = typename General<T>::C;
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch);
    const Items<C> values(a.ret(0), 1, batch), to(a.ret(1), 2, batch);
    const Items<int32_t> infos(a.ret(2), 0, batch);
    const Int n = from.rows;
    for_each_matrix(batch, 25.0 * n * n * n, [&](int64_t begin, int64_t end) {
      General<T> general(n);
      rb::Scratch<T> matrix(n * n);
      rb::Scratch<C> found(n), vectors(n * n);
      for (int64_t i = begin; i < end; ++i) {
        from.load(i, matrix.data(), n);
        Int info = 0;
        if (!all_finite(matrix.data(), n * n)) {
          info = kNotFinite;
          std::fill_n(found.data(), n, C(std::numeric_limits<real_t<T>>::quiet_NaN()));
          std::fill_n(vectors.data(), n * n, C(0));
        } else if (n) {
          info = general.run(matrix.data(), found.data(), vectors.data());
        }
        values.store_vector(i, found.data());
        to.store(i, vectors.data(), n);
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_eigh", rb::wrap<eigh_kernel>, 0, kMaskLinalg},
    {"_linalg_eig", rb::wrap<eig_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_eigen(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

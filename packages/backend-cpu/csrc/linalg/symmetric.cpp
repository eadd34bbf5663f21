// LDL^T and LDL^H factorisations of indefinite symmetric and Hermitian matrices.
#include "common/kernels.h"
#include "linalg/matrices.h"

namespace rbcpu {
namespace {

using lapack::Int;

template <class T>
using Sytrf = void(const char* uplo, const Int* n, T* a, const Int* lda, Int* pivots, T* work,
                   const Int* lwork, Int* info, size_t);
template <class T>
using Sytrs = void(const char* uplo, const Int* n, const Int* columns, const T* a, const Int* lda,
                   const Int* pivots, T* b, const Int* ldb, Int* info, size_t);

constexpr char kLower = 'L';

void ldl_factor_kernel(const rb::Args& a) {
  const RbTensor& x = a.tensor(0);
  const bool hermitian = a.has(1) && a.boolean(1);
  dispatch_dtype<kMaskLinalg>("linalg_ldl_factor_ex", x.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const sytrf =
        lapack::routine<T, Sytrf<T>>(hermitian && is_complex_v<T> ? "hetrf" : "sytrf");
    const Batch batch(x, 2);
    const Items<T> from(x, 2, batch), to(a.ret(0), 2, batch);
    const Items<int32_t> places(a.ret(1), 1, batch), infos(a.ret(2), 0, batch);
    const Int n = from.rows, ld = leading(n);
    for_each_matrix(batch, 0.3 * double(n) * n * n, [&](int64_t begin, int64_t end) {
      T found(0);
      Int ask = -1, info = 0;
      sytrf(&kLower, &n, nullptr, &ld, nullptr, &found, &ask, &info, 1);
      const Int size = std::max<Int>({static_cast<Int>(std::real(found)), n, 1});
      rb::Scratch<T> space(size);
      rb::Scratch<Int> pivots(n);
      Work<T> work(to);
      for (int64_t i = begin; i < end; ++i) {
        T* const matrix = work.begin(i);
        from.load(i, matrix, n);
        info = 0;
        if (n) sytrf(&kLower, &n, matrix, &ld, pivots.data(), space.data(), &size, &info, 1);
        for (Int c = 1; c < n; ++c) std::fill(matrix + c * n, matrix + c * n + c, T(0));
        work.done();
        places.store_vector(i, pivots.data());
        *infos.at(i) = static_cast<int32_t>(info);
      }
    });
  });
}

void ldl_solve_kernel(const rb::Args& a) {
  const RbTensor &A = a.tensor(0), &p = a.tensor(1), &B = a.tensor(2);
  const bool hermitian = a.has(3) && a.boolean(3);
  if (p.dtype_id != RB_I32) {
    rb::fail(RB_E_TYPE, "linalg_ldl_solve: expected pivots of int32, got %s",
             kDTypeNames[p.dtype_id]);
  }
  dispatch_dtype<kMaskLinalg>("linalg_ldl_solve", B.dtype_id, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const sytrs =
        lapack::routine<T, Sytrs<T>>(hermitian && is_complex_v<T> ? "hetrs" : "sytrs");
    const Batch batch(a.ret(0), 2);
    const Items<T> from(A, 2, batch), right(B, 2, batch), to(a.ret(0), 2, batch);
    const Items<int32_t> places(p, 1, batch);
    const Int n = from.rows, columns = to.columns, ld = leading(n);
    for_each_matrix(batch, 2.0 * n * n * columns, [&](int64_t begin, int64_t end) {
      rb::Scratch<T> factors(n * n);
      rb::Scratch<Int> pivots(n);
      Work<T> work(to);
      for (int64_t i = begin; i < end; ++i) {
        T* const x = work.begin(i);
        from.load(i, factors.data(), n);
        right.load(i, x, n);
        const int32_t* const given = places.at(i);
        for (Int r = 0; r < n; ++r) {
          const int32_t pivot = given[r * places.row_step];
          if (pivot == 0 || pivot > n || pivot < -n) {
            rb::fail(RB_E_INDEX, "linalg_ldl_solve: a pivot is %d, of %lld rows", pivot,
                     static_cast<long long>(n));
          }
          pivots[r] = pivot;
        }
        Int info = 0;
        if (n && columns)
          sytrs(&kLower, &n, &columns, factors.data(), &ld, pivots.data(), x, &ld, &info, 1);
        work.done();
      }
    });
  });
}

const rb::KernelSpec kKernels[] = {
    {"_linalg_ldl_factor", rb::wrap<ldl_factor_kernel>, 0, kMaskLinalg},
    {"linalg_ldl_solve", rb::wrap<ldl_solve_kernel>, 0, kMaskLinalg},
};

}  // namespace

int32_t add_symmetric(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

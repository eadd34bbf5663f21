// A stand-in for libcublas: triangular solves, and LU of batches. Declarations are those of
// cublas_api.h.
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dense.h"
#include "library.h"
#include "numbers.h"
#include "planted.h"

extern "C" int cuMemAlloc_v2(unsigned long long* address, size_t size);

using namespace cusim;

namespace {

enum Result { kFine = 0, kNotInitialized = 1, kBadValue = 7, kFailed = 13 };

struct Handle {
  int device = -1;
  void *stream = nullptr, *workspace = nullptr;
  size_t workspace_size = 0;
};
std::mutex mutex;
std::set<void*>& handles() {
  static auto* all = new std::set<void*>;
  return *all;
}
Handle* handle_of(void* given) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto* const handle = static_cast<Handle*>(given);
  return handles().count(given) && handle->device == current_device() ? handle : nullptr;
}

// Where CUSIM_CUBLAS_FAIL plants a status.
int fails(const std::string& where) { return planted("CUSIM_CUBLAS_FAIL", where); }
void say(const std::string& line) { log_line("CUSIM_CUBLAS_LOG", line); }

using Regions = std::vector<CusimRegion>;

int enqueue(Handle& handle, const std::string& name, Regions regions,
            std::function<void()> compute) {
  if (const int status = fails(name)) return say("failed " + name), status;
  if (const int status = fails("spoil")) return cusim_spoil_capture(handle.stream), status;
  say(name);
  if (handle.workspace_size)
    regions.push_back(
        line_of(handle.workspace, static_cast<int64_t>(handle.workspace_size), 1, true));
  const int status = cusim::enqueue(handle.stream, name, regions, handle.workspace,
                                    handle.workspace_size, std::move(compute));
  return status ? kFailed : kFine;
}

struct Triangular {
  int type, side, uplo, op, diag, m, n, lda, ldb;
  Number alpha;

  bool fit() const {
    const auto is = [](int x, int most) { return x >= 0 && x <= most; };
    return is(side, 1) && is(uplo, 1) && is(op, 2) && is(diag, 1) && fits(m, ldb) && n >= 0 &&
           fits(order(), lda);
  }
  int order() const { return side ? n : m; }
  CusimRegion region(const void* data, bool is_b, bool written) const {
    return is_b ? region_of(data, type, ldb, m, n, written)
                : region_of(data, type, lda, order(), order(), written);
  }
  void run(const void* a, void* b) const {
    Dense x = load_dense(b, type, ldb, m, n);
    solve_triangular(side == 0, uplo == 1, static_cast<Op>(op), diag == 1, alpha,
                     load_dense(a, type, lda, order(), order()), x);
    store_dense(b, type, ldb, x);
  }
};

int trsm(void* handle, Triangular t, const void* alpha, const void* a, void* b) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  if (!t.fit() || !alpha || !a || !b) return kBadValue;
  t.alpha = load_dense(alpha, t.type, 1, 1, 1)(0, 0);
  return enqueue(*h, "trsm",
                 {t.region(a, false, false), t.region(b, true, false), t.region(b, true, true)},
                 [=] { t.run(a, b); });
}
int trsm_batched(void* handle, Triangular t, const void* alpha, const void* const* a,
                 void* const* b, int count) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  if (!t.fit() || !alpha || !a || !b || count < 0) return kBadValue;
  t.alpha = load_dense(alpha, t.type, 1, 1, 1)(0, 0);
  return enqueue(
      *h, "trsmBatched",
      {line_of(a, count, sizeof(void*), false), line_of(b, count, sizeof(void*), false)}, [=] {
        for (int i = 0; i < count; ++i) {
          const CusimRegion regions[] = {t.region(a[i], false, false), t.region(b[i], true, false),
                                         t.region(b[i], true, true)};
          if (!cusim_touch(regions, 3)) return;
          t.run(a[i], b[i]);
        }
      });
}

int getrf_batched(void* handle, int type, int n, void* const* a, int ld, int* pivots, int* info,
                  int count) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  if (!fits(n, ld) || !a || !info || count < 0) return kBadValue;
  Regions regions = {line_of(a, count, sizeof(void*), false),
                     line_of(info, count, sizeof(int), true)};
  if (pivots)
    regions.push_back(line_of(pivots, static_cast<int64_t>(n) * count, sizeof(int), true));
  return enqueue(*h, "getrfBatched", regions, [=] {
    for (int i = 0; i < count; ++i) {
      const CusimRegion whole[] = {region_of(a[i], type, ld, n, n, false),
                                   region_of(a[i], type, ld, n, n, true)};
      if (!cusim_touch(whole, 2)) return;
      Dense x = load_dense(a[i], type, ld, n, n);
      std::vector<int64_t> found;
      info[i] = factor_lu(x, pivots ? &found : nullptr);
      store_dense(a[i], type, ld, x);
      for (size_t k = 0; k < found.size(); ++k)
        pivots[static_cast<size_t>(i) * n + k] = static_cast<int>(found[k]);
    }
  });
}
int getrs_batched(void* handle, int type, int op, int n, int columns, const void* const* a, int ld,
                  const int* pivots, void* const* b, int ldb, int* info, int count) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  if (!info) return kBadValue;
  *info = 0;  // on the host
  if (!fits(n, ld) || !fits(n, ldb) || columns < 0 || op < 0 || op > 2 || !a || !b || count < 0)
    return *info = -1, kBadValue;
  Regions regions = {line_of(a, count, sizeof(void*), false),
                     line_of(b, count, sizeof(void*), false)};
  if (pivots)
    regions.push_back(line_of(pivots, static_cast<int64_t>(n) * count, sizeof(int), false));
  return enqueue(*h, "getrsBatched", regions, [=] {
    for (int i = 0; i < count; ++i) {
      const CusimRegion both[] = {region_of(a[i], type, ld, n, n, false),
                                  region_of(b[i], type, ldb, n, columns, false),
                                  region_of(b[i], type, ldb, n, columns, true)};
      if (!cusim_touch(both, 3)) return;
      Dense x = load_dense(b[i], type, ldb, n, columns);
      std::vector<int64_t> exchanges;
      if (pivots)
        exchanges.assign(pivots + static_cast<int64_t>(i) * n,
                         pivots + static_cast<int64_t>(i + 1) * n);
      solve_lu(load_dense(a[i], type, ld, n, n), pivots ? &exchanges : nullptr, static_cast<Op>(op),
               x);
      store_dense(b[i], type, ldb, x);
    }
  });
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
  if (!handle) return kBadValue;
  if (const int status = fails("create")) return status;
  auto* const made = new Handle;
  made->device = current_device();
  unsigned long long memory = 0;  // the library keeps it; a capture may forbid the allocation
  if (made->device < 0 || cuMemAlloc_v2(&memory, 256)) return kNotInitialized;
  const std::lock_guard<std::mutex> lock(mutex);
  handles().insert(made);
  *handle = made;
  return kFine;
}
// The library uses its own workspace again.
int cublasSetStream_v2(void* handle, void* stream) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  h->stream = stream;
  h->workspace = nullptr;
  h->workspace_size = 0;
  return kFine;
}
int cublasSetWorkspace_v2(void* handle, void* workspace, size_t size) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  if (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256) return kBadValue;
  h->workspace = workspace;
  h->workspace_size = size;
  return kFine;
}

#define CUSIM_TYPED(letter, type)                                                                  \
  int cublas##letter##trsm_v2(void* h, int side, int uplo, int op, int diag, int m, int n,         \
                              const void* alpha, const void* a, int lda, void* b, int ldb) {       \
    return trsm(h, {type, side, uplo, op, diag, m, n, lda, ldb, 0}, alpha, a, b);                  \
  }                                                                                                \
  int cublas##letter##trsmBatched(void* h, int side, int uplo, int op, int diag, int m, int n,     \
                                  const void* alpha, const void* const* a, int lda,                \
                                  void* const* b, int ldb, int count) {                            \
    return trsm_batched(h, {type, side, uplo, op, diag, m, n, lda, ldb, 0}, alpha, a, b, count);   \
  }                                                                                                \
  int cublas##letter##getrfBatched(void* h, int n, void* const* a, int ld, int* pivots, int* info, \
                                   int count) {                                                    \
    return getrf_batched(h, type, n, a, ld, pivots, info, count);                                  \
  }                                                                                                \
  int cublas##letter##getrsBatched(void* h, int op, int n, int columns, const void* const* a,      \
                                   int ld, const int* pivots, void* const* b, int ldb, int* info,  \
                                   int count) {                                                    \
    return getrs_batched(h, type, op, n, columns, a, ld, pivots, b, ldb, info, count);             \
  }
CUSIM_TYPED(S, kF32)
CUSIM_TYPED(D, kF64)
CUSIM_TYPED(C, kC32)
CUSIM_TYPED(Z, kC64)
}

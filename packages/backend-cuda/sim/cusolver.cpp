// A stand-in for libcusolver's dense routines: checks arguments against the library's
// documentation, and computes on the host when the stream comes to the call. Declarations are those
// of cusolverDn.h.
#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dense.h"
#include "library.h"
#include "numbers.h"
#include "planted.h"

using namespace cusim;

namespace {

enum Result {
  kFine = 0,
  kNotInitialized = 1,
  kBadValue = 3,
  kFailed = 6,
  kNoMatrixType = 8,
  kUnsupported = 9
};

struct Handle {
  int device = -1;
  void* stream = nullptr;
};
std::mutex mutex;
std::set<void*>& objects() {  // handles, parameters
  static auto* all = new std::set<void*>;
  return *all;
}
bool is_there(void* object) {
  const std::lock_guard<std::mutex> lock(mutex);
  return objects().count(object) != 0;
}
template <class T>
int make(void** to) {
  if (!to) return kBadValue;
  auto* made = new T;
  const std::lock_guard<std::mutex> lock(mutex);
  objects().insert(made);
  *to = made;
  return kFine;
}
struct Params {};

// Where CUSIM_CUSOLVER_FAIL plants a status.
int fails(const std::string& where) { return planted("CUSIM_CUSOLVER_FAIL", where); }
void say(const std::string& line) { log_line("CUSIM_CUSOLVER_LOG", line); }

// Null unless it is a handle of the current device.
Handle* handle_of(void* given) {
  if (!is_there(given)) return nullptr;
  auto* const handle = static_cast<Handle*>(given);
  return handle->device == current_device() ? handle : nullptr;
}

bool is_type(int type) { return type == kF32 || type == kF64 || type == kC32 || type == kC64; }
int real_of(int type) { return type == kF32 || type == kC32 ? kF32 : kF64; }

// Sizes of workspaces, on the host and on the device.
constexpr size_t kHostBytes = 24;
size_t bytes_for(int64_t rows, int64_t columns, int type) {
  return static_cast<size_t>((rows + 1) * (columns + 1) * size_of(type));
}

// One call: the checks of its arguments, the memory that it accesses, and its computation.
class Call {
 public:
  Call(void* handle, std::string name) : handle_(handle_of(handle)), name_(std::move(name)) {
    if (!handle_) status_ = kNotInitialized;
  }
  Call& need(bool holds, int otherwise = kBadValue) {
    if (!status_ && !holds) status_ = otherwise;
    return *this;
  }
  Call& params(void* given) { return need(is_there(given)); }
  Call& matrix(const void* data, int type, int64_t ld, int64_t rows, int64_t columns,
               bool written) {
    need(fits(rows, ld) && columns >= 0 && (data || rows == 0 || columns == 0));
    if (status_ || rows == 0 || columns == 0) return *this;
    regions_.push_back(region_of(data, type, ld, rows, columns, false));
    if (written) regions_.push_back(region_of(data, type, ld, rows, columns, true));
    return *this;
  }
  Call& result(const void* data, int type, int64_t ld, int64_t rows, int64_t columns) {
    need(fits(rows, ld) && data);
    if (!status_ && rows && columns)
      regions_.push_back(region_of(data, type, ld, rows, columns, true));
    return *this;
  }
  Call& numbers(const void* data, int64_t count, size_t size, bool written) {
    need(data || count == 0);
    if (!status_ && count) regions_.push_back(line_of(data, count, size, written));
    return *this;
  }
  /// The workspaces on the device and on the host, of the sizes that the caller queried.
  Call& workspace(void* device, size_t given, size_t needed, void* host, size_t host_given) {
    need(given >= needed && host_given >= kHostBytes && host);
    if (!status_) std::memset(host, 0xee, kHostBytes);
    return workspace(device, needed);
  }
  Call& workspace(void* device, size_t needed) {
    room_ = device, room_size_ = needed;
    return numbers(device, static_cast<int64_t>(needed), 1, true);
  }
  int run(std::function<void()> compute) {
    if (status_) return status_;
    if (const int status = fails(name_)) return say("failed " + name_), status;
    if (const int status = fails("spoil")) return cusim_spoil_capture(handle_->stream), status;
    if (is_capturing(handle_->stream)) {
      cusim_spoil_capture(handle_->stream);  // they may wait for the device
      return kFailed;
    }
    say(name_);
    const int status =
        enqueue(handle_->stream, name_, regions_, room_, room_size_, std::move(compute));
    return status ? kFailed : kFine;
  }

 private:
  Handle* handle_;
  std::string name_;
  int status_ = kFine;
  std::vector<CusimRegion> regions_;
  void* room_ = nullptr;
  size_t room_size_ = 0;
};

int tell(void* handle, void* params, bool fit, int type, size_t needed, size_t* device,
         size_t* host) {
  if (!handle_of(handle)) return kNotInitialized;
  if (!is_there(params) || !device || !host) return kBadValue;
  if (!is_type(type)) return kNoMatrixType;
  if (!fit) return kBadValue;
  *device = needed;
  *host = kHostBytes;
  return kFine;
}

void store_reals(void* to, int type, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) store(to, type, static_cast<int64_t>(i), values[i]);
}
std::vector<Number> load_numbers(const void* from, int type, int64_t count) {
  return load_dense(from, type, count, count, 1).at;
}
void store_numbers(void* to, int type, const std::vector<Number>& values) {
  Dense line(static_cast<int64_t>(values.size()), 1);
  line.at = values;
  store_dense(to, type, line.rows, line);
}

// Stores one triangle, and leaves the rest as it is.
void store_triangle(void* to, int type, int64_t ld, const Dense& x, bool upper) {
  Dense whole = load_dense(to, type, ld, x.rows, x.columns);
  for (int64_t j = 0; j < x.columns; ++j)
    for (int64_t i = 0; i < x.rows; ++i)
      if (upper ? i <= j : i >= j) whole(i, j) = x(i, j);
  store_dense(to, type, ld, whole);
}

void factor_cholesky_at(void* a, int type, int64_t ld, int64_t n, bool upper, int* info) {
  Dense x = load_dense(a, type, ld, n, n);
  *info = factor_cholesky(x, upper);
  store_triangle(a, type, ld, x, upper);
}
void find_eigen_at(void* a, int type, int64_t ld, int64_t n, bool vectors, bool upper, void* w,
                   int* info) {
  Dense x = load_dense(a, type, ld, n, n);
  store_reals(w, real_of(type), find_eigen(x, upper));
  if (!vectors)  // the matrix is overwritten nevertheless
    for (Number& v : x.at) v = {NAN, NAN};
  store_dense(a, type, ld, x);
  *info = 0;
}

}  // namespace

extern "C" {

int cusolverDnCreate(void** handle) {
  if (const int status = fails("create")) return status;
  const int device = current_device();
  if (device < 0) return kNotInitialized;
  if (const int status = make<Handle>(handle)) return status;
  static_cast<Handle*>(*handle)->device = device;
  return kFine;
}
int cusolverDnSetStream(void* handle, void* stream) {
  Handle* const h = handle_of(handle);
  if (!h) return kNotInitialized;
  h->stream = stream;
  return kFine;
}
int cusolverDnCreateParams(void** params) { return make<Params>(params); }
int cusolverDnCreateSyevjInfo(void** info) { return make<Params>(info); }

int cusolverDnXpotrf_bufferSize(void* handle, void* params, int uplo, int64_t n, int type,
                                const void*, int64_t ld, int compute, size_t* device,
                                size_t* host) {
  return tell(handle, params, fits(n, ld) && (uplo == 0 || uplo == 1) && compute == type, type,
              bytes_for(n, n, type), device, host);
}
int cusolverDnXpotrf(void* handle, void* params, int uplo, int64_t n, int type, void* a, int64_t ld,
                     int compute, void* device, size_t bytes, void* host, size_t host_bytes,
                     int* info) {
  return Call(handle, "potrf")
      .params(params)
      .need(is_type(type) && compute == type && (uplo == 0 || uplo == 1))
      .matrix(a, type, ld, n, n, true)
      .numbers(info, 1, sizeof(int), true)
      .workspace(device, bytes, bytes_for(n, n, type), host, host_bytes)
      .run([=] { factor_cholesky_at(a, type, ld, n, uplo == 1, info); });
}

int cusolverDnXgetrf_bufferSize(void* handle, void* params, int64_t m, int64_t n, int type,
                                const void*, int64_t ld, int compute, size_t* device,
                                size_t* host) {
  return tell(handle, params, fits(m, ld) && n >= 0 && compute == type, type, bytes_for(m, n, type),
              device, host);
}
int cusolverDnXgetrf(void* handle, void* params, int64_t m, int64_t n, int type, void* a,
                     int64_t ld, int64_t* pivots, int compute, void* device, size_t bytes,
                     void* host, size_t host_bytes, int* info) {
  const int64_t k = std::min(m, n);
  return Call(handle, "getrf")
      .params(params)
      .need(is_type(type) && compute == type)
      .matrix(a, type, ld, m, n, true)
      .numbers(pivots, pivots ? k : 0, sizeof(int64_t), true)
      .numbers(info, 1, sizeof(int), true)
      .workspace(device, bytes, bytes_for(m, n, type), host, host_bytes)
      .run([=] {
        Dense x = load_dense(a, type, ld, m, n);
        std::vector<int64_t> found;
        *info = factor_lu(x, pivots ? &found : nullptr);
        store_dense(a, type, ld, x);
        std::copy(found.begin(), found.end(), pivots);
      });
}
int cusolverDnXgetrs(void* handle, void* params, int op, int64_t n, int64_t columns, int type,
                     const void* a, int64_t ld, const int64_t* pivots, int type_b, void* b,
                     int64_t ldb, int* info) {
  return Call(handle, "getrs")
      .params(params)
      .need(is_type(type) && type_b == type && op >= 0 && op <= 2)
      .matrix(a, type, ld, n, n, false)
      .matrix(b, type, ldb, n, columns, true)
      .numbers(pivots, n, sizeof(int64_t), false)
      .numbers(info, 1, sizeof(int), true)
      .run([=] {
        const Dense lu = load_dense(a, type, ld, n, n);
        const std::vector<int64_t> exchanges(pivots, pivots + n);
        Dense x = load_dense(b, type, ldb, n, columns);
        solve_lu(lu, &exchanges, static_cast<Op>(op), x);
        store_dense(b, type, ldb, x);
        *info = 0;
      });
}

int cusolverDnXgeqrf_bufferSize(void* handle, void* params, int64_t m, int64_t n, int type,
                                const void*, int64_t ld, int tau_type, const void*, int compute,
                                size_t* device, size_t* host) {
  return tell(handle, params, fits(m, ld) && n >= 0 && tau_type == type && compute == type, type,
              bytes_for(m, n, type), device, host);
}
int cusolverDnXgeqrf(void* handle, void* params, int64_t m, int64_t n, int type, void* a,
                     int64_t ld, int tau_type, void* tau, int compute, void* device, size_t bytes,
                     void* host, size_t host_bytes, int* info) {
  return Call(handle, "geqrf")
      .params(params)
      .need(is_type(type) && compute == type && tau_type == type)
      .matrix(a, type, ld, m, n, true)
      .numbers(tau, std::min(m, n), static_cast<size_t>(size_of(type)), true)
      .numbers(info, 1, sizeof(int), true)
      .workspace(device, bytes, bytes_for(m, n, type), host, host_bytes)
      .run([=] {
        Dense x = load_dense(a, type, ld, m, n);
        std::vector<Number> factors;
        factor_qr(x, factors);
        store_dense(a, type, ld, x);
        store_numbers(tau, type, factors);
        *info = 0;
      });
}

int cusolverDnXsyevd_bufferSize(void* handle, void* params, int job, int uplo, int64_t n, int type,
                                const void*, int64_t ld, int w_type, const void*, int compute,
                                size_t* device, size_t* host) {
  const bool fit = fits(n, ld) && (job == 0 || job == 1) && (uplo == 0 || uplo == 1) &&
                   is_type(type) && w_type == real_of(type) && compute == type;
  return tell(handle, params, fit, type, bytes_for(n, n, type), device, host);
}
int cusolverDnXsyevd(void* handle, void* params, int job, int uplo, int64_t n, int type, void* a,
                     int64_t ld, int w_type, void* w, int compute, void* device, size_t bytes,
                     void* host, size_t host_bytes, int* info) {
  return Call(handle, "syevd")
      .params(params)
      .need(is_type(type) && w_type == real_of(type) && compute == type && (job == 0 || job == 1) &&
            (uplo == 0 || uplo == 1))
      .matrix(a, type, ld, n, n, true)
      .numbers(w, n, static_cast<size_t>(size_of(w_type)), true)
      .numbers(info, 1, sizeof(int), true)
      .workspace(device, bytes, bytes_for(n, n, type), host, host_bytes)
      .run([=] { find_eigen_at(a, type, ld, n, job == 1, uplo == 1, w, info); });
}

int cusolverDnXgesvd_bufferSize(void* handle, void* params, signed char job, signed char job_v,
                                int64_t m, int64_t n, int type, const void*, int64_t ld, int s_type,
                                const void*, int u_type, const void*, int64_t, int v_type,
                                const void*, int64_t, int compute, size_t* device, size_t* host) {
  if (m < n) return kBadValue;  // is not supported
  const bool fit = fits(m, ld) && is_type(type) && s_type == real_of(type) && u_type == type &&
                   v_type == type && compute == type && job == job_v;
  return tell(handle, params, fit, type, bytes_for(m, n, type), device, host);
}
int cusolverDnXgesvd(void* handle, void* params, signed char job, signed char job_v, int64_t m,
                     int64_t n, int type, void* a, int64_t ld, int s_type, void* s, int u_type,
                     void* u, int64_t ldu, int v_type, void* v, int64_t ldv, int compute,
                     void* device, size_t bytes, void* host, size_t host_bytes, int* info) {
  Call call(handle, "gesvd");
  call.params(params)
      .need(m >= n)
      .need(is_type(type) && s_type == real_of(type) && u_type == type && v_type == type &&
            compute == type && job == job_v && (job == 'A' || job == 'S' || job == 'N'))
      .matrix(a, type, ld, m, n, true)
      .numbers(s, n, static_cast<size_t>(size_of(s_type)), true)
      .numbers(info, 1, sizeof(int), true)
      .workspace(device, bytes, bytes_for(m, n, type), host, host_bytes);
  const int64_t columns = job == 'A' ? m : n;
  if (job != 'N') call.result(u, type, ldu, m, columns).result(v, type, ldv, n, n);
  return call.run([=] {
    const Dense x = load_dense(a, type, ld, m, n);
    Dense left(m, m), right(n, n);
    store_reals(s, s_type, find_singular(x, left, right));
    Dense spoiled(m, n);
    for (Number& number : spoiled.at) number = {NAN, NAN};
    store_dense(a, type, ld, spoiled);
    if (job != 'N') {
      left.columns = columns;
      store_dense(u, type, ldu, left);
      store_dense(v, type, ldv, right);
    }
    *info = 0;
  });
}

}  // extern "C"

// ---- routines with a letter for the dtype

namespace {

int potrf_batched(void* handle, int uplo, int type, int n, void** list, int ld, int* info,
                  int count) {
  return Call(handle, "potrfBatched")
      .need((uplo == 0 || uplo == 1) && fits(n, ld) && count >= 0)
      .numbers(list, count, sizeof(void*), false)
      .numbers(info, count, sizeof(int), true)
      .run([=] {
        for (int i = 0; i < count; ++i) {
          const CusimRegion whole = region_of(list[i], type, ld, n, n, true);
          if (!cusim_touch(&whole, 1)) return;
          factor_cholesky_at(list[i], type, ld, n, uplo == 1, info + i);
        }
      });
}

int orgqr_room(void* handle, int type, int m, int n, int k, int ld, int* elements) {
  if (!handle_of(handle)) return kNotInitialized;
  if (!fits(m, ld) || n < 0 || n > m || k < 0 || k > n || !elements) return kBadValue;
  return *elements = (m + 1) * (n + 1), type >= 0 ? kFine : kBadValue;
}
int orgqr(void* handle, int type, int m, int n, int k, void* a, int ld, const void* tau, void* room,
          int elements, int* info) {
  const auto item = static_cast<size_t>(size_of(type));
  return Call(handle, "orgqr")
      .need(n >= 0 && n <= m && k >= 0 && k <= n && elements >= (m + 1) * (n + 1))
      .matrix(a, type, ld, m, k, false)
      .result(a, type, ld, m, n)
      .numbers(tau, k, item, false)
      .numbers(info, 1, sizeof(int), true)
      .workspace(room, static_cast<size_t>(elements) * item)
      .run([=] {
        Dense x(m, n);
        const Dense reflections = load_dense(a, type, ld, m, k);
        std::copy(reflections.at.begin(), reflections.at.end(), x.at.begin());
        form_q(x, load_numbers(tau, type, k));
        store_dense(a, type, ld, x);
        *info = 0;
      });
}

int ormqr_room(void* handle, int side, int op, int m, int n, int k, int ld, int ldc,
               int* elements) {
  if (!handle_of(handle)) return kNotInitialized;
  if (side < 0 || side > 1 || op < 0 || op > 2 || !fits(m, ldc) || !fits(side ? n : m, ld) ||
      k < 0 || k > (side ? n : m) || !elements)
    return kBadValue;
  return *elements = (m + 1) * (n + 1), kFine;
}
int ormqr(void* handle, int type, int side, int op, int m, int n, int k, const void* a, int ld,
          const void* tau, void* c, int ldc, void* room, int elements, int* info) {
  const auto item = static_cast<size_t>(size_of(type));
  const int rows = side ? n : m;
  return Call(handle, "ormqr")
      .need((side == 0 || side == 1) && k >= 0 && k <= rows && elements >= (m + 1) * (n + 1))
      .need(op == 0 || op == (is_complex(type) ? 2 : 1), kUnsupported)
      .matrix(a, type, ld, rows, k, false)
      .matrix(c, type, ldc, m, n, true)
      .numbers(tau, k, item, false)
      .numbers(info, 1, sizeof(int), true)
      .workspace(room, static_cast<size_t>(elements) * item)
      .run([=] {
        Dense x = load_dense(c, type, ldc, m, n);
        multiply_q(side == 0, op != 0, load_dense(a, type, ld, rows, k), load_numbers(tau, type, k),
                   x);
        store_dense(c, type, ldc, x);
        *info = 0;
      });
}

int syevj_room(void* handle, int job, int uplo, int n, int ld, int* elements, void* params,
               int count) {
  if (!handle_of(handle)) return kNotInitialized;
  if (job < 0 || job > 1 || uplo < 0 || uplo > 1 || !fits(n, ld) || !is_there(params) ||
      count < 0 || !elements)
    return kBadValue;
  return *elements = (n + 1) * (n + 1), kFine;
}
int syevj(void* handle, int type, int job, int uplo, int n, void* a, int ld, void* w, void* room,
          int elements, int* info, void* params, int count) {
  const auto item = static_cast<size_t>(size_of(type)),
             real = static_cast<size_t>(size_of(real_of(type)));
  return Call(handle, "syevjBatched")
      .params(params)
      .need((job == 0 || job == 1) && (uplo == 0 || uplo == 1) && elements >= (n + 1) * (n + 1))
      .matrix(a, type, ld, n, static_cast<int64_t>(n) * count, true)
      .numbers(w, static_cast<int64_t>(n) * count, real, true)
      .numbers(info, count, sizeof(int), true)
      .workspace(room, static_cast<size_t>(elements) * item)
      .run([=] {
        for (int i = 0; i < count; ++i)
          find_eigen_at(static_cast<char*>(a) + static_cast<size_t>(i) * ld * n * item, type, ld, n,
                        job == 1, uplo == 1,
                        static_cast<char*>(w) + static_cast<size_t>(i) * n * real, info + i);
      });
}

}  // namespace

extern "C" {
#define CUSIM_TYPED(letter, type, q, he)                                                         \
  int cusolverDn##letter##potrfBatched(void* h, int uplo, int n, void** a, int ld, int* info,    \
                                       int count) {                                              \
    return potrf_batched(h, uplo, type, n, a, ld, info, count);                                  \
  }                                                                                              \
  int cusolverDn##letter##q##gqr_bufferSize(void* h, int m, int n, int k, const void*, int ld,   \
                                            const void*, int* elements) {                        \
    return orgqr_room(h, type, m, n, k, ld, elements);                                           \
  }                                                                                              \
  int cusolverDn##letter##q##gqr(void* h, int m, int n, int k, void* a, int ld, const void* tau, \
                                 void* room, int elements, int* info) {                          \
    return orgqr(h, type, m, n, k, a, ld, tau, room, elements, info);                            \
  }                                                                                              \
  int cusolverDn##letter##q##mqr_bufferSize(void* h, int side, int op, int m, int n, int k,      \
                                            const void*, int ld, const void*, const void*,       \
                                            int ldc, int* elements) {                            \
    return ormqr_room(h, side, op, m, n, k, ld, ldc, elements);                                  \
  }                                                                                              \
  int cusolverDn##letter##q##mqr(void* h, int side, int op, int m, int n, int k, const void* a,  \
                                 int ld, const void* tau, void* c, int ldc, void* room,          \
                                 int elements, int* info) {                                      \
    return ormqr(h, type, side, op, m, n, k, a, ld, tau, c, ldc, room, elements, info);          \
  }                                                                                              \
  int cusolverDn##letter##he##evjBatched_bufferSize(void* h, int job, int uplo, int n,           \
                                                    const void*, int ld, const void*,            \
                                                    int* elements, void* params, int count) {    \
    return syevj_room(h, job, uplo, n, ld, elements, params, count);                             \
  }                                                                                              \
  int cusolverDn##letter##he##evjBatched(void* h, int job, int uplo, int n, void* a, int ld,     \
                                         void* w, void* room, int elements, int* info,           \
                                         void* params, int count) {                              \
    return syevj(h, type, job, uplo, n, a, ld, w, room, elements, info, params, count);          \
  }
CUSIM_TYPED(S, kF32, or, sy)
CUSIM_TYPED(D, kF64, or, sy)
CUSIM_TYPED(C, kC32, un, he)
CUSIM_TYPED(Z, kC64, un, he)
}

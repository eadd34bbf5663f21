// Fourier transforms by cuFFT. Without the library they run on the CPU.
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>

#include "device/capture.h"
#include "device/failure.h"
#include "device/properties.h"
#include "device/timing.h"
#include "driver/cublaslt.h"
#include "driver/cufft.h"
#include "launch/jit.h"
#include "launch/temporary.h"
#include "launch/texts.h"
#include "launch/view.h"
#include "ops/families.h"
#include "ops/library_plans.h"
#include "ops/loop.h"
#include "ops/settings.h"
#include "ops/target.h"

namespace rbcuda {
namespace {

// ---- plans

constexpr int kMostRank = 3;  // dimensions that one plan can transform

enum Kind : int32_t { kComplexToComplex, kRealToComplex, kComplexToReal };

// The transforms that a plan is for, of contiguous signals, one after another.
struct Question {
  int32_t kind, is_double;
  int64_t rank, batch;
  int64_t shape[kMostRank];  // of the signal in space, not of its half spectrum
};

// One plan of the library. Graphs that have captured it need it as long as they exist.
class Plan {
 public:
  static std::shared_ptr<Plan> make(const Question& q, int device, const char* op) {
    auto plan = std::make_shared<Plan>(device);
    plan->start(q, op);
    return plan;
  }
  explicit Plan(int device) : device_(device) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (!is_made_ || forked()) return;
    rb::guarded([&] {
      device(device_).enter();
      cufft()->destroy(handle_);
    });
  }

  FftPlan handle() const { return handle_; }
  int64_t workspace() const { return static_cast<int64_t>(workspace_); }

 private:
  void start(const Question& q, const char* op) {
    const Cufft& fft = *cufft();
    check_cufft(fft.create(&handle_), device_, "cufftCreate", op);
    is_made_ = true;
    check_cufft(fft.set_allocation(handle_, 0), device_, "cufftSetAutoAllocation", op);
    long long shape[kMostRank];
    std::copy_n(q.shape, q.rank, shape);
    const int real = q.is_double ? kR64F : kR32F, complex = q.is_double ? kC64F : kC32F;
    const int from = q.kind == kRealToComplex ? real : complex,
              to = q.kind == kComplexToReal ? real : complex;
    check_cufft(fft.make(handle_, static_cast<int>(q.rank), shape, nullptr, 1, 1, from, nullptr, 1,
                         1, to, q.batch, &workspace_, complex),
                device_, "cufftXtMakePlanMany", op);
  }

  const int device_;
  FftPlan handle_ = 0;
  size_t workspace_ = 0;
  bool is_made_ = false;
};

constexpr int64_t kMostPlans = 4096;  // on each device, unless the user sets another limit

// The plans of a device. One call at a time: a plan has one stream and one workspace.
struct State {
  std::mutex mutex;
  LruCache<Question, std::shared_ptr<Plan>, HashWords, EqualWords> plans{kMostPlans};

  // Applies the limit of rabbet.backends.cuda.cufft_plan_cache[device] and returns it; 0: no plan
  // is kept.
  int64_t follow_setting(int device) {
    const std::string name = "cuda.cufft_plan_cache.max_size." + std::to_string(device);
    const int64_t most = std::max<int64_t>(setting(name.c_str(), kMostPlans), 0);
    plans.set_most(static_cast<size_t>(most));
    return most;
  }
  std::shared_ptr<Plan> plan_of(const Question& q, int device, const char* op) {
    const auto make = [&] {
      try {
        return Plan::make(q, device, op);
      } catch (const rb::Error& error) {
        if (error.code() != RB_E_OOM || plans.size() == 0) throw;
      }
      plans.set_most(0);  // frees the memory that the other plans hold on the device
      auto plan = Plan::make(q, device, op);
      follow_setting(device);
      return plan;
    };
    return follow_setting(device) ? plans.get(q, make) : make();
  }
};

int64_t count_plans(int device) {
  if (forked()) return 0;
  const RelaxedCapture relaxed;
  State& state = state_of<State>(device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.follow_setting(device);
  return static_cast<int64_t>(state.plans.size());
}

// Transforms `from` to `to`, on the device of `like`.
void execute(const char* op, const Question& q, const RbTensor& like, void* from, void* to,
             bool forward) {
  Device& here = device_of(like);
  here.enter();
  const RelaxedCapture relaxed;  // a new plan allocates memory and loads modules
  const int index = here.index();
  const CuStream stream = here.current_stream();
  State& state = state_of<State>(index);
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto check = [&](int status, const char* what) {
    if (__builtin_expect(status == 0, 1)) return;
    state.plans.drop(q);
    check_recovers(here, stream, failure_on(op, here, std::string(what) + " failed"));
    check_cufft(status, index, what, op);
  };
  std::shared_ptr<Plan> plan;
  try {
    plan = state.plan_of(q, index, op);
  } catch (const rb::Error& error) {
    check_recovers(here, stream, error.what());
    throw;
  }
  const Temporary workspace = plan->workspace() ? Temporary(like, plan->workspace()) : Temporary();
  const Cufft& fft = *cufft();
  check(fft.set_stream(plan->handle(), stream), "cufftSetStream");
  check(fft.set_workspace(plan->handle(), workspace.data()), "cufftSetWorkArea");
  const Timed timed(here, stream, op);
  check(fft.execute(plan->handle(), from, to, forward ? kFftForward : kFftBackward), "cufftXtExec");
  keep_for_captures(index, plan);
  launched(here, stream, op, kSuccess);
}

// ---- memory in the layout of the library

bool is_double(const RbTensor& t) { return t.dtype_id == RB_F64 || t.dtype_id == RB_C128; }

// Whether the tensor is contiguous and aligned to complex numbers.
bool is_dense(const RbTensor& t) {
  const uintptr_t size = is_double(t) ? 16 : 8;
  return (t.flags & RB_T_CONTIGUOUS) && reinterpret_cast<uintptr_t>(t.data) % size == 0;
}

// Dense memory for the result `out`.
Target target(const char* op, const RbTensor& out) {
  return Target(op, out, is_double(out) ? 16 : 8);
}

// ---- transforms of some dimensions

// A range of a tensor's dimensions that one plan transforms; the plan leaves out those of length 1.
struct Chunk {
  int begin, end;  // dimensions
  Question question = {};
  int64_t outer = 1, inner = 1;  // products of the lengths before and after the range

  int64_t count() const {
    int64_t n = 1;
    for (int64_t i = 0; i < question.rank; ++i) n *= question.shape[i];
    return n;
  }
};

// The last dimensions of [begin, end) that one plan can take. The rank is 0 if all have length 1.
Chunk last_chunk(const RbTensor& t, int begin, int end) {
  Chunk chunk = {end, end};
  Question& q = chunk.question;
  q.is_double = is_double(t);
  while (chunk.begin > begin && (q.rank < kMostRank || t.shape[chunk.begin - 1] == 1)) {
    const int64_t length = t.shape[--chunk.begin];
    if (length == 1) continue;
    std::copy_backward(q.shape, q.shape + q.rank, q.shape + q.rank + 1);
    q.shape[0] = length;
    ++q.rank;
  }
  for (int d = 0; d < chunk.begin; ++d) chunk.outer *= t.shape[d];
  for (int d = end; d < t.ndim; ++d) chunk.inner *= t.shape[d];
  return chunk;
}

// Transforms dimensions [begin, end) of a dense complex tensor in place.
void transform(const char* op, const RbTensor& x, int begin, int end, bool forward) {
  while (begin < end) {
    Chunk chunk = last_chunk(x, begin, end);
    end = chunk.begin;
    if (chunk.question.rank == 0) return;
    chunk.question.batch = chunk.outer * chunk.inner;
    if (chunk.inner == 1) {
      execute(op, chunk.question, x, x.data, x.data, forward);
      continue;
    }
    // The signals are not contiguous: transform a contiguous copy, and copy it back.
    const int64_t n = chunk.count(), shape[] = {chunk.outer, chunk.inner, n};
    View apart = scalar_view(x);
    apart.add(chunk.outer, n * chunk.inner);
    apart.add(chunk.inner, 1);
    apart.add(n, chunk.inner);
    const Temporary together(x, x.dtype_id, 3, shape);
    copy(op, together.tensor(), apart.tensor());
    execute(op, chunk.question, x, together.data(), together.data(), forward);
    copy(op, apart.tensor(), together.tensor());
  }
}

// Twin of HalfSpectrum in fourier.cuh.
struct HalfSpectrum {
  int64_t n, rows, lines, columns, planes;
};

// Makes half spectra those of real signals by dropping the rest. The library's results are
// undefined for other spectra.
void make_hermitian(const char* op, const RbTensor& x, const Chunk& chunk) {
  const Question& q = chunk.question;
  const int64_t length = q.shape[q.rank - 1];
  HalfSpectrum s = {};
  s.rows = q.rank > 2 ? q.shape[0] : 1;
  s.lines = q.rank > 1 ? q.shape[q.rank - 2] : 1;
  s.columns = length / 2 + 1;
  s.planes = length % 2 ? 1 : 2;
  s.n = chunk.outer * s.rows * s.lines * s.planes;
  const Kernel kernel{
      op, {{"T", is_double(x) ? +RB_F64 : +RB_F32}}, kText_fourier, "RB_HERMITIAN_PLANES()\n"};
  void* data = x.data;
  void* arguments[] = {&data, &s};
  launch(device_of(x), kernel, s.n, arguments);
}

// The last dimensions of a transform between a real signal and its half spectrum. `length` is that
// of the signal's last dimension.
Chunk real_chunk(const RbTensor& half, int begin, int64_t length, Kind kind) {
  Chunk chunk = last_chunk(half, begin, half.ndim);
  Question& q = chunk.question;
  q.kind = kind;
  q.batch = chunk.outer;
  q.shape[q.rank - 1] = length;
  return chunk;
}

// Multiplies dense numbers by the factor of a normalization. `length` is that of the last dimension
// of the signal in space.
void normalize(const char* op, const RbTensor& x, int64_t rank, int64_t length, int64_t mode) {
  static const Expression kScaled("a * p0");
  if (mode == 0) return;
  auto n = static_cast<double>(rank ? length : 1);
  for (int d = x.ndim - static_cast<int>(rank); d < x.ndim - 1; ++d)
    n *= static_cast<double>(x.shape[d]);
  RbValue factor = {};
  factor.tag = RB_FLOAT;
  factor.v.f = mode == 1 ? 1 / std::sqrt(n) : 1 / n;
  View reals = scalar_view(x);
  reals.set_dtype(is_double(x) ? +RB_F64 : +RB_F32);
  reals.add(x.numel * (is_complex(x.dtype_id) ? 2 : 1), 1);
  const RbValue value = read_value(reals.tensor());
  Operands operands(reals.tensor(), 1, &value);
  operands.call.parameters[0] = number_of(factor);
  loop(op, reals.tensor().dtype_id, kScaled, operands);
}

// ---- operators

void fourier_kernel(const rb::Args& a) {
  constexpr const char* op = "fourier";
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const int64_t rank = a.integer(1);
  const bool forward = a.boolean(3);
  need_cufft();
  if (x.numel == 0) return;
  const Target to = target(op, out);
  const RbTensor& result = to.tensor();
  Chunk chunk = last_chunk(x, x.ndim - static_cast<int>(rank), x.ndim);
  if (chunk.question.rank && is_dense(x)) {
    chunk.question.batch = chunk.outer;
    execute(op, chunk.question, x, x.data, result.data, forward);
  } else {
    copy(op, result, x);
    chunk.begin = x.ndim;
  }
  transform(op, result, x.ndim - static_cast<int>(rank), chunk.begin, forward);
  normalize(op, result, rank, x.ndim ? x.shape[x.ndim - 1] : 1, a.integer(2));
  to.done();
}

void half_fourier_kernel(const rb::Args& a) {
  constexpr const char* op = "half_fourier";
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const int64_t rank = a.integer(1), length = x.shape[x.ndim - 1];
  need_cufft();
  if (out.numel == 0) return;
  const Target to = target(op, out);
  const RbTensor& result = to.tensor();
  const int first = x.ndim - static_cast<int>(rank);
  int begin = x.ndim - 1;
  if (length == 1) {
    copy(op, result, x);
  } else {
    const Temporary copied = is_dense(x) ? Temporary() : dense_copy(op, x);
    const Chunk chunk = real_chunk(result, first, length, kRealToComplex);
    begin = chunk.begin;
    execute(op, chunk.question, x, copied.data() ? copied.data() : x.data, result.data, true);
  }
  transform(op, result, first, begin, true);
  normalize(op, result, rank, length, a.integer(2));
  to.done();
}

void fourier_to_real_kernel(const rb::Args& a) {
  constexpr const char* op = "fourier_to_real";
  const RbTensor &x = a.tensor(0), &out = a.ret();
  const int64_t rank = a.integer(1), length = a.integer(2);
  need_cufft();
  if (out.numel == 0) return;
  const Target to = target(op, out);
  const Temporary copied = dense_copy(op, x);  // the library overwrites its input
  const RbTensor& spectrum = copied.tensor();
  const int first = x.ndim - static_cast<int>(rank);
  if (length == 1) {
    transform(op, spectrum, first, x.ndim, false);
    copy(op, to.tensor(), part_of(spectrum, 0).tensor());
  } else {
    const Chunk chunk = real_chunk(spectrum, first, length, kComplexToReal);
    transform(op, spectrum, first, chunk.begin, false);
    make_hermitian(op, spectrum, chunk);
    execute(op, chunk.question, x, spectrum.data, to.tensor().data, false);
  }
  normalize(op, to.tensor(), rank, length, a.integer(3));
  to.done();
}

const rb::KernelSpec kKernels[] = {
    {"fourier", rb::wrap<fourier_kernel>},
    {"half_fourier", rb::wrap<half_fourier_kernel>},
    {"fourier_to_real", rb::wrap<fourier_to_real_kernel>},
};

}  // namespace

int32_t add_fourier(const RbHost* host, RbTxn* txn) {
  add_property("cufft_plan_cache_size", count_plans);
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcuda

// A stand-in for libcufft: checks plans and calls against the library's documentation, and
// transforms on the host when the stream comes to the call. Declarations are those of cufft.h and
// cufftXt.h.
//
// Not here: layouts with gaps, several devices, callbacks.
#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "library.h"
#include "numbers.h"
#include "planted.h"
#include "work.h"

extern "C" int cuMemAlloc_v2(unsigned long long* address, size_t size);
extern "C" int cuMemFree_v2(unsigned long long address);

using namespace cusim;

namespace {

enum Result {
  kFine = 0,
  kInvalidPlan = 1,
  kNoMemory = 2,
  kInvalidType = 3,
  kInvalidValue = 4,
  kExecutionFailed = 6,
  kSetupFailed = 7,
  kInvalidSize = 8,
  kInvalidDevice = 11,
  kNoWorkspace = 13,
  kNotImplemented = 14,
};

using Number = std::complex<double>;
using Shape = std::vector<int64_t>;

struct Plan {
  int device = 0;
  bool allocates = true, made = false, has_workspace = false;
  int from = 0, to = 0;  // cudaDataType
  Shape shape;           // of the signal
  int64_t batch = 0;
  unsigned long long tables = 0;  // memory that the plan owns
  size_t workspace_size = 0;
  void *workspace = nullptr, *stream = nullptr;

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    return n;
  }
  int64_t half() const { return count() / shape.back() * (shape.back() / 2 + 1); }
  int64_t elements(int type) const {
    return is_complex(from) && is_complex(to) ? count() : is_complex(type) ? half() : count();
  }
};

std::mutex mutex;
std::map<int, std::shared_ptr<Plan>>& plans() {
  static auto* all = new std::map<int, std::shared_ptr<Plan>>;
  return *all;
}
std::shared_ptr<Plan> find(int handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at = plans().find(handle);
  return at == plans().end() ? nullptr : at->second;
}

// Where CUSIM_CUFFT_FAIL plants a status.
int fails(const std::string& where) { return planted("CUSIM_CUFFT_FAIL", where); }
void say(const std::string& line) { log_line("CUSIM_CUFFT_LOG", line); }

std::string text_of(const Plan& plan) {
  std::string text = is_complex(plan.from) ? is_complex(plan.to) ? "c2c" : "c2r" : "r2c";
  for (const int64_t n : plan.shape) text += " " + std::to_string(n);
  return text + " x" + std::to_string(plan.batch);
}

// ---- transforms on the host

int smallest_factor(int n) {
  for (int p = 2; p * p <= n; ++p)
    if (n % p == 0) return p;
  return n;
}

// e^(sign 2 pi i k / n) for k below n.
std::vector<Number> roots_of(int64_t n, int sign) {
  std::vector<Number> roots(n);
  for (int64_t k = 0; k < n; ++k) {
    const double angle = sign * 2 * M_PI * static_cast<double>(k) / static_cast<double>(n);
    roots[k] = {std::cos(angle), std::sin(angle)};
  }
  return roots;
}

// Decimation in time: transforms of n/p numbers, one for each residue of the smallest factor p.
std::vector<Number> transformed(const std::vector<Number>& x, const std::vector<Number>& roots) {
  const auto n = static_cast<int64_t>(x.size());
  if (n == 1) return x;
  const int64_t p = smallest_factor(static_cast<int>(n)), m = n / p,
                step = static_cast<int64_t>(roots.size()) / n;
  std::vector<std::vector<Number>> parts(p, std::vector<Number>(m));
  for (int64_t r = 0; r < p; ++r) {
    for (int64_t i = 0; i < m; ++i) parts[r][i] = x[i * p + r];
    if (m > 1) parts[r] = transformed(parts[r], roots);
  }
  std::vector<Number> out(n);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t r = 0; r < p; ++r) out[k] += parts[r][k % m] * roots[k * r % n * step];
  return out;
}

// Transforms contiguous numbers of `shape` along dimension `d`, in place.
void transform(std::vector<Number>& x, const Shape& shape, size_t d, int sign) {
  int64_t inner = 1;
  for (size_t e = d + 1; e < shape.size(); ++e) inner *= shape[e];
  const int64_t n = shape[d], outer = static_cast<int64_t>(x.size()) / (n * inner);
  const std::vector<Number> roots = roots_of(n, sign);
  std::vector<Number> line(n);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      Number* const at = x.data() + o * n * inner + i;
      for (int64_t k = 0; k < n; ++k) line[k] = at[k * inner];
      const std::vector<Number> found = transformed(line, roots);
      for (int64_t k = 0; k < n; ++k) at[k * inner] = found[k];
    }
  }
}

std::vector<Number> load_all(const void* from, int type, int64_t first, int64_t n) {
  std::vector<Number> x(n);
  for (int64_t i = 0; i < n; ++i)
    x[i] = {load(from, type, first + i), is_complex(type) ? load(from, type, first + i, 1) : 0.0};
  return x;
}
void store_all(void* to, int type, int64_t first, const std::vector<Number>& x) {
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = first + static_cast<int64_t>(i);
    store(to, type, at, x[i].real());
    if (is_complex(type)) store(to, type, at, x[i].imag(), 1);
  }
}

// The whole spectrum of a real signal. NaN at frequencies that contradict a real signal: the
// library leaves the result undefined then.
std::vector<Number> whole_spectrum(const std::vector<Number>& half, const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  const int64_t last = shape.back(), columns = last / 2 + 1;
  std::vector<Number> x(n);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i / last, mirrored = 0, scale = 1;
    const int64_t k = i % last;
    for (size_t d = shape.size() - 1; d-- > 0;) {
      const int64_t at = rest % shape[d];
      mirrored += (at ? shape[d] - at : 0) * scale;
      scale *= shape[d];
      rest /= shape[d];
    }
    const int64_t line = i / last;
    x[i] =
        k < columns ? half[line * columns + k] : std::conj(half[mirrored * columns + (last - k)]);
    const bool own_mirror = k == 0 || 2 * k == last;
    if (own_mirror && half[line * columns + k] != std::conj(half[mirrored * columns + k]))
      x[i] = {NAN, NAN};
  }
  return x;
}

struct Work {
  Plan plan;  // a copy, from the time of the call
  std::weak_ptr<const Plan> origin;
  bool is_captured = false;
  void *from, *to;
  int sign;

  // Does nothing if it was captured and its plan is destroyed: the kernels went with the plan.
  void run() const {
    if (plan.workspace_size) std::memset(plan.workspace, 0xee, plan.workspace_size);
    if (is_captured && origin.expired()) return;
    const int64_t given = plan.elements(plan.from), made = plan.elements(plan.to);
    for (int64_t b = 0; b < plan.batch; ++b) {
      std::vector<Number> x = load_all(from, plan.from, b * given, given);
      const bool to_real = !is_complex(plan.to);
      if (to_real) x = whole_spectrum(x, plan.shape);
      for (size_t d = 0; d < plan.shape.size(); ++d) transform(x, plan.shape, d, sign);
      if (!is_complex(plan.from)) {
        const int64_t last = plan.shape.back(), columns = last / 2 + 1;
        std::vector<Number> half;
        for (int64_t i = 0; i < plan.count(); ++i)
          if (i % last < columns) half.push_back(x[i]);
        x = half;
      }
      store_all(to, plan.to, b * made, x);
    }
    // The library computes in its input.
    if (!is_complex(plan.to))
      std::memset(from, 0xff, static_cast<size_t>(plan.batch * given * size_of(plan.from)));
  }
};

bool are_types(int from, int to, int compute) {
  const bool wide = compute == kC64;
  if (compute != kC32 && !wide) return false;
  const int real = wide ? kF64 : kF32;
  return (from == compute && to == compute) || (from == real && to == compute) ||
         (from == compute && to == real);
}

}  // namespace

extern "C" {

int cufftGetVersion(int* version) { return *version = 12000, kFine; }

/// The number of plans that exist.
long cusim_fft_plans() {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<long>(plans().size());
}

int cufftCreate(int* handle) {
  if (!handle) return kInvalidValue;
  if (const int status = fails("create")) return say("failed create"), status;
  auto plan = std::make_shared<Plan>();
  plan->device = current_device();
  if (plan->device < 0) return kSetupFailed;
  const std::lock_guard<std::mutex> lock(mutex);
  static int last = 0;
  plans()[*handle = ++last] = std::move(plan);
  return kFine;
}
int cufftDestroy(int handle) {
  const auto plan = find(handle);
  if (!plan) return kInvalidPlan;
  if (plan->device != current_device()) return kInvalidDevice;
  if (plan->tables) cuMemFree_v2(plan->tables);
  const std::lock_guard<std::mutex> lock(mutex);
  plans().erase(handle);
  return kFine;
}
int cufftSetAutoAllocation(int handle, int allocates) {
  const auto plan = find(handle);
  if (!plan || plan->made) return kInvalidPlan;
  plan->allocates = allocates != 0;
  return kFine;
}

int cufftXtMakePlanMany(int handle, int rank, long long* n, long long* in_embed, long long,
                        long long, int from, long long* out_embed, long long, long long, int to,
                        long long batch, size_t* size, int compute) {
  const auto plan = find(handle);
  if (!plan || plan->made) return kInvalidPlan;
  if (plan->device != current_device()) return kInvalidDevice;
  if (rank < 1 || rank > 3 || !n || !size) return kInvalidValue;
  if (batch < 1) return kInvalidSize;
  for (int d = 0; d < rank; ++d)
    if (n[d] < 1) return kInvalidSize;
  if (in_embed || out_embed || plan->allocates) return kNotImplemented;  // by this stand-in
  if (!are_types(from, to, compute)) return kInvalidType;
  Plan& p = *plan;
  p.from = from, p.to = to, p.batch = batch;
  p.shape.assign(n, n + rank);
  if (cuMemAlloc_v2(&p.tables, 256)) return kNoMemory;  // also where a capture forbids it
  if (const int status = fails("make")) return say("failed " + text_of(p)), status;
  // Short lines of powers of two need none.
  const bool is_short = rank == 1 && n[0] <= 64 && (n[0] & (n[0] - 1)) == 0;
  p.workspace_size = is_short ? 0 : static_cast<size_t>(p.count() * batch * size_of(compute));
  *size = p.workspace_size;
  p.made = true;
  say("make " + text_of(p));
  return kFine;
}

int cufftSetStream(int handle, void* stream) {
  const auto plan = find(handle);
  if (!plan) return kInvalidPlan;
  plan->stream = stream;
  return kFine;
}
int cufftSetWorkArea(int handle, void* area) {
  const auto plan = find(handle);
  if (!plan || !plan->made) return kInvalidPlan;
  if (!area && plan->workspace_size) return kInvalidValue;
  plan->workspace = area;
  plan->has_workspace = true;
  return kFine;
}

int cufftXtExec(int handle, void* from, void* to, int direction) {
  if (!cusim_meet()) return kExecutionFailed;
  const auto plan = find(handle);
  if (!plan || !plan->made) return kInvalidPlan;
  const Plan& p = *plan;
  if (p.device != current_device()) return kInvalidDevice;
  if (!from || !to || (direction != -1 && direction != 1)) return kInvalidValue;
  if (p.workspace_size && !p.has_workspace) return kNoWorkspace;
  const bool to_real = !is_complex(p.to), from_real = !is_complex(p.from);
  if ((to_real && direction < 0) || (from_real && direction > 0)) return kInvalidType;
  const auto aligned = static_cast<uintptr_t>(size_of(to_real ? p.from : p.to));
  if (reinterpret_cast<uintptr_t>(from) % aligned || reinterpret_cast<uintptr_t>(to) % aligned)
    return kInvalidValue;
  const auto bytes = [&](int type) { return p.elements(type) * p.batch * size_of(type); };
  const char *first = static_cast<char*>(from), *second = static_cast<char*>(to);
  const bool apart = first + bytes(p.from) <= second || second + bytes(p.to) <= first;
  if (!apart && (from != to || to_real || from_real)) return kInvalidValue;
  std::vector<CusimRegion> regions = {line_of(from, bytes(p.from), 1, false),
                                      line_of(to, bytes(p.to), 1, true)};
  if (to_real) regions.push_back(line_of(from, bytes(p.from), 1, true));
  if (p.workspace_size)
    regions.push_back(line_of(p.workspace, static_cast<int64_t>(p.workspace_size), 1, true));
  if (const int status = fails("execute")) return say("failed " + text_of(p)), status;
  if (const int status = fails("spoil")) return cusim_spoil_capture(p.stream), status;
  auto work = std::make_unique<Work>();
  work->plan = p;
  work->origin = plan;
  work->is_captured = is_capturing(p.stream);
  work->from = from, work->to = to, work->sign = direction;
  say("execute " + text_of(p));
  const int status = cusim_work(
      p.stream, "cufftXtExec", regions.data(), static_cast<int>(regions.size()),
      [](void* given) { static_cast<Work*>(given)->run(); },
      [](void* given) { delete static_cast<Work*>(given); }, work.release());
  return status ? kExecutionFailed : kFine;
}
}

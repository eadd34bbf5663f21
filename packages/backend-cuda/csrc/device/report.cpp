#include "device/report.h"

#include <atomic>

namespace rbcuda {

// Twin of Report in kernels/report.cuh.
struct Report {
  int32_t found, kind;
  const char* op;
  int64_t value, size;
  double real;
  int32_t dim, reserved;
};

namespace {

constexpr int kMostDevices = 64;
std::atomic<Report*> reports[kMostDevices];
std::mutex mutex;

Report* report_of(Device& device) {
  if (device.index() >= kMostDevices)
    rb::fail(RB_E_NOTIMPL, "cuda:%d: at most %d devices", device.index(), kMostDevices);
  std::atomic<Report*>& slot = reports[device.index()];
  if (Report* made = slot.load(std::memory_order_acquire)) return made;
  std::lock_guard<std::mutex> lock(mutex);
  if (Report* made = slot.load(std::memory_order_relaxed)) return made;
  device.enter();
  void* memory = nullptr;
  const RelaxedCapture relaxed;
  check_cuda(need(driver().host_allocate, "cuMemHostAlloc")(&memory, sizeof(Report), kPortable),
             device.index(), "cuMemHostAlloc");
  Report* made = new (memory) Report{};
  slot.store(made, std::memory_order_release);
  return made;
}

}  // namespace

Finder finder(Device& device, const char* op, int kind, int64_t size, int dim) {
  return {report_of(device), op, size, kind, dim};
}

void check_report(int device) {
  Report* r = device < kMostDevices ? reports[device].load(std::memory_order_acquire) : nullptr;
  constexpr int32_t kWritten = 2;
  if (!r || __atomic_load_n(&r->found, __ATOMIC_ACQUIRE) != kWritten) return;
  const Report seen = *r;
  int32_t expected = kWritten;
  if (!__atomic_compare_exchange_n(&r->found, &expected, 0, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE))
    return;  // another thread raises it
  if (seen.kind == kBadProbability)
    rb::fail(RB_E_ARG, "%s: probabilities must lie in [0, 1], got %g (found by cuda:%d)", seen.op,
             seen.real, device);
  rb::fail(RB_E_INDEX,
           "%s: index %lld is out of range for dimension %d with size %lld (found by cuda:%d; "
           "results that depend on it are not valid)",
           seen.op, static_cast<long long>(seen.value), seen.dim, static_cast<long long>(seen.size),
           device);
}

}  // namespace rbcuda

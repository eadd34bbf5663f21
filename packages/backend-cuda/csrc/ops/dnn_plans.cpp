#include "ops/dnn_plans.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/failure.h"
#include "launch/disk_cache.h"
#include "launch/sha256.h"
#include "launch/temporary.h"
#include "ops/dnn_search.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

// A problem's plan, and how it was found.
struct Entry {
  DnnPlan plan;
  bool is_searched = false, is_timed = false;
};

// Handles and plans of all devices; one call at a time.
struct Plans {
  /// Null, with one warning, where cuDNN does not start on the device.
  DnnHandle handle(int device) {
    const auto [at, is_new] = handles.try_emplace(device, nullptr);
    if (!is_new) return at->second;
    if (const int status = cudnn()->create(&at->second)) {
      at->second = nullptr;
      const std::string text = "cuda:" + std::to_string(device) +
                               ": cuDNN does not start (status " + std::to_string(status) +
                               "); kernels of ours go on without it";
      rb::host->log(2, text.c_str());
    }
    return at->second;
  }

  std::mutex mutex;
  std::unordered_map<int, DnnHandle> handles;
  std::unordered_map<std::string, Entry> entries;
};
Plans& plans() {
  static auto* instance = new Plans;  // never destroyed: the driver may be gone by then
  return *instance;
}

// ---- on disk

constexpr const char* kSuffix = ".plan";

std::string file_key(const DnnProblem& p, bool timed) {
  const Device& here = device(p.device);
  return sha256("cudnn " + std::to_string(cudnn_version()) + " " + here.name() + " " +
                here.architecture() + (timed ? " timed " : " ") + p.op + p.key);
}
DnnPlan read_plan(const DnnProblem& p, DnnHandle handle, bool timed) {
  if (cache_folder().empty()) return {};
  const std::vector<char> text = read_cached(file_key(p, timed), kSuffix);
  return text.empty() ? DnnPlan{} : dnn_plan_of_text(p, handle, text);
}
void write_plan(const DnnProblem& p, const DnnPlan& plan, bool timed) {
  if (cache_folder().empty() || !plan.plan) return;
  const std::vector<char> text = dnn_text_of_plan(plan);
  if (!text.empty()) write_cached(file_key(p, timed), text, kSuffix);
}

// ---- execution

class Execution {
 public:
  Execution(const DnnProblem& problem, DnnHandle handle, const RbTensor& like,
            const std::vector<DnnMemory>& memory, const std::function<void()>& before)
      : problem_(problem),
        handle_(handle),
        like_(like),
        before_(before),
        stream_(here().current_stream()) {
    for (const DnnMemory& m : memory) {
      names_.push_back(m.name);
      data_.push_back(m.data);
    }
    check_cudnn(cudnn()->set_stream(handle, stream_), problem.device, "cudnnSetStream");
  }

  Device& here() const { return device(problem_.device); }
  CuStream stream() const { return stream_; }

  /// False: there is no memory for its workspace.
  bool operator()(const DnnPlan& plan) const {
    Temporary workspace;
    try {
      if (plan.workspace > 0) workspace = Temporary(like_, plan.workspace);
    } catch (const rb::Stored& error) {
      if (error.code != RB_E_OOM) throw;
      return false;
    }
    void* const room = workspace.data();
    const auto count = static_cast<int64_t>(names_.size());
    const DnnOwned pack = DnnMaker(problem_.device, kDnnVariantPack)
                              .set(kDnnPackNames, kDnnAsInt64, names_.data(), count)
                              .set(kDnnPackPointers, kDnnAsPointer, data_.data(), count)
                              .set(kDnnPackWorkspace, kDnnAsPointer, &room)
                              .finish();
    if (before_) before_();
    const int status = cudnn()->execute(handle_, plan.plan.get(), pack.get());
    if (status) fail(status);
    launched(here(), stream_, problem_.op, kSuccess);
    return true;
  }

 private:
  // A plan was made for it: "not supported" is no reason to try something else.
  [[noreturn]] void fail(int status) const {
    rb::fail(RB_E_DEVICE, "%s on 'cuda:%d': cudnnBackendExecute failed: %s (cuDNN status %d)",
             problem_.op, problem_.device, cudnn()->error_string(status), status);
  }

  const DnnProblem& problem_;
  const DnnHandle handle_;
  const RbTensor& like_;
  const std::function<void()>& before_;
  const CuStream stream_;
  std::vector<int64_t> names_;
  std::vector<void*> data_;
};

// ---- the fastest of several

class Clock {
 public:
  explicit Clock(const Execution& run) : run_(run) {
    for (CuEvent& event : events_) check(driver().event_create(&event, 0), "cuEventCreate");
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  ~Clock() {
    for (CuEvent event : events_)
      if (event) driver().event_destroy(event);
  }
  /// Milliseconds, the least of three after one; negative where it does not run.
  float time(const DnnPlan& plan) const {
    float least = -1;
    try {
      if (!run_(plan)) return least;
      for (int i = 0; i < 3; ++i) {
        check(driver().event_record(events_[0], run_.stream()), "cuEventRecord");
        if (!run_(plan)) return -1;
        check(driver().event_record(events_[1], run_.stream()), "cuEventRecord");
        check(driver().event_synchronize(events_[1]), "cuEventSynchronize");
        float taken = 0;
        check(driver().event_elapsed(&taken, events_[0], events_[1]), "cuEventElapsedTime");
        least = least < 0 ? taken : std::min(least, taken);
      }
    } catch (const rb::Error&) {
      if (!run_.here().failure().empty()) throw;  // the device does not recover from it
      return -1;
    }
    return least;
  }

 private:
  void check(CuResult status, const char* what) const {
    check_cuda(status, run_.here().index(), what);
  }
  const Execution& run_;
  CuEvent events_[2] = {};
};

// Writes the results, as often as it tries.
DnnPlan fastest(const DnnProblem& problem, DnnHandle handle, const Execution& run) {
  const int64_t most = setting("cudnn.benchmark_limit", 10);
  const Clock clock(run);
  DnnPlan best;
  float best_time = -1;
  int64_t tried = 0;
  dnn_each_plan(problem, handle, [&](DnnPlan& plan) {
    const float time = clock.time(plan);
    if (time >= 0 && (best_time < 0 || time < best_time)) {
      best_time = time;
      best = std::move(plan);
    }
    return ++tried == most;  // 0: all
  });
  return best;
}

// The first that is allowed and wants less memory than `limit`.
DnnPlan first(const DnnProblem& problem, DnnHandle handle, int64_t limit = INT64_MAX) {
  DnnPlan found;
  dnn_each_plan(problem, handle, [&](DnnPlan& plan) {
    if (plan.workspace >= limit) return false;
    found = std::move(plan);
    return true;
  });
  return found;
}

void find_plan(Entry& entry, const DnnProblem& problem, DnnHandle handle, const Execution& run) {
  const bool timed = setting("cudnn.benchmark", 0) && !is_capturing(run.stream());
  if (entry.is_timed || (entry.is_searched && !timed)) return;
  entry.is_searched = true;
  entry.is_timed = timed;
  entry.plan = read_plan(problem, handle, timed);
  if (entry.plan.plan) return;
  entry.plan = timed ? fastest(problem, handle, run) : first(problem, handle);
  write_plan(problem, entry.plan, timed);
}

}  // namespace

bool dnn_deterministic() {
  return setting("cudnn.deterministic", 0) || setting("deterministic", 0);
}

bool run_by_dnn(const DnnProblem& problem, const RbTensor& like,
                const std::vector<DnnMemory>& memory, const std::function<void()>& before) {
  if (!setting("cudnn.enabled", 1) || !cudnn()) return false;
  device(problem.device).enter();
  const RelaxedCapture relaxed;  // engines load modules, also when they run first
  Plans& all = plans();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const DnnHandle handle = all.handle(problem.device);
  if (!handle) return false;
  const Execution run(problem, handle, like, memory, before);
  Entry& entry = all.entries[problem.key];
  find_plan(entry, problem, handle, run);
  while (entry.plan.plan) {
    if (run(entry.plan)) return true;
    DnnPlan smaller = first(problem, handle, entry.plan.workspace);
    if (!smaller.plan) return false;  // this time
    entry.plan = std::move(smaller);
  }
  return false;
}

}  // namespace rbcuda

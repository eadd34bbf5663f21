#include "ops/dnn_plans.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "device/capture.h"
#include "device/failure.h"
#include "device/timing.h"
#include "launch/disk_cache.h"
#include "launch/sha256.h"
#include "launch/temporary.h"
#include "ops/dnn_search.h"
#include "ops/library_plans.h"
#include "ops/settings.h"

namespace rbcuda {
namespace {

constexpr const char* kLibrary = "cuDNN";
constexpr size_t kMostProblems = 1024;  // that have plans, on each device

// A problem's plans, and how they were found.
struct Entry {
  std::vector<DnnPlan> plans;  // the one that is executed comes first
  size_t position = 0;         // where the search for more goes on
  bool is_searched = false, is_timed = false;
  std::shared_ptr<void> stored;  // the plan that went to the disk, or came from it
};

// One call at a time: a handle has one stream.
struct State {
  std::mutex mutex;
  Started<DnnHandle> handle;
  LruCache<std::string, Entry> entries{kMostProblems};
};

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

  Attempt operator()(const DnnPlan& plan) {
    if (plan.workspace >= too_much_) return Attempt::kNoMemory;
    Temporary workspace;
    try {
      if (plan.workspace > 0) workspace = Temporary(like_, plan.workspace);
    } catch (const rb::Stored& error) {
      if (error.code != RB_E_OOM) throw;
      too_much_ = plan.workspace;
      return Attempt::kNoMemory;
    }
    void* const room = workspace.data();
    const auto count = static_cast<int64_t>(names_.size());
    const DnnOwned pack = DnnMaker(problem_.device, kDnnVariantPack)
                              .set(kDnnPackNames, kDnnAsInt64, names_.data(), count)
                              .set(kDnnPackPointers, kDnnAsPointer, data_.data(), count)
                              .set(kDnnPackWorkspace, kDnnAsPointer, &room)
                              .finish();
    if (before_) before_();
    const Timed timed(here(), stream_, problem_.op);
    if (const int status = cudnn()->execute(handle_, plan.plan.get(), pack.get())) {
      plan_failed(kLibrary, problem_.op, here(), stream_,
                  std::string("cudnnBackendExecute failed: ") + cudnn()->error_string(status) +
                      " (cuDNN status " + std::to_string(status) + ")");
      return Attempt::kFailed;
    }
    keep_for_captures(problem_.device, plan.plan);
    launched(here(), stream_, problem_.op, kSuccess);
    return Attempt::kDone;
  }

  bool lacked_memory() const { return too_much_ != INT64_MAX; }

 private:
  const DnnProblem& problem_;
  const DnnHandle handle_;
  const RbTensor& like_;
  const std::function<void()>& before_;
  const CuStream stream_;
  std::vector<int64_t> names_;
  std::vector<void*> data_;
  int64_t too_much_ = INT64_MAX;  // bytes that could not be had
};

// ---- the fastest of several

class Clock {
 public:
  explicit Clock(Execution& run) : run_(run) {
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
      if (run_(plan) != Attempt::kDone) return least;
      for (int i = 0; i < 3; ++i) {
        check(driver().event_record(events_[0], run_.stream()), "cuEventRecord");
        if (run_(plan) != Attempt::kDone) return -1;
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
  Execution& run_;
  CuEvent events_[2] = {};
};

// Writes the results, as often as it tries.
DnnPlan fastest(const DnnProblem& problem, DnnHandle handle, Execution& run) {
  const int64_t most = setting("cudnn.benchmark_limit", 10);  // 0: all
  const Clock clock(run);
  DnnSearch search(problem, handle, 0);
  DnnPlan best;
  float best_time = -1;
  for (int64_t tried = 0; most == 0 || tried < most; ++tried) {
    DnnPlan plan = search.next();
    if (!plan.plan) break;
    const float time = clock.time(plan);
    if (time < 0 || (best_time >= 0 && time >= best_time)) continue;
    best_time = time;
    best = std::move(plan);
  }
  return best;
}

// Adds the plan to begin with if it is on disk or found by timing.
void find_plan(Entry& entry, const DnnProblem& problem, DnnHandle handle, Execution& run) {
  const bool timed = setting("cudnn.benchmark", 0) && !is_capturing(run.stream());
  if (entry.is_timed || (entry.is_searched && !timed)) return;
  entry = {};
  entry.is_searched = true;
  entry.is_timed = timed;
  DnnPlan found = read_plan(problem, handle, timed);
  entry.stored = found.plan;
  if (!found.plan && timed) found = fastest(problem, handle, run);
  if (found.plan) entry.plans.push_back(std::move(found));
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
  State& state = state_of<State>(problem.device);
  const std::lock_guard<std::mutex> lock(state.mutex);
  const DnnHandle handle = state.handle.get(kLibrary, problem.device, cudnn()->create);
  if (!handle) return false;
  Execution run(problem, handle, like, memory, before);
  Entry& entry = state.entries.get(problem.key);
  find_plan(entry, problem, handle, run);
  std::optional<DnnSearch> search;
  const auto more = [&] {
    if (!search) search.emplace(problem, handle, entry.position);
    DnnPlan plan = search->next();
    entry.position = search->position();
    if (!plan.plan) return false;
    entry.plans.push_back(std::move(plan));
    return true;
  };
  if (!run_first(entry.plans, run, more)) return false;
  const DnnPlan& plan = entry.plans.front();
  if (plan.plan == entry.stored) return true;
  entry.stored = plan.plan;
  // Another process may have the memory that this one lacked.
  if (!run.lacked_memory()) write_plan(problem, plan, entry.is_timed);
  return true;
}

}  // namespace rbcuda

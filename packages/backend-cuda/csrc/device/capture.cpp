#include "device/capture.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device/timing.h"

namespace rbcuda {
namespace {

// Objects that a graph needs, such as the plans whose kernels it launches.
using Kept = std::shared_ptr<std::vector<std::shared_ptr<void>>>;

struct Executable {
  CuGraphExec handle = nullptr;
  std::mutex mutex;
  std::vector<CuStream> launched_on;
  Kept kept;
};

// The objects that captures in progress and captured graphs keep alive.
class Keeping {
 public:
  void begin(int device, CuStream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_[{device, stream}] = std::make_shared<Kept::element_type>();
    count_.store(open_.size(), std::memory_order_release);
  }
  void add(int device, const std::shared_ptr<void>& object) {
    if (count_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [at, kept] : open_)
      if (at.first == device) kept->push_back(object);
  }
  /// `graph` is null if the capture has failed.
  void end(int device, CuStream stream, CuGraph graph) {
    Kept kept;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = open_.find({device, stream});
    if (at == open_.end()) return;
    kept = std::move(at->second);
    open_.erase(at);
    count_.store(open_.size(), std::memory_order_release);
    if (graph) ended_[graph] = std::move(kept);
  }
  Kept of(CuGraph graph) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = ended_.find(graph);
    return at == ended_.end() ? nullptr : at->second;
  }
  void drop(CuGraph graph) {
    Kept kept;  // destroyed after the lock is released
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = ended_.find(graph);
    if (at == ended_.end()) return;
    kept = std::move(at->second);
    ended_.erase(at);
  }

 private:
  std::mutex mutex_;
  std::atomic<size_t> count_{0};  // of open_
  std::map<std::pair<int, CuStream>, Kept> open_;
  std::map<CuGraph, Kept> ended_;
};
Keeping& keeping() {
  static auto* instance = new Keeping;  // never destroyed: the driver may be gone by then
  return *instance;
}

int32_t begin(void*, int32_t index, void* stream) {
  return rb::guarded([&] {
    if (!stream)
      rb::fail(RB_E_STATE,
               "cuda:%d: the default stream cannot be captured; use another one: "
               "'with rabbet.Stream(\"cuda:%d\"), graph:'",
               index, index);
    device(index).enter();
    check_cuda(need(driver().capture_begin, "cuStreamBeginCapture")(as_stream(stream),
                                                                    kCaptureThreadLocal),
               index, "cuStreamBeginCapture");
    keeping().begin(index, as_stream(stream));
  });
}

int32_t end(void*, int32_t index, void* stream, void** graph) {
  return rb::guarded([&] {
    device(index).enter();
    CuGraph made = nullptr;
    const CuResult status =
        need(driver().capture_end, "cuStreamEndCapture")(as_stream(stream), &made);
    keeping().end(index, as_stream(stream), status == kSuccess ? made : nullptr);
    if (status != kSuccess && made) driver().graph_destroy(made);
    check_cuda(status, index, "cuStreamEndCapture");
    *graph = made;
  });
}

int32_t instantiate(void*, int32_t index, void* graph, void** executable) {
  return rb::guarded([&] {
    device(index).enter();
    auto made = std::make_unique<Executable>();
    check_cuda(need(driver().graph_instantiate, "cuGraphInstantiateWithFlags")(
                   &made->handle, static_cast<CuGraph>(graph), 0),
               index, "cuGraphInstantiate");
    made->kept = keeping().of(static_cast<CuGraph>(graph));
    *executable = made.release();
  });
}

int32_t launch(void*, int32_t index, void* executable, void* stream) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    auto& e = *static_cast<Executable*>(executable);
    const Timed timed(here, as_stream(stream), "a captured graph", RB_LAUNCH_GRAPH);
    here.in_flight.add(as_stream(stream), "a captured graph");
    check_cuda(need(driver().graph_launch, "cuGraphLaunch")(e.handle, as_stream(stream)), index,
               "cuGraphLaunch");
    std::lock_guard<std::mutex> lock(e.mutex);
    auto& all = e.launched_on;
    if (std::find(all.begin(), all.end(), as_stream(stream)) == all.end())
      all.push_back(as_stream(stream));
  });
}

void destroy(void*, int32_t index, void* graph, void* executable) {
  if (forked()) return;
  rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    if (graph) {
      keeping().drop(static_cast<CuGraph>(graph));
      driver().graph_destroy(static_cast<CuGraph>(graph));
    }
    if (!executable) return;
    const std::unique_ptr<Executable> e(static_cast<Executable*>(executable));
    for (CuStream stream : e->launched_on) driver().stream_synchronize(stream);
    driver().graph_exec_destroy(e->handle);
  });
}

int32_t dump(void*, int32_t index, void* graph, const char* path) {
  return rb::guarded([&] {
    device(index).enter();
    check_cuda(need(driver().graph_dump, "cuGraphDebugDotPrint")(static_cast<CuGraph>(graph), path,
                                                                 kDumpVerbose),
               index, "cuGraphDebugDotPrint");
  });
}

}  // namespace

void keep_for_captures(int device, const std::shared_ptr<void>& object) {
  keeping().add(device, object);
}

const RbCapture kCapture = {
    RB_SIZE(RbCapture, graph_dump), 0, nullptr, begin, end, instantiate, launch, destroy, dump};

}  // namespace rbcuda

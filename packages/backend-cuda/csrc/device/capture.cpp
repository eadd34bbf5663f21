#include "device/capture.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace rbcuda {
namespace {

struct Executable {
  CuGraphExec handle = nullptr;
  std::mutex mutex;
  std::vector<CuStream> launched_on;
};

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
  });
}

int32_t end(void*, int32_t index, void* stream, void** graph) {
  return rb::guarded([&] {
    device(index).enter();
    CuGraph made = nullptr;
    const CuResult status =
        need(driver().capture_end, "cuStreamEndCapture")(as_stream(stream), &made);
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
    *executable = made.release();
  });
}

int32_t launch(void*, int32_t index, void* executable, void* stream) {
  return rb::guarded([&] {
    Device& here = device(index);
    here.enter();
    auto& e = *static_cast<Executable*>(executable);
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
    if (graph) driver().graph_destroy(static_cast<CuGraph>(graph));
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

const RbCapture kCapture = {
    RB_SIZE(RbCapture, graph_dump), 0, nullptr, begin, end, instantiate, launch, destroy, dump};

}  // namespace rbcuda

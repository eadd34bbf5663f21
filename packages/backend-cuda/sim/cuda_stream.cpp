// A stand-in for libcuda: streams, events, graphs.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <unordered_set>

#include "cuda.h"

namespace cusim {
namespace {

std::unordered_set<void*> live_streams, live_events;

Event* event_of(void* handle) {
  return live_events.count(handle) ? static_cast<Event*>(handle) : nullptr;
}

struct EventHandle {  // CUipcEventHandle
  char bytes[64];
};
struct EventContent {
  char mark[8];
  int process;
  void* event;
};
constexpr char kEventMark[8] = "cusim-e";

}  // namespace

Stream* stream_of(void* handle) {
  if (!handle || handle == reinterpret_cast<void*>(1)) return &current->first;
  return live_streams.count(handle) ? static_cast<Stream*>(handle) : nullptr;
}

int enqueue_on(void* handle, const std::string& what, std::function<void(uint32_t)> run) {
  CUSIM_STREAM(stream, handle);
  if (!stream.capture) {
    if (int status = forbid_in_capture(stream)) return status;
  }
  return enqueue(stream, what, std::move(run));
}

}  // namespace cusim

using namespace cusim;

#define CUSIM_EVENT(name, handle)           \
  Event* name##_event = event_of(handle);   \
  if (!name##_event) return kInvalidHandle; \
  Event& name = *name##_event

extern "C" {

int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  CUSIM_ENTER;
  if (flags > 1) return kInvalid;
  current->streams.push_back(std::make_unique<Stream>(*current, flags == 0));
  *stream = current->streams.back().get();
  current->streams.back()->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
  live_streams.insert(*stream);
  return kOk;
}
int cuStreamCreate(void** stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
// Its work goes on.
int cuStreamDestroy_v2(void* stream) {
  CUSIM_ENTER;
  return live_streams.erase(stream) ? kOk : kInvalidHandle;
}
int cuStreamGetPriority(void* handle, int* priority) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  *priority = stream.priority;
  return kOk;
}
int cuStreamSynchronize(void* handle) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  if (int status = forbid_in_capture(stream)) return status;
  ++wait_counts().host;
  synchronize(stream);
  return current->sticky;
}
int cuStreamQuery(void* handle) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  if (int status = forbid_in_capture(stream)) return status;
  const bool passed = query({&stream, stream.enqueued}, stream.clock);
  return current->sticky ? current->sticky : passed ? kOk : kNotReady;
}
int cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  CUSIM_EVENT(event, event_handle);
  if (stream.capture || event.capture) return capture_wait(stream, event);
  ++wait_counts().streams;
  if (event.recorded) wait_for(stream, event.point, event.clock);
  return kOk;
}
// For tests.
void cusim_wait_counts(uint64_t* streams, uint64_t* host) {
  Lock lock(mutex);
  *streams = wait_counts().streams;
  *host = wait_counts().host;
}
int cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  CUSIM_ENTER;
  return enqueue_on(handle, "a call of the host", [=](uint32_t) { function(data); });
}

int cuEventCreate(void** event, unsigned flags) {
  CUSIM_ENTER;
  if (flags > 7 || (flags & 4 && !(flags & 2))) return kInvalid;
  auto* made = new Event;
  made->timing = !(flags & 2);
  made->interprocess = flags & 4;
  *event = made;
  live_events.insert(made);
  return kOk;
}
// Streams may still refer to it, so that its memory stays.
int cuEventDestroy_v2(void* event) {
  CUSIM_ENTER;
  return live_events.erase(event) ? kOk : kInvalidHandle;
}
int cuEventRecord(void* handle, void* stream_handle) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, stream_handle);
  CUSIM_EVENT(event, handle);
  if (stream.capture)
    return capture_record(event, stream), stream.capture->invalid ? kCaptureInvalidated : kOk;
  if (int status = forbid_in_capture(stream)) return status;
  record(event, stream);
  // Another process may wait for it, which cannot run what is in this one's streams.
  if (event.interprocess) synchronize(event.point, event.clock);
  return kOk;
}
// Events of other processes have passed when they can be opened, as their process has seen to it.
int cuIpcGetEventHandle(EventHandle* handle, void* event_handle) {
  CUSIM_ENTER;
  CUSIM_EVENT(event, event_handle);
  if (!event.interprocess) return kInvalidHandle;
  const EventContent content = {{}, getpid(), event_handle};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &content, sizeof content);
  std::memcpy(handle, kEventMark, sizeof kEventMark);
  return kOk;
}
int cuIpcOpenEventHandle(void** event, EventHandle handle) {
  CUSIM_ENTER;
  EventContent content;
  std::memcpy(&content, &handle, sizeof content);
  if (std::memcmp(content.mark, kEventMark, sizeof kEventMark) != 0) return kInvalid;
  if (content.process == getpid()) return kInvalidContext;  // not in the process that made it
  if (kill(content.process, 0) != 0) return kInvalid;       // it has ended
  auto* made = new Event;
  made->timing = false;
  made->interprocess = made->recorded = true;
  *event = made;
  live_events.insert(made);
  return kOk;
}
int cuEventSynchronize(void* handle) {
  CUSIM_ENTER;
  CUSIM_EVENT(event, handle);
  if (event.capture) return event.capture->invalid = true, kCapturedEvent;
  if (int status = forbid_while_capturing()) return status;
  ++wait_counts().host;
  synchronize(event.point, event.clock);
  return current->sticky;
}
int cuEventQuery(void* handle) {
  CUSIM_ENTER;
  CUSIM_EVENT(event, handle);
  if (event.capture) return event.capture->invalid = true, kCapturedEvent;
  if (int status = forbid_while_capturing()) return status;
  return query(event.point, event.clock) ? kOk : current->sticky ? current->sticky : kNotReady;
}
int cuEventElapsedTime(float* time, void* start_handle, void* end_handle) {
  CUSIM_ENTER;
  CUSIM_EVENT(start, start_handle);
  CUSIM_EVENT(end, end_handle);
  if (!start.recorded || !end.recorded || !start.timing || !end.timing || start.capture ||
      end.capture)
    return kInvalidHandle;
  if (!start.point.passed() || !end.point.passed()) return kNotReady;
  *time = static_cast<float>(end.time - start.time);
  return kOk;
}
int cuEventElapsedTime_v2(float* time, void* start, void* end) {
  return cuEventElapsedTime(time, start, end);
}

// ---- capture and graphs

int cuStreamBeginCapture_v2(void* handle, int mode) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  if (mode < kGlobal || mode > kRelaxed) return kInvalid;
  return begin_capture(stream, static_cast<CaptureMode>(mode));
}
int cuStreamEndCapture(void* handle, void** graph) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  std::unique_ptr<Graph> made;
  const int status = end_capture(stream, made);
  *graph = made.release();
  return status;
}
int cuStreamIsCapturing(void* handle, int* state) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  *state = !stream.capture ? 0 : stream.capture->invalid ? 2 : 1;
  return kOk;
}
int cuStreamGetCaptureInfo_v2(void* handle, int* state, unsigned long long* id, void** graph,
                              const void*** nodes, size_t* count) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  *state = !stream.capture ? 0 : stream.capture->invalid ? 2 : 1;
  if (id && stream.capture) *id = stream.capture->id;
  if (graph) *graph = stream.capture ? &stream.capture->nodes : nullptr;
  if (nodes) *nodes = nullptr;
  if (count) *count = 0;
  return kOk;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  CUSIM_ENTER;
  return exchange_mode(mode);
}
int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  CUSIM_ENTER;
  if (nodes) return kNotSupported;
  *count = static_cast<Graph*>(graph)->size();
  return kOk;
}
int cuGraphDebugDotPrint(void* graph, const char* path, unsigned flags) {
  CUSIM_ENTER;
  if (!graph || !path || flags & ~0x1ffffu) return kInvalid;
  std::ofstream out(path);
  out << "digraph dot {\n";
  const Graph& nodes = *static_cast<Graph*>(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    out << "  node_" << i << " [label=\"" << nodes[i].what << "\"];\n";
    for (size_t before : nodes[i].after) out << "  node_" << before << " -> node_" << i << ";\n";
  }
  out << "}\n";
  return out.flush() ? kOk : kInvalid;
}
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
  CUSIM_ENTER;
  if (!graph || flags & ~15ull) return kInvalid;
  *exec = new GraphExec{*static_cast<Graph*>(graph), {}, {}, {}, {}};
  return kOk;
}
int cuGraphLaunch(void* exec, void* handle) {
  CUSIM_ENTER;
  CUSIM_STREAM(stream, handle);
  if (int status = forbid_in_capture(stream)) return status;
  return exec ? launch_graph(*static_cast<GraphExec*>(exec), stream) : kInvalid;
}
int cuGraphUpload(void*, void*) { return kOk; }
// Launches that have not run yet refer to it.
int cuGraphExecDestroy(void* exec) {
  CUSIM_ENTER;
  for (const auto& device : devices) synchronize(*device);
  delete static_cast<GraphExec*>(exec);
  return kOk;
}
int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kOk;
}
}

#include "capture.h"

#include <algorithm>
#include <set>

#include "device.h"
#include "schedule.h"

namespace cusim {
namespace {

std::set<std::shared_ptr<Capture>> under_way;
thread_local CaptureMode thread_mode = kGlobal;

void add_all(std::vector<size_t>& to, const std::vector<size_t>& from) {
  for (size_t node : from)
    if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
}

int fail(Capture& capture, int status) {
  capture.invalid = true;
  return status;
}

// Whether each node comes before one of `tails`.
bool all_reach(const Capture& capture, const std::vector<size_t>& tails) {
  std::vector<bool> reached(capture.nodes.size());
  std::vector<size_t> open = tails;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    for (size_t before : capture.nodes[node].after) open.push_back(before);
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

// An order in which a graph's nodes may run.
std::vector<size_t> order_of(const Graph& graph) {
  std::vector<size_t> order;
  std::vector<bool> done(graph.size());
  while (order.size() < graph.size()) {
    std::vector<size_t> able;
    for (size_t i = 0; i < graph.size(); ++i) {
      const auto& after = graph[i].after;
      if (!done[i] && std::all_of(after.begin(), after.end(), [&](size_t n) { return done[n]; }))
        able.push_back(i);
      if (!schedule().random() && !able.empty()) break;
    }
    order.push_back(able[schedule().random() ? schedule().below(able.size()) : 0]);
    done[order.back()] = true;
  }
  return order;
}

}  // namespace

int begin_capture(Stream& stream, CaptureMode mode) {
  static uint64_t ids = 0;
  if (&stream == &stream.device.first) return kCaptureUnsupported;
  if (stream.capture) return kInvalid;
  stream.capture = std::make_shared<Capture>();
  stream.capture->id = ++ids;
  stream.capture->origin = &stream;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  stream.capture->tails[&stream];
  under_way.insert(stream.capture);
  return kOk;
}

int end_capture(Stream& stream, std::unique_ptr<Graph>& graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return kInvalid;
  if (capture->origin != &stream) return fail(*capture, kCaptureUnmatched);
  if (capture->mode != kRelaxed && capture->thread != std::this_thread::get_id())
    return kCaptureWrongThread;
  under_way.erase(capture);
  const std::vector<size_t> tails = capture->tails[&stream];
  for (auto& [other, last] : capture->tails) other->capture = nullptr;
  if (capture->invalid) return kCaptureInvalidated;
  if (!all_reach(*capture, tails)) return kCaptureUnjoined;
  graph = std::make_unique<Graph>(std::move(capture->nodes));
  return kOk;
}

int capture_work(Stream& stream, const std::string& what, std::function<void(uint32_t)> run) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return kCaptureInvalidated;
  std::vector<size_t>& tails = capture.tails[&stream];
  capture.nodes.push_back({what, std::move(run), tails, stream.id});
  tails = {capture.nodes.size() - 1};
  return kOk;
}

void capture_record(Event& event, Stream& stream) {
  event.recorded = true;
  event.capture = stream.capture;
  event.nodes = stream.capture->tails[&stream];
}

int capture_wait(Stream& stream, const Event& event) {
  if (!event.capture) return fail(*stream.capture, kCaptureIsolation);
  if (event.capture->invalid) return kCaptureInvalidated;
  if (!under_way.count(event.capture)) return kInvalid;
  if (stream.capture && stream.capture != event.capture)
    return fail(*stream.capture, kCaptureMerge);
  if (&stream == &stream.device.first) return fail(*event.capture, kCaptureImplicit);
  stream.capture = event.capture;
  add_all(stream.capture->tails[&stream], event.nodes);
  return kOk;
}

int forbid_in_capture(Stream& stream) {
  if (stream.capture) return fail(*stream.capture, kCaptureUnsupported);
  if (&stream != &stream.device.first) return kOk;
  for (const auto& capture : under_way)
    if (capture->origin->blocking) return fail(*capture, kCaptureImplicit);
  return kOk;
}

int forbid_while_capturing() {
  if (thread_mode == kRelaxed) return kOk;
  int status = kOk;
  for (const auto& capture : under_way) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == kRelaxed || (!own && capture->mode == kThreadLocal)) continue;
    if (!own && thread_mode == kThreadLocal) continue;
    status = fail(*capture, kCaptureUnsupported);
  }
  return status;
}

int exchange_mode(int* mode) {
  if (*mode < kGlobal || *mode > kRelaxed) return kInvalid;
  const CaptureMode old = thread_mode;
  thread_mode = static_cast<CaptureMode>(*mode);
  *mode = old;
  return kOk;
}

// Nodes that are not ordered in the graph are not in the clocks, either.
int launch_graph(GraphExec& exec, Stream& stream) {
  if (stream.capture) return kNotSupported;
  std::vector<uint32_t> numbers(exec.graph.size());
  std::vector<Clock> clocks(exec.graph.size());
  wait_for(stream, exec.last, exec.clock);
  const int status = enqueue(stream, "the start of a graph", [](uint32_t) {});
  if (status) return status;
  const Clock before = stream.clock;
  for (size_t i = 0; i < exec.graph.size(); ++i) {  // in the order of capture
    const Node& node = exec.graph[i];
    auto lane = exec.lanes.find(node.lane);
    if (lane == exec.lanes.end())
      lane = exec.lanes.emplace(node.lane, commands().new_stream()).first;
    clocks[i] = before;
    for (size_t n : node.after) clocks[i].join(clocks[n]);
    const uint32_t number = ++exec.numbers[node.lane];
    clocks[i].set(lane->second, number);
    numbers[i] = commands().add({lane->second, number, clocks[i], node.what + " of a graph"});
    stream.clock.join(clocks[i]);
  }
  const int last = enqueue(stream, "a graph", [&exec, numbers](uint32_t) {
    for (size_t i : order_of(exec.graph)) exec.graph[i].run(numbers[i]);
  });
  exec.last = {&stream, stream.enqueued};
  exec.clock = stream.clock;
  return last;
}

}  // namespace cusim

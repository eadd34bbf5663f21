#include "device/capture.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "device/backends.h"
#include "device/streams.h"
#include "thread/error.h"
#include "thread/host_table.h"
#include "thread/source.h"

namespace rabbet {

namespace {

RbCapture capture_table(int backend) {
  const std::string name = std::string(backend_name(backend)) + "." RB_CAPTURE_EXT;
  const auto* given =
      static_cast<const RbCapture*>(kHost.get_ext(name.c_str(), RB_CAPTURE_VERSION));
  if (!given)
    fail(RB_E_NOTIMPL, "the backend '%s' cannot capture graphs: it publishes no table '%s'",
         backend_name(backend), name.c_str());
  if (given->struct_size < RB_SIZE(RbCapture, graph_destroy) || !given->capture_begin ||
      !given->capture_end || !given->graph_instantiate || !given->graph_launch ||
      !given->graph_destroy)
    fail(RB_E_PLUGIN, "the table '%s' of %s is too short, or a member of it is null", name.c_str(),
         backend_entry(backend).provider.c_str());
  RbCapture table{};
  std::memcpy(&table, given, std::min<size_t>(given->struct_size, sizeof table));
  return table;
}

std::atomic<int> under_way{0};

constexpr int64_t kBaseBytes = 2 * sizeof(uint64_t);

// Host memory to a device, in the order of the stream. Without `nonblocking` the copy has read the
// memory when this returns.
void copy_base(int backend, int device, void* source, void* to, void* stream, bool nonblocking) {
  int64_t shape = kBaseBytes, stride = 1;
  const auto bytes = [&](void* data, int on, int index) {
    RbTensor t{};
    t.data = data;
    t.device = {backend_traits[on].dlpack_type, index};
    t.ndim = 1;
    t.dtype = {1, 8, 1};  // uint8
    t.dtype_id = RB_U8;
    t.shape = &shape;
    t.strides = &stride;
    t.view_size = sizeof t;
    t.backend = static_cast<uint8_t>(on);
    t.numel = shape;
    t.flags = RB_T_CONTIGUOUS;
    return t;
  };
  const RbTensor from = bytes(source, default_backend(), 0);
  const RbTensor there = bytes(to, backend, device);
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (!devices || !devices->copy)
    fail(RB_E_NOTIMPL, "the backend '%s' has no `copy`, by which graphs get their random state",
         backend_name(backend));
  check_backend_code(backend, "copy", [&] {
    return devices->copy(devices->self, &from, &there, stream, nonblocking);
  });
}

// Null: the backend offers no pinned memory, or has none left.
Block* pinned_block(int backend, int device, uint64_t nbytes) {
  Block* block = nullptr;
  guarded(
      [&] { block = heap_of(backend, device, MemoryKind::kPinned).allocate(nbytes, nullptr, 0); });
  return block;
}

}  // namespace

bool captures_under_way() { return under_way.load(std::memory_order_relaxed) > 0; }

void check_not_capturing(int backend, int device, const char* what) {
  if (__builtin_expect(!capture_of(backend, device), 1)) return;
  const char* line = call_source();
  fail(RB_E_STATE, "%s cannot be captured: the work of %s:%d is recorded, it has not run%s%s", what,
       backend_name(backend), device, line ? "; at " : "", line ? line : "");
}

RbCaptureSlice reserve_captured(RbGenerator* generator, int backend, int device,
                                uint64_t counters) {
  RbCaptureSlice slice{RB_SIZE(RbCaptureSlice, base), 0, 0, 0, nullptr};
  RbGenerator& own = default_generator(backend, device);
  if (!generator) generator = &current_generator(backend, device);
  Capture* capture = capture_of(backend, device);
  if (!capture) {
    const RbRngSlice plain = reserve(*generator, counters);
    slice.seed = plain.seed;
    slice.offset = plain.offset;
    return slice;
  }
  if (generator != &own)
    fail(RB_E_STATE,
         "random numbers of another generator than the device's default one cannot be captured");
  slice.offset = capture->counters;
  slice.base = capture->base;
  capture->counters += counters;
  return slice;
}

Graph::Graph(bool keep, std::shared_ptr<MemoryPool> pool)
    : keep_(keep), pool_(pool ? std::move(pool) : make_pool()) {}

Graph::~Graph() {
  if (capturing_) guarded([&] { capture_end(); });
  guarded([&] { reset(); });
}

RbCapture Graph::table() const { return capture_table(backend_); }

void Graph::check_given(const void* result, const char* function, const char* what) const {
  if (result) return;
  fail(RB_E_PLUGIN, "%s of the backend '%s' returned RB_OK without its %s", function,
       backend_name(backend_), what);
}

void Graph::capture_begin(int backend, int device) {
  if (capturing_) fail(RB_E_STATE, "Graph.capture_begin: it captures already");
  if (graph_ || executable_)
    fail(RB_E_STATE, "Graph.capture_begin: it holds a captured graph; reset() it first");
  ThreadState& state = thread_state();
  if (state.capture)
    fail(RB_E_STATE, "Graph.capture_begin: this thread captures another graph, on %s:%d",
         backend_name(state.capture->backend), state.capture->device);
  check_device(backend, device);
  backend_ = backend;
  device_ = device;
  const RbCapture t = table();
  void* stream = current_stream(state, backend, device);
  if (!base_) base_ = heap_of(backend, device).allocate(kBaseBytes, stream, 0);
  enter_pool(backend, device, pool_->id);
  ++under_way;  // before: nobody may give the stream an event of its own from now on
  const int32_t rc = t.capture_begin(t.self, device, stream);
  if (rc != RB_OK) {
    --under_way;
    leave_pool(backend, device, pool_->id);
    check(rc);
  }
  capture_ = {backend, device, stream, 0, static_cast<const uint64_t*>(base_->data)};
  state.capture = &capture_;
  capturing_ = true;
}

void Graph::capture_end() {
  if (!capturing_) fail(RB_E_STATE, "Graph.capture_end: it does not capture");
  ThreadState& state = thread_state();
  if (state.capture != &capture_)
    fail(RB_E_STATE, "Graph.capture_end: another thread began the capture, and has to end it");
  capturing_ = false;
  state.capture = nullptr;
  leave_pool(backend_, device_, pool_->id);
  const RbCapture t = table();
  void* graph = nullptr;
  const int32_t rc = t.capture_end(t.self, device_, capture_.stream, &graph);
  --under_way;
  check(rc);
  check_given(graph, "capture_end", "graph");
  graph_ = graph;
  if (!keep_) instantiate();
}

void Graph::instantiate() {
  if (capturing_) fail(RB_E_STATE, "Graph.instantiate: end the capture first");
  if (!graph_) fail(RB_E_STATE, "Graph.instantiate: no graph was captured, or it was not kept");
  const RbCapture t = table();
  if (executable_) t.graph_destroy(t.self, device_, nullptr, executable_);
  executable_ = nullptr;
  void* executable = nullptr;
  check(t.graph_instantiate(t.self, device_, graph_, &executable));
  check_given(executable, "graph_instantiate", "executable");
  executable_ = executable;
  if (keep_) return;
  t.graph_destroy(t.self, device_, graph_, nullptr);
  graph_ = nullptr;
}

// The numbers are staged in pinned memory, which is not given again before the copy has read it, so
// that the host does not wait. Launches on another stream may still read those of the last one.
void Graph::write_base(const RbRngSlice& slice, void* stream) {
  if (launched_ && stream != last_stream_) stream_wait(backend_, device_, stream, last_stream_);
  const uint64_t numbers[] = {slice.seed, slice.offset};
  Block* staged = pinned_block(backend_, device_, sizeof numbers);
  uint64_t plain[2];
  void* source = staged ? staged->data : plain;
  std::memcpy(source, numbers, sizeof numbers);
  const int32_t rc = guarded(
      [&] { copy_base(backend_, device_, source, base_->data, stream, staged != nullptr); });
  if (staged) {
    heap_of_block(staged).record_stream(staged, {device_, stream});
    cached_free(staged);
  }
  check(rc);
}

void Graph::replay() {
  if (capturing_) fail(RB_E_STATE, "Graph.replay: end the capture first");
  if (!executable_ && !graph_) fail(RB_E_STATE, "Graph.replay: no graph was captured");
  check_device(backend_, device_);
  if (!executable_) instantiate();
  void* stream = current_stream(thread_state(), backend_, device_);
  check_not_capturing(backend_, device_, "Graph.replay: another graph");
  if (capture_.counters) {
    const RbRngSlice slice = reserve(default_generator(backend_, device_), capture_.counters);
    write_base(slice, stream);
  }
  const RbCapture t = table();
  check(t.graph_launch(t.self, device_, executable_, stream));
  launched_ = true;
  last_stream_ = stream;
}

void Graph::dump(const std::string& path) const {
  if (!graph_)
    fail(RB_E_STATE, "Graph.dump: no graph was captured and kept; ask for that before the capture");
  const RbCapture t = table();
  if (!t.graph_dump)
    fail(RB_E_NOTIMPL, "the backend '%s' cannot write graphs to files", backend_name(backend_));
  check(t.graph_dump(t.self, device_, graph_, path.c_str()));
}

void Graph::reset() {
  if (capturing_) fail(RB_E_STATE, "Graph.reset: end the capture first");
  if (graph_ || executable_) {
    const RbCapture t = table();
    t.graph_destroy(t.self, device_, graph_, executable_);
    graph_ = executable_ = nullptr;
  }
  if (base_) cached_free(base_);
  base_ = nullptr;
  launched_ = false;
  capture_.counters = 0;
}

}  // namespace rabbet

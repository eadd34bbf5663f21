// A stand-in for libcudnn: the backend API's functions. Descriptors are checked as its manual
// states them; a plan computes on the host when the stream comes to it. Declarations are those of
// cudnn_graph.h.
//
// Not here: everything that is not the backend API, knobs, ragged tensors, other operations than
// those of dnn_attributes.cpp. Statuses of wrong calls are those of the library where it was asked
// (tests/test_simulator_cudnn.py), but for calls that it does not survive.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "dnn.h"
#include "library.h"
#include "planted.h"
#include "work.h"

using namespace cusim;

namespace {

constexpr int kAsDescriptor = 15, kResults = 202, kEngineOfConfig = 300;

struct Handle {
  void* stream = nullptr;
};

// One call at a time. What was destroyed is not found.
std::mutex mutex;
std::map<void*, std::shared_ptr<DnnDescriptor>>& descriptors() {
  static auto* all = new std::map<void*, std::shared_ptr<DnnDescriptor>>;
  return *all;
}
std::shared_ptr<DnnDescriptor> find(void* descriptor) {
  const auto found = descriptors().find(descriptor);
  return found == descriptors().end() ? nullptr : found->second;
}

// CUSIM_CUDNN_LOG: a file to which lines are added.
void say(const std::string& line) { log_line("CUSIM_CUDNN_LOG", line); }
// CUSIM_CUDNN_FAST: the engine beside which others take a millisecond longer.
void take_time(int engine) {
  const char* fast = std::getenv("CUSIM_CUDNN_FAST");
  if (fast && std::atoi(fast) != engine) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int finalize_heuristics(DnnDescriptor& d) {
  const DnnPart graph = d.part(201);
  const int mode = d.one<int>(200);
  if (graph->kind != kGraph || mode < 0 || mode > 3) return kDnnBad;
  d.graph = graph->graph;
  return dnn_planted("heuristics");
}

// Of a configuration, or of the text that another plan was written as.
int finalize_plan(DnnDescriptor& d) {
  const auto text = d.all<char>(405);
  if (const DnnPart config = d.part(401)) {
    if (config->kind != kEngineConfig || !config->graph || !text.empty()) return kDnnBad;
    d.graph = config->graph;
    d.engine = config->engine;
  } else {
    DnnGraph graph;
    if (!dnn_from_text({text.begin(), text.end()}, &graph, &d.engine)) return kDnnBad;
    d.graph = std::make_shared<const DnnGraph>(std::move(graph));
  }
  if (const int status = dnn_supports(*d.graph, d.engine)) return status;
  d.keep<int64_t>(402, 3, {dnn_workspace(*d.graph, d.engine)});
  const std::string plan = dnn_text(*d.graph, d.engine);
  d.keep<char>(405, 24, {plan.begin(), plan.end()});
  say((text.empty() ? "plan " : "read ") + std::to_string(d.engine));
  return kDnnFine;
}

int finalize(DnnDescriptor& d) {
  switch (d.kind) {
    case kGraph:
      return dnn_make_graph(d);
    case kHeuristics:
      return finalize_heuristics(d);
    case kPlan:
      return finalize_plan(d);
    case kEngine:
    case kEngineConfig:
      return kDnnBad;  // only heuristics make them here
    default:
      return dnn_check(d);
  }
}

// Configurations into descriptors that the caller has made.
int give_configs(const DnnDescriptor& heuristics, int64_t wanted, int64_t* count, void* to) {
  const std::vector<int> engines = dnn_engines(*heuristics.graph, heuristics.one<int>(200));
  *count = static_cast<int64_t>(engines.size());
  if (wanted == 0) return kDnnFine;
  *count = std::min(*count, wanted);
  for (int64_t i = 0; i < *count; ++i) {
    const auto config = find(static_cast<void**>(to)[i]);
    if (!config || config->kind != kEngineConfig || config->finalized) return kDnnBad;
    config->graph = heuristics.graph;
    config->engine = engines[static_cast<size_t>(i)];
    config->finalized = true;
  }
  return kDnnFine;
}
int give_engine(const DnnDescriptor& config, int64_t wanted, int64_t* count, void* to) {
  *count = 1;
  if (wanted == 0) return kDnnFine;
  const auto engine = find(*static_cast<void**>(to));
  if (!engine || engine->kind != kEngine || engine->finalized) return kDnnBad;
  engine->engine = config.engine;
  engine->graph = config.graph;
  engine->keep<int>(1303, 11, dnn_notes(config.engine));
  engine->finalized = true;
  return kDnnFine;
}

// ---- execution

// The memory of a tensor: lines, lines of lines, and what is further apart one by one.
void add_regions(const DnnTensor& t, const void* data, bool written,
                 std::vector<CusimRegion>& regions) {
  const auto size = static_cast<size_t>(t.type == kDnnF32 || t.type == kDnnI32 ? 4
                                        : t.type == kDnnF64                    ? 8
                                        : t.type == kDnnBool                   ? 1
                                                                               : 2);
  std::vector<std::pair<int64_t, int64_t>> steps;  // stride, size
  for (size_t d = 0; d < t.shape.size(); ++d)
    if (t.shape[d] > 1) steps.emplace_back(t.strides[d], t.shape[d]);
  std::sort(steps.begin(), steps.end());
  size_t line = size, at = 0;
  while (at < steps.size() && static_cast<size_t>(steps[at].first) * size == line)
    line *= static_cast<size_t>(steps[at++].second);
  std::vector<const char*> begins = {static_cast<const char*>(data)};
  for (size_t d = steps.size(); d-- > at;) {
    std::vector<const char*> more;
    for (const char* begin : begins)
      for (int64_t i = 0; i < steps[d].second; ++i)
        more.push_back(begin + static_cast<size_t>(i * steps[d].first) * size);
    begins = std::move(more);
  }
  for (const char* begin : begins) regions.push_back({begin, line, line, 1, 0, 1, written});
}

struct Work {
  std::shared_ptr<const DnnGraph> graph;
  int engine;
  bool is_captured;  // it needs the plan whenever it runs: a plan that goes takes its kernels along
  std::weak_ptr<const DnnDescriptor> plan;
  std::map<int64_t, void*> data;
  std::vector<double> by_value;  // room for the values that came with the call
  void* workspace;
  int64_t workspace_size;

  void run() {
    if (workspace_size) std::memset(workspace, 0xee, static_cast<size_t>(workspace_size));
    take_time(engine);
    if (!is_captured || !plan.expired()) dnn_run(*graph, engine, data);
  }
};

int add_tensor(const DnnTensor& t, bool written, Work& work, std::vector<CusimRegion>& regions) {
  if (t.is_virtual) return kDnnFine;
  const auto found = work.data.find(t.name);
  if (found == work.data.end()) return kDnnBad;
  if (!found->second) return kDnnNull;
  if (t.by_value) return kDnnFine;
  if (reinterpret_cast<uintptr_t>(found->second) % static_cast<size_t>(t.alignment))
    return kDnnMisaligned;
  add_regions(t, found->second, written, regions);
  return kDnnFine;
}

int execute(const Handle& handle, const DnnPart& used, const DnnDescriptor& pack) {
  const DnnDescriptor& plan = *used;
  auto work = std::make_unique<Work>();
  work->graph = plan.graph;
  work->engine = plan.engine;
  work->plan = used;
  work->is_captured = is_capturing(handle.stream);
  work->workspace = pack.one<void*>(1003);
  work->workspace_size = plan.one<int64_t>(402);
  if (work->workspace_size && !work->workspace) return kDnnNull;
  const auto names = pack.all<int64_t>(1000);
  const auto data = pack.all<void*>(1001);
  for (size_t i = 0; i < names.size(); ++i) work->data[names[i]] = data[i];
  std::vector<CusimRegion> regions;
  std::map<int64_t, bool> is_made;  // a tensor that an earlier operation wrote is no input
  work->by_value.reserve(plan.graph->nodes.size() * 3);
  for (const DnnNode& n : plan.graph->nodes) {
    for (size_t i = 0; i < n.tensors.size(); ++i) {
      const DnnTensor& t = n.tensors[i];
      const bool written = i + 1 == n.tensors.size();
      if (!written && is_made[t.name]) continue;
      if (written) is_made[t.name] = true;
      if (written && dnn_adds(n) && !dnn_fills_sums())
        if (const int status = add_tensor(t, false, *work, regions)) return status;
      if (const int status = add_tensor(t, written, *work, regions)) return status;
      if (!t.by_value || t.is_virtual) continue;
      work->by_value.push_back(0);
      std::memcpy(&work->by_value.back(), work->data[t.name], t.type == kDnnF64 ? 8 : 4);
      work->data[t.name] = &work->by_value.back();
    }
  }
  if (work->workspace_size) {
    const auto size = static_cast<size_t>(work->workspace_size);
    regions.push_back({work->workspace, size, size, 1, 0, 1, true});
  }
  for (const std::string& where : {std::string("execute"), "execute" + std::to_string(plan.engine)})
    if (const int status = dnn_planted(where))
      return say("failed " + std::to_string(plan.engine)), status;
  if (const int status = dnn_planted("spoil")) return cusim_spoil_capture(handle.stream), status;
  say("execute " + std::to_string(plan.engine));
  const int status = cusim_work(
      handle.stream, "cudnnBackendExecute", regions.data(), static_cast<int>(regions.size()),
      [](void* given) { static_cast<Work*>(given)->run(); },
      [](void* given) { delete static_cast<Work*>(given); }, work.release());
  return status ? kDnnFailed : kDnnFine;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return static_cast<size_t>(dnn_version()); }
const char* cudnnGetErrorString(int status) {
  return status == kDnnFine           ? "CUDNN_STATUS_SUCCESS"
         : status == kDnnNotFinalized ? "CUDNN_STATUS_NOT_INITIALIZED"
         : status / 1000 == 2         ? "CUDNN_STATUS_BAD_PARAM"
         : status / 1000 == 3         ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status / 1000 == 4         ? "CUDNN_STATUS_INTERNAL_ERROR"
         : status / 1000 == 5         ? "CUDNN_STATUS_EXECUTION_FAILED"
                                      : "CUDNN_UNKNOWN_STATUS";
}

int cudnnCreate(void** handle) {
  if (const int status = dnn_planted("create")) return status;
  *handle = new Handle;
  return kDnnFine;
}
int cudnnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return kDnnFine;
}
int cudnnSetStream(void* handle, void* stream) {
  if (!handle) return kDnnBad;
  static_cast<Handle*>(handle)->stream = stream;
  return kDnnFine;
}

int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!descriptor) return kDnnNull;
  if (!dnn_has_kind(kind)) return kDnnNoKind;
  auto made = std::make_shared<DnnDescriptor>(kind);
  *descriptor = made.get();
  descriptors()[*descriptor] = std::move(made);
  return kDnnFine;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  const std::lock_guard<std::mutex> lock(mutex);
  return descriptors().erase(descriptor) ? kDnnFine : kDnnBad;
}
/// How many there are.
long cusim_dnn_descriptors() {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<long>(descriptors().size());
}

int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count,
                             const void* from) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto d = find(descriptor);
  if (!d) return kDnnBad;
  std::vector<DnnPart> parts;
  if (type == kAsDescriptor) {
    for (int64_t i = 0; from && i < count; ++i) {
      parts.push_back(find(static_cast<void* const*>(from)[i]));
      if (!parts.back()) return kDnnBad;
    }
  }
  return dnn_set(*d, attribute, type, count, from, parts);
}
int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t wanted,
                             int64_t* count, void* to) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto d = find(descriptor);
  if (!d || !count || wanted < 0) return kDnnBad;
  const bool configs = d->kind == kHeuristics && attribute == kResults;
  if (!configs && !(d->kind == kEngineConfig && attribute == kEngineOfConfig))
    return dnn_get(*d, attribute, type, wanted, count, to);
  if (!d->finalized) return kDnnNotFinalized;
  if (type != kAsDescriptor) return kDnnBadType;
  if (wanted > 0 && !to) return kDnnBad;
  return configs ? give_configs(*d, wanted, count, to) : give_engine(*d, wanted, count, to);
}
int cudnnBackendFinalize(void* descriptor) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto d = find(descriptor);
  if (!d || d->finalized || !dnn_is_complete(*d)) return kDnnBad;
  const int status = finalize(*d);
  d->finalized = status == kDnnFine;
  return status;
}

int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  if (!cusim_meet()) return kDnnFailed;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto how = find(plan), what = find(pack);
  if (!handle || !how || !what || how->kind != kPlan || what->kind != kVariantPack) return kDnnBad;
  if (!how->finalized || !what->finalized) return kDnnBad;
  return execute(*static_cast<Handle*>(handle), how, *what);
}
}

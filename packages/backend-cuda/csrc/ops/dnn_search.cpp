#include "ops/dnn_search.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

namespace rbcuda {
namespace {

constexpr int kMostNotes = 16, kMostConfigs = 16;

// Whether the engine keeps to what the user allows.
bool is_allowed(const DnnProblem& p, const DnnOwned& config) {
  const DnnOwned engine = DnnMaker(p.device, kDnnEngine).release();
  void* raw = engine.get();
  int64_t count = 0;
  if (cudnn()->get(config.get(), kDnnConfigEngine, kDnnAsDescriptor, 1, &count, &raw)) return false;
  int notes[kMostNotes];
  if (cudnn()->get(raw, kDnnEngineNotes, kDnnAsNote, kMostNotes, &count, notes)) return false;
  return std::none_of(notes, notes + std::min<int64_t>(count, kMostNotes), [&](int note) {
    return note == kDnnNoteLessPrecise || (note == kDnnNoteVaries && p.deterministic) ||
           (note == kDnnNoteTensorCore && !p.tensor_cores);
  });
}

std::vector<DnnOwned> configs(const DnnProblem& p, const DnnOwned& graph, int mode) {
  std::vector<DnnOwned> found;
  const DnnOwned heuristics = DnnMaker(p.device, kDnnHeuristics)
                                  .set(kDnnHeuristicsGraph, graph)
                                  .set(kDnnHeuristicsMode, kDnnAsHeuristicsMode, &mode)
                                  .finish();
  void* raw[kMostConfigs];
  for (void*& config : raw) {
    found.push_back(DnnMaker(p.device, kDnnEngineConfig).release());
    config = found.back().get();
  }
  int64_t count = 0;
  const int status = cudnn()->get(heuristics.get(), kDnnHeuristicsResults, kDnnAsDescriptor,
                                  kMostConfigs, &count, raw);
  found.resize(status ? 0 : std::min<int64_t>(count, kMostConfigs));
  return found;
}

// Finalizes it; none where cuDNN refuses.
DnnPlan finished(const DnnProblem& p, DnnMaker& maker) {
  DnnPlan made;
  made.plan = maker.release();
  int64_t count = 0;
  if (cudnn()->finalize(made.plan.get())) return {};
  check_cudnn(
      cudnn()->get(made.plan.get(), kDnnPlanWorkspace, kDnnAsInt64, 1, &count, &made.workspace),
      p.device, "cudnnBackendGetAttribute", p.op);
  return made;
}

// Once: what fails for one problem, such as a part of cuDNN that cannot be opened, may for all.
void warn(const DnnProblem& p, const char* what) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const std::string text = std::string(p.op) + ": no plan of cuDNN (" + what +
                           "); kernels of this backend go on without it";
  rb::host->log(2, text.c_str());
}

}  // namespace

DnnPlan DnnSearch::make_next() {
  constexpr int kModes[] = {kDnnModeA, kDnnModeFallback};
  if (position_ == kEnd) return {};
  if (!graph_) graph_ = problem_.graph(problem_.problem, handle_);
  for (;;) {
    while (position_ >= configs_.size()) {
      if (modes_ == std::size(kModes)) return {};
      for (DnnOwned& config : configs(problem_, graph_, kModes[modes_++]))
        configs_.push_back(std::move(config));
    }
    const DnnOwned& config = configs_[position_++];
    if (!is_allowed(problem_, config)) continue;
    DnnMaker maker(problem_.device, kDnnPlan);
    maker.set(kDnnPlanHandle, kDnnAsHandle, &handle_).set(kDnnPlanConfig, config);
    DnnPlan plan = finished(problem_, maker);
    if (plan.plan) return plan;
  }
}

DnnPlan DnnSearch::next() {
  DnnPlan plan;
  try {
    plan = make_next();
  } catch (const rb::Error& error) {
    if (error.code() != RB_E_NOTIMPL) warn(problem_, error.what());
  }
  if (!plan.plan) position_ = kEnd;
  return plan;
}

std::vector<char> dnn_text_of_plan(const DnnPlan& plan) {
  int64_t size = 0;
  void* const raw = plan.plan.get();
  if (cudnn()->get(raw, kDnnPlanText, kDnnAsChar, 0, &size, nullptr) || size <= 0) return {};
  std::vector<char> text(static_cast<size_t>(size));
  if (cudnn()->get(raw, kDnnPlanText, kDnnAsChar, size, &size, text.data())) return {};
  return text;
}

DnnPlan dnn_plan_of_text(const DnnProblem& problem, DnnHandle handle,
                         const std::vector<char>& text) {
  DnnMaker maker(problem.device, kDnnPlan);
  try {
    maker.set(kDnnPlanHandle, kDnnAsHandle, &handle)
        .set(kDnnPlanText, kDnnAsChar, text.data(), static_cast<int64_t>(text.size()));
    return finished(problem, maker);
  } catch (const rb::Error&) {
    return {};
  }
}

}  // namespace rbcuda

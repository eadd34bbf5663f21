// Which plans cuDNN has for a graph.
#pragma once
#include <memory>
#include <vector>

#include "ops/dnn_plans.h"

namespace rbcuda {

struct DnnPlan {
  std::shared_ptr<void> plan;  // null: there is none
  int64_t workspace = 0;
};

/// The plans of the heuristics, best first, whose engines the problem allows. None if cuDNN does
/// not support the graph, or, with a warning, if it fails.
class DnnSearch {
 public:
  static constexpr size_t kEnd = SIZE_MAX;

  /// `begin`: 0, or the position of an earlier search to continue.
  DnnSearch(const DnnProblem& problem, DnnHandle handle, size_t begin)
      : problem_(problem), handle_(handle), position_(begin) {}

  DnnPlan next();
  size_t position() const { return position_; }

 private:
  DnnPlan make_next();

  const DnnProblem& problem_;
  const DnnHandle handle_;
  size_t position_, modes_ = 0;  // the next configuration; how many heuristics were asked
  DnnOwned graph_;
  std::vector<DnnOwned> configs_;
};

/// As JSON, which a later process can load; empty where it cannot be written so.
std::vector<char> dnn_text_of_plan(const DnnPlan& plan);
/// None where cuDNN does not take it.
DnnPlan dnn_plan_of_text(const DnnProblem& problem, DnnHandle handle,
                         const std::vector<char>& text);

}  // namespace rbcuda

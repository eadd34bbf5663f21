// Which plans cuDNN has for a graph.
#pragma once
#include <functional>
#include <vector>

#include "ops/dnn_plans.h"

namespace rbcuda {

struct DnnPlan {
  DnnOwned plan;  // null: there is none
  int64_t workspace = 0;
};

/// The plans of the heuristics, best first, whose engines the problem allows. `take` may keep the
/// plan, and says whether it was the last. None where cuDNN does not support the graph, or with
/// a warning, where it fails.
void dnn_each_plan(const DnnProblem& problem, DnnHandle handle,
                   const std::function<bool(DnnPlan&)>& take);

/// As JSON, which a later process can load; empty where it cannot be written so.
std::vector<char> dnn_text_of_plan(const DnnPlan& plan);
/// None where cuDNN does not take it.
DnnPlan dnn_plan_of_text(const DnnProblem& problem, DnnHandle handle,
                         const std::vector<char>& text);

}  // namespace rbcuda

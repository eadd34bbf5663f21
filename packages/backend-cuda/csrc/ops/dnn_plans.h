// Plans of cuDNN: found by its heuristics or by timing, kept by problem in memory and on disk, and
// executed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "driver/cudnn_descriptor.h"
#include "rabbet/plugin.hpp"

namespace rbcuda {

/// What is asked of cuDNN. Equal keys have equal graphs, and rules for engines.
struct DnnProblem {
  const char* op;
  int device;
  std::string key;
  bool tensor_cores;   // whether engines may use them: they round float32 inputs
  bool deterministic;  // whether results must be equal in every run
  DnnOwned (*graph)(const void* problem, DnnHandle handle);
  const void* problem;
};
struct DnnMemory {
  int64_t name;
  void* data;
};

/// Whether `rabbet.backends.cudnn` asks for equal results in every run.
bool dnn_deterministic();

/// Enqueue it on the current stream. False, and nothing is written, where cuDNN is not there or
/// knows no plan that is allowed, or no plan's workspace can be had. `like` is on the device.
/// `before` is called before every execution: benchmarks are several.
bool run_by_dnn(const DnnProblem& problem, const RbTensor& like,
                const std::vector<DnnMemory>& memory, const std::function<void()>& before = {});

}  // namespace rbcuda

// Calls of operators on tensors in numbered slots, run one after the other.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "rabbet/graph.h"

namespace rabbet::graph {

/// Copies of the lists in arguments.
class Lists {
 public:
  RbValue copy(const RbValue& value);

 private:
  template <class T>
  T* keep(const T* items, size_t n);
  std::vector<std::unique_ptr<char[]>> blocks_;
};

struct Step {
  const RbOp* op;
  bool returns_list;
  uint64_t exclude;
  std::vector<RbValue> args;
  std::vector<RbPlace> places;
  std::vector<RbNumberPlace> numbers;
  std::vector<uint32_t> outs, results, last;
};

}  // namespace rabbet::graph

struct RbProgram {
 public:
  RbProgram(uint32_t ninputs, uint32_t nslots);
  void add(const RbStep& step);
  void finish(const uint32_t* slots, uint32_t n);
  void run(RbTensor* const* inputs, uint32_t ninputs, const RbValue* numbers, uint32_t nnumbers,
           RbTensor** outputs, uint32_t noutputs, int32_t& failed) const;

 private:
  enum State : uint8_t { kEmpty, kInput, kMade, kGone };
  void check_read(uint32_t slot) const;
  void check_read(uint32_t slot, const std::vector<State>& states) const;
  void check_arguments(const RbStep& step) const;

  void check_numbers(const RbStep& step) const;

  uint32_t ninputs_;
  uint32_t nnumbers_ = 0;
  std::vector<State> states_;  // of the slots, after the last step
  std::vector<rabbet::graph::Step> steps_;
  std::vector<uint32_t> outputs_;
  rabbet::graph::Lists lists_;
  bool finished_ = false;
};

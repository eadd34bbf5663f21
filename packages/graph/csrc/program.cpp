#include "program.h"

#include <algorithm>
#include <cstring>

#include "rabbet/plugin.hpp"

namespace rabbet::graph {

template <class T>
T* Lists::keep(const T* items, size_t n) {
  blocks_.emplace_back(new char[std::max<size_t>(n, 1) * sizeof(T)]);
  auto* made = reinterpret_cast<T*>(blocks_.back().get());
  if (n) std::memcpy(made, items, n * sizeof(T));
  return made;
}

RbValue Lists::copy(const RbValue& value) {
  RbValue made = value;
  const size_t n = value.len;
  switch (value.tag) {
    case RB_STR: {
      char* text = keep(value.v.s, n + 1);
      text[n] = 0;
      made.v.s = text;
      break;
    }
    case RB_COMPLEX:
      made.v.fs = keep(value.v.fs, 2);
      break;
    case RB_INTS:
      made.v.is = keep(value.v.is, n);
      break;
    case RB_FLOATS:
      made.v.fs = keep(value.v.fs, n);
      break;
    case RB_BOOLS:
      made.v.bs = keep(value.v.bs, n);
      break;
    case RB_TENSORS:
      made.v.ts = keep(value.v.ts, n);
      break;
    case RB_STRS: {
      const char** texts = keep(value.v.ss, n);
      for (size_t i = 0; i < n; ++i) texts[i] = keep(texts[i], std::strlen(texts[i]) + 1);
      made.v.ss = texts;
      break;
    }
    case RB_SCALARS: {
      RbValue* items = keep(value.v.vs, n);
      for (size_t i = 0; i < n; ++i) items[i] = copy(items[i]);
      made.v.vs = items;
      break;
    }
    default:
      break;
  }
  return made;
}

namespace {

const char* name_of(const RbOp* op) { return rb::host->op_info(op)->name; }

// The tensors of one run. Those of steps are owned.
class Slots {
 public:
  Slots(RbTensor* const* inputs, uint32_t ninputs, size_t n) : tensors_(n), ninputs_(ninputs) {
    std::copy(inputs, inputs + ninputs, tensors_.begin());
  }
  ~Slots() {
    for (size_t i = ninputs_; i < tensors_.size(); ++i)
      if (tensors_[i]) rb::host->release(tensors_[i]);
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  RbTensor* operator[](uint32_t slot) const { return tensors_[slot]; }
  void own(uint32_t slot, RbTensor* tensor) { tensors_[slot] = tensor; }
  void drop(uint32_t slot) {
    rb::host->release(tensors_[slot]);
    tensors_[slot] = nullptr;
  }

 private:
  std::vector<RbTensor*> tensors_;
  uint32_t ninputs_;
};

// Switches layers off for the thread, and on again at the end.
class Layers {
 public:
  Layers() = default;
  ~Layers() { exclude(0); }
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  void exclude(uint64_t layers) {
    if (layers == excluded_) return;
    RbThread thread{};
    thread.struct_size = sizeof thread;
    rb::host->thread_get(&thread);
    if (!excluded_) before_ = thread.exclude;
    thread.exclude = before_ | layers;
    rb::host->thread_set(&thread);
    excluded_ = layers;
  }

 private:
  uint64_t excluded_ = 0, before_ = 0;
};

// The arguments of one call: those of the step, with the run's tensors in them.
class Arguments {
 public:
  Arguments(const Step& step, const Slots& slots, const RbValue* numbers) {
    std::copy(step.args.begin(), step.args.end(), values_);
    for (const RbNumberPlace& place : step.numbers)
      put_number(step, values_[place.arg], numbers[place.number]);
    for (const RbPlace& place : step.places) {
      RbValue& value = values_[place.arg];
      if (!slots[place.slot])
        rb::fail(RB_E_STATE, "%s: argument %d is a result that its operator did not give",
                 name_of(step.op), place.arg);
      if (place.item < 0) {
        value = rb::tensor_value(slots[place.slot]);
      } else {
        list_of(step, place.arg)[place.item] = slots[place.slot];
      }
    }
  }
  const RbValue* values() const { return values_; }

 private:
  static void put_number(const Step& step, RbValue& value, const RbValue& number) {
    if (number.tag == value.tag) {
      value.v = number.v;
    } else if (number.tag == RB_INT && value.tag == RB_FLOAT) {
      value.v.f = static_cast<double>(number.v.i);
    } else {
      rb::fail(RB_E_TYPE, "%s: expected an integer of the run, got another value",
               name_of(step.op));
    }
  }

  // The list of an argument, copied for this run.
  RbTensor** list_of(const Step& step, int32_t arg) {
    RbValue& value = values_[arg];
    if (value.v.ts == step.args[static_cast<size_t>(arg)].v.ts) {
      lists_.emplace_back(value.v.ts, value.v.ts + value.len);
      value.v.ts = lists_.back().data();
    }
    return const_cast<RbTensor**>(value.v.ts);
  }

  RbValue values_[RB_MAX_ARGS];
  std::vector<std::vector<RbTensor*>> lists_;
};

void take_list(const Step& step, RbValue& ret, Slots& slots) {
  if (ret.tag != RB_TENSORS || ret.len != step.results.size()) {
    const auto got = static_cast<int>(ret.tag == RB_TENSORS ? ret.len : 0);
    rb::host->value_release(&ret);
    rb::fail(RB_E_STATE, "%s: expected %d tensors, as in the program, got %d", name_of(step.op),
             static_cast<int>(step.results.size()), got);
  }
  for (size_t i = 0; i < step.results.size(); ++i) {
    rb::host->retain(ret.v.ts[i]);
    slots.own(step.results[i], ret.v.ts[i]);
  }
  rb::host->value_release(&ret);
}

void run_step(const Step& step, Slots& slots, const RbValue* numbers) {
  const Arguments args(step, slots, numbers);
  RbValue rets[RB_MAX_RETS];
  const auto nargs = static_cast<int32_t>(step.args.size());
  if (!step.outs.empty()) {
    for (size_t i = 0; i < step.outs.size(); ++i) rets[i] = rb::tensor_value(slots[step.outs[i]]);
    return rb::check(rb::host->call(step.op, args.values(), nargs, rets,
                                    static_cast<int32_t>(step.outs.size()), RB_CALL_OUT));
  }
  const size_t n = step.returns_list ? 1 : step.results.size();
  for (size_t i = 0; i < n; ++i) rets[i] = rb::none_value();
  rb::check(rb::host->call(step.op, args.values(), nargs, rets, static_cast<int32_t>(n), 0));
  if (step.returns_list) return take_list(step, rets[0], slots);
  for (size_t i = 0; i < n; ++i)
    slots.own(step.results[i], rets[i].tag == RB_TENSOR ? rets[i].v.t : nullptr);
}

std::vector<uint32_t> as_vector(const uint32_t* items, int32_t n) {
  if (n < 0 || (n && !items)) rb::fail(RB_E_ARG, "program_add: a list of slots is missing");
  return {items, items + n};
}

}  // namespace

}  // namespace rabbet::graph

using rabbet::graph::Step;

RbProgram::RbProgram(uint32_t ninputs, uint32_t nslots)
    : ninputs_(ninputs), states_(nslots, kEmpty) {
  if (ninputs > nslots)
    rb::fail(RB_E_ARG, "program_new: %u inputs do not fit into %u slots", ninputs, nslots);
  std::fill_n(states_.begin(), ninputs, kInput);
}

void RbProgram::check_read(uint32_t slot) const { check_read(slot, states_); }

void RbProgram::check_read(uint32_t slot, const std::vector<State>& states) const {
  if (slot >= states.size())
    rb::fail(RB_E_INDEX, "step %d: there is no slot %u: the program has %d",
             static_cast<int>(steps_.size()), slot, static_cast<int>(states.size()));
  if (states[slot] == kEmpty || states[slot] == kGone)
    rb::fail(RB_E_STATE, "step %d: slot %u is %s", static_cast<int>(steps_.size()), slot,
             states[slot] == kEmpty ? "not made yet" : "given up by an earlier step");
}

void RbProgram::check_arguments(const RbStep& step) const {
  const RbOpInfo* info = rb::host->op_info(step.op);
  if (!info) rb::fail(RB_E_ARG, "program_add: step %d has no operator", int(steps_.size()));
  if (step.nargs != info->nargs || (step.nargs && !step.args))
    rb::fail(RB_E_ARG, "program_add: %s takes %d arguments, got %d", info->name, info->nargs,
             step.nargs);
  if (step.nplaces < 0 || (step.nplaces && !step.places))
    rb::fail(RB_E_ARG, "program_add: %s: the places of tensors are missing", info->name);
  const bool list = step.flags & RB_STEP_LIST;
  if (step.nouts ? step.nouts != info->nrets || step.nresults
                 : (list ? info->nrets != 1 : step.nresults != info->nrets))
    rb::fail(RB_E_ARG, "program_add: %s has %d results, got %d, and %d tensors to write",
             info->name, info->nrets, step.nresults, step.nouts);
  for (int32_t i = 0; i < step.nplaces; ++i) {
    const RbPlace& place = step.places[i];
    if (place.arg < 0 || place.arg >= step.nargs)
      rb::fail(RB_E_INDEX, "program_add: %s has no argument %d", info->name, place.arg);
    const RbValue& value = step.args[place.arg];
    if (place.item >= 0 &&
        (value.tag != RB_TENSORS || place.item >= static_cast<int64_t>(value.len)))
      rb::fail(RB_E_INDEX, "program_add: %s: argument %d has no tensor %d", info->name, place.arg,
               place.item);
    check_read(place.slot);
  }
  for (int32_t i = 0; i < step.nargs; ++i) {
    const uint32_t tag = step.args[i].tag;
    const bool placed = std::any_of(step.places, step.places + step.nplaces,
                                    [&](const RbPlace& p) { return p.arg == i && p.item < 0; });
    if ((tag == RB_TENSOR || tag == RB_META) && !placed)
      rb::fail(RB_E_ARG, "program_add: %s: argument %d is a tensor without a slot", info->name, i);
  }
}

void RbProgram::check_numbers(const RbStep& step) const {
  for (int32_t i = 0; i < step.nnumbers; ++i) {
    const int32_t arg = step.numbers[i].arg;
    const uint32_t tag = arg >= 0 && arg < step.nargs ? step.args[arg].tag : uint32_t{RB_NONE};
    if (tag != RB_INT && tag != RB_FLOAT)
      rb::fail(RB_E_ARG, "program_add: %s: argument %d is no number",
               rb::host->op_info(step.op)->name, arg);
  }
}

void RbProgram::add(const RbStep& given) {
  if (finished_) rb::fail(RB_E_STATE, "program_add: the program is finished");
  check_arguments(given);
  const bool has_numbers = given.struct_size >= sizeof(RbStep) && given.nnumbers > 0;
  if (has_numbers) check_numbers(given);
  Step step;
  step.op = given.op;
  step.returns_list = given.flags & RB_STEP_LIST;
  step.exclude = given.exclude;
  if (given.nplaces) step.places.assign(given.places, given.places + given.nplaces);
  step.outs = rabbet::graph::as_vector(given.outs, given.nouts);
  step.results = rabbet::graph::as_vector(given.results, given.nresults);
  step.last = rabbet::graph::as_vector(given.last, given.nlast);
  if (has_numbers) step.numbers.assign(given.numbers, given.numbers + given.nnumbers);
  for (const uint32_t slot : step.outs) check_read(slot);
  for (int32_t i = 0; i < given.nargs; ++i) step.args.push_back(lists_.copy(given.args[i]));
  std::vector<State> states = states_;
  for (const uint32_t slot : step.results) {
    if (slot >= states.size() || states[slot] != kEmpty)
      rb::fail(RB_E_STATE, "step %d: slot %u is taken", static_cast<int>(steps_.size()), slot);
    states[slot] = kMade;
  }
  for (const uint32_t slot : step.last) {
    check_read(slot, states);
    if (states[slot] == kInput)
      rb::fail(RB_E_STATE, "step %d: slot %u is an input, which a program does not give up",
               static_cast<int>(steps_.size()), slot);
    states[slot] = kGone;
  }
  for (const RbNumberPlace& place : step.numbers) nnumbers_ = std::max(nnumbers_, place.number + 1);
  steps_.push_back(std::move(step));
  states_ = std::move(states);
}

void RbProgram::finish(const uint32_t* slots, uint32_t n) {
  if (finished_) rb::fail(RB_E_STATE, "program_finish: the program is finished");
  outputs_ = rabbet::graph::as_vector(slots, static_cast<int32_t>(n));
  for (const uint32_t slot : outputs_) check_read(slot);
  finished_ = true;
}

void RbProgram::run(RbTensor* const* inputs, uint32_t ninputs, const RbValue* numbers,
                    uint32_t nnumbers, RbTensor** outputs, uint32_t noutputs,
                    int32_t& failed) const {
  failed = -1;
  if (!finished_) rb::fail(RB_E_STATE, "program_run: the program is not finished");
  if (ninputs != ninputs_ || noutputs != outputs_.size())
    rb::fail(RB_E_ARG, "program_run: expected %u inputs and %d outputs, got %u and %u", ninputs_,
             static_cast<int>(outputs_.size()), ninputs, noutputs);
  if (nnumbers < nnumbers_)
    rb::fail(RB_E_ARG, "program_run: expected %u numbers, got %u", nnumbers_, nnumbers);
  for (uint32_t i = 0; i < ninputs; ++i)
    if (!inputs[i]) rb::fail(RB_E_ARG, "program_run: input %u is null", i);
  rabbet::graph::Slots slots(inputs, ninputs, states_.size());
  rabbet::graph::Layers layers;
  for (size_t i = 0; i < steps_.size(); ++i) {
    failed = static_cast<int32_t>(i);
    layers.exclude(steps_[i].exclude);
    rabbet::graph::run_step(steps_[i], slots, numbers);
    for (const uint32_t slot : steps_[i].last)
      if (slots[slot]) slots.drop(slot);
  }
  failed = -1;
  for (uint32_t i = 0; i < noutputs; ++i) {
    RbTensor* tensor = slots[outputs_[i]];
    if (!tensor) {
      for (uint32_t j = 0; j < i; ++j) rb::host->release(outputs[j]);
      rb::fail(RB_E_STATE, "program_run: output %u was not made", i);
    }
    rb::host->retain(tensor);
    outputs[i] = tensor;
  }
}

#include "explain.h"

#include <pybind11/stl.h>

#include "boundary/plugin.h"
#include "call/composite.h"
#include "call/dispatch.h"
#include "call/fallback.h"
#include "call/plan.h"
#include "call/run_backend.h"
#include "calls.h"
#include "device/backends.h"
#include "errors.h"
#include "layer/transforms.h"
#include "op_type.h"
#include "rules/rule_functions.h"
#include "thread/thread_state.h"

namespace py = pybind11;

namespace rabbet::python {

namespace {

struct Call {
  const Op* op;
  const RbValue* args;
  int32_t nargs;
  uint64_t keys = 0;
  int32_t level = 0;
  std::string device;
};

template <class Visit>
void each_tensor(const Call& c, const Visit& visit) {
  for (int32_t i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_TENSOR) visit(c.args[i].v.t, c.op->params[i].name_text);
    for (uint32_t k = 0; c.args[i].tag == RB_TENSORS && k < c.args[i].len; ++k) {
      if (c.args[i].v.ts[k]) visit(c.args[i].v.ts[k], c.op->params[i].name_text);
    }
  }
}

// Names of the arguments that carry the key, or that belong to the level where one is given.
std::string carriers(const Call& c, uint64_t key, int32_t level = 0) {
  std::string names;
  each_tensor(c, [&](const RbTensor* t, const std::string& name) {
    const bool carries = level ? t->level == level : (keys_of(t) & key) != 0;
    const std::string quoted = "'" + name + "'";
    if (carries && names.find(quoted) == std::string::npos)
      names += (names.empty() ? "" : ", ") + quoted;
  });
  return names;
}

std::string provider_of(const Handler& handler) {
  return handler.provider ? handler.provider : "?";
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// What the layer itself says of the call; -1: it says nothing.
int32_t ask_layer(const LayerEntry& layer, const Call& c, std::string* text) {
  const auto* table =
      static_cast<const RbExplain*>(published((layer.name + ".explain").c_str(), 1));
  if (!table || !RB_HAS(table, explain)) return -1;
  char space[512] = "";
  const int32_t said = table->explain(handle(c.op), c.args, c.nargs, space, sizeof space);
  *text = space;
  replace_all(*text, "{device}", c.device);
  return said;
}

struct Step {
  std::string name, provider, why, handler;
  int32_t does;  // RB_EXPLAIN_*
};

py::dict describe(const Step& step) {
  py::dict d;
  d["name"] = step.name;
  d["provider"] = step.provider;
  d["does"] = step.does == RB_EXPLAIN_PASSES ? "passes"
              : step.does == RB_EXPLAIN_ACTS ? "acts"
                                             : "ends";
  d["why"] = step.why;
  d["handler"] = step.handler;
  return d;
}

Step transform_step(const Call& c) {
  Step step{"transforms", "rabbet-core", "no argument belongs to a level", "", RB_EXPLAIN_PASSES};
  int32_t level = c.level;
  const std::vector<TransformFrame>& frames = thread_state().levels;
  const bool draws = thread_state().depth > level && concerns_transform(*c.op, &level);
  if (level < 1 || static_cast<size_t>(level) > frames.size()) return step;
  const LayerEntry& layer = layer_entry(frames[level - 1].layer);
  step.does = RB_EXPLAIN_ENDS;
  step.provider = layer.provider;
  step.why = "level " + std::to_string(level) + " is of " + layer.name + ": " +
             (draws ? "it may draw random numbers" : carriers(c, 0, level) + " of that level");
  const Handler& exact = c.op->table[layer.bit];
  if (exact.fn) {
    step.handler = "a rule of its own [" + provider_of(exact) + "]";
    return step;
  }
  std::string said;
  step.handler = ask_layer(layer, c, &said) >= 0 ? said : "the layer's fallback";
  return step;
}

Step layer_step(const LayerEntry& layer, const Call& c) {
  if (layer.bit == kTransformSlot) return transform_step(c);
  const uint64_t key = 1ull << layer.bit;
  const ThreadState& state = thread_state();
  const bool active = ((c.keys | state.include) & ~state.exclude & key) != 0;
  Step step{layer.name, layer.provider, "", "", active ? RB_EXPLAIN_ACTS : RB_EXPLAIN_PASSES};
  const std::string on = carriers(c, key);
  if (state.exclude & key) {
    step.why = "it is switched off in this thread";
  } else if (state.include & key) {
    step.why = "it is switched on in this thread";
  } else {
    step.why = on.empty() ? "no argument carries its key" : on + " carries its key";
  }
  const Handler& exact = c.op->table[layer.bit];
  if (active && layer.has_composites) step.does = RB_EXPLAIN_ENDS;
  if (exact.fn) {
    if (active) step.handler = "a handler of its own [" + provider_of(exact) + "]";
    return step;
  }
  if (active && layer.has_composites) {
    step.handler = composite_way(layer, *c.op, c.args, c.nargs);
    return step;
  }
  std::string said;
  const int32_t does = ask_layer(layer, c, &said);
  if (does < 0) return step;
  if (!(state.exclude & key)) step.why = said;
  if (active) step.does = does;
  return step;
}

// What happens below the layers.
Step backend_step(const Call& c, int backend, bool several) {
  const Op& op = *c.op;
  Step step{backend_name(backend), backend_entry(backend).provider, "", "", RB_EXPLAIN_ENDS};
  const Handler& kernel = op.table[backend];
  if (op.retired) {
    step.why = "the operator was taken back: the call raises";
  } else if (several) {
    step.why = "the tensors are on several devices: the call raises";
  } else if (op.core_fn) {
    step.why = "core runs it";
  } else if (op.is_view_primitive()) {
    step.why = "a view: core derives its geometry";
  } else if (backend == kMeta && (op.info.kind != RB_KIND_COMPOSITE || op.rules[kShapeRule].fn)) {
    step.why = "meta: only shapes and dtypes, by the record's rules";
  } else if (kernel.fn) {
    step.why = std::string(kernel.flags & kFormulaFlag     ? "kernel of the formula"
                           : kernel.flags & RB_K_NEEDS_GIL ? "kernel in Python"
                                                           : "kernel") +
               " for " + backend_name(backend);
    step.handler = provider_of(kernel);
  } else if (op.rules[kDecompRule].fn) {
    step.why = std::string("no kernel for ") + backend_name(backend) + ": the operator's function";
    step.handler = provider_of(op.rules[kDecompRule]);
  } else if (op.has_decomp()) {
    step.why = std::string("no kernel for ") + backend_name(backend) + ": decomposition `" +
               op.decomp_text + "`";
    step.handler = op.provider;
  } else {
    step.why = std::string("no kernel for ") + backend_name(backend) + " and no decomposition: " +
               (falls_back(backend) ? "it runs on the CPU, with copies there and back"
                                    : "the call raises");
  }
  return step;
}

py::dict plan(Call& c) {
  each_tensor(c, [&](const RbTensor* t, const std::string&) {
    c.keys |= keys_of(t);
    c.level = std::max(c.level, t->level);
  });
  constexpr uint64_t kBackends = (1ull << kBackendBits) - 1;
  uint64_t backends = c.keys & kBackends;
  for (int32_t i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag == RB_DEVICE && (!backends || c.op->info.kind == RB_KIND_CREATION))
      backends = 1ull << c.args[i].v.dev.backend;
  }
  const int backend = backends ? __builtin_ctzll(backends) : default_backend();
  c.device = backend_name(backend);
  py::list steps;
  bool ended = false;
  for (const LayerEntry* layer : layers_in_order()) {
    if (layer->bit != kTransformSlot && is_transform(layer->desc)) continue;
    const Step step = layer_step(*layer, c);
    steps.append(describe(step));
    ended = ended || step.does == RB_EXPLAIN_ENDS;
    if (ended) break;
  }
  if (!ended) steps.append(describe(backend_step(c, backend, (backends & (backends - 1)) != 0)));
  py::dict d;
  d["record"] = c.op->name;
  d["device"] = c.device;
  d["keys"] = c.keys;
  d["level"] = c.level;
  d["steps"] = steps;
  py::dict rules;
  for (int slot = 0; slot < kRuleSlots; ++slot) {
    if (c.op->rules[slot].fn) rules[rule_name(slot)] = provider_of(c.op->rules[slot]);
  }
  d["rules"] = rules;
  return d;
}

}  // namespace

py::dict dispatch_plan(const py::object& op, const py::tuple& args, const py::dict& kwargs) {
  return with_call("explain", op, args, kwargs,
                   [](const Op& record, const RbValue* values, int32_t n) -> py::object {
                     Call c{&record, values, n, 0, 0, {}};
                     return plan(c);
                   });
}

py::object decomposed(const py::object& op, const py::tuple& args, const py::dict& kwargs) {
  return with_call(
      "decomposed", op, args, kwargs,
      [](const Op& record, const RbValue* values, int32_t n) -> py::object {
        RbCall c{};
        c.struct_size = sizeof c;
        c.op = handle(&record);
        RbValue rets[kMaxRets];
        const int nrets = record.info.nrets;
        for (int i = 0; i < nrets; ++i) rets[i] = value_none();
        decompose(&c, values, n, rets, nrets);
        return py::reinterpret_steal<py::object>(results_to_python(&record, rets, nrets));
      });
}

}  // namespace rabbet::python

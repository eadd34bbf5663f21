// Handlers of layers that other wheels than Rabbet's own bring. Their results are checked, and
// calls that come back to them are counted: what stands in front of them does that, so that the
// handlers of Rabbet's own layers run without it.
#include <algorithm>
#include <string>

#include "call/check_results.h"
#include "layer/layers.h"
#include "record/op.h"
#include "rules/rule_functions.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

// A handler inside itself: each call of a decomposition may come to the layer again.
constexpr int32_t kMaxInside = 100;
constexpr uint32_t kPrecision = 300, kPrecisionEnd = 399, kPlacement = 600;

std::string layer_text(const LayerEntry& layer) {
  return "the layer '" + layer.name + "' [" + layer.provider + "]";
}

// A layer of dtypes gives other ones, a layer of placement other devices.
bool may_change_dtype(const LayerEntry& layer) {
  return layer.desc.phase >= kPrecision && layer.desc.phase <= kPrecisionEnd;
}
bool may_change_device(const LayerEntry& layer) {
  return layer.desc.phase >= kPlacement || layer.has_composites;
}

// False also where the record refuses the arguments: a layer may take what kernels do not.
bool infer_results(const Op& op, const RbValue* args, int nargs, Inferred& inferred) {
  if (!says_results(op)) return false;
  try {
    infer(op, args, nargs, inferred);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void drop(RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) value_release(&rets[i]);
}

void check_made(const Op& op, const LayerEntry& layer, const RbValue* args, int nargs,
                RbValue* rets, int32_t nrets) {
  const std::string whose = layer_text(layer);
  check_given(op, whose.c_str(), rets, nrets);
  const auto name = [&]() -> const std::string& { return whose; };
  const int at = op.first_tensor;
  const RbTensor* first =
      at >= 0 && at < nargs && args[at].tag == RB_TENSOR ? args[at].v.t : nullptr;
  const bool on_its_device = first && !may_change_device(layer) && !takes_device(op);
  Inferred inferred;
  const bool said = infer_results(op, args, nargs, inferred);
  try {
    for (int32_t i = 0; i < nrets; ++i) {
      if (rets[i].tag != RB_TENSOR) continue;
      const RbTensor& got = *rets[i].v.t;
      if (on_its_device) check_result_device(op, name, i, got, *first);
      if (said && may_change_dtype(layer)) inferred.rets[i].dtype = got.dtype_id;
      if (said) check_result(op, name, i, got, inferred.rets[i]);
    }
  } catch (...) {
    drop(rets, nrets);
    throw;
  }
}

// The destinations have to be those that were given: the caller looks at no others.
void check_destinations(const Op& op, const LayerEntry& layer, const RbValue* given, RbValue* rets,
                        int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag == RB_TENSOR && rets[i].v.t == given[i].v.t) continue;
    for (int32_t k = 0; k < nrets; ++k) {  // new tensors are owned, destinations are borrowed
      if (rets[k].tag == RB_TENSOR && rets[k].v.t != given[k].v.t) value_release(&rets[k]);
      rets[k] = given[k];
    }
    fail(RB_E_PLUGIN,
         "%s: %s put another value in place of result %d. In a call with RB_CALL_OUT the results "
         "are written to the tensors that are given",
         op.name.c_str(), layer_text(layer).c_str(), i);
  }
}

class Inside {
 public:
  Inside(const Op& op, const LayerEntry& layer) : depth_(thread_state().inside_layers) {
    if (depth_ >= kMaxInside) {
      fail(RB_E_STATE,
           "%s: the handler of %s runs %d times inside itself. It must use redispatch to pass a "
           "call on, and turn its mode off for calls of its own: host->call comes back to the "
           "layer",
           op.name.c_str(), layer_text(layer).c_str(), kMaxInside);
    }
    ++depth_;
  }
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  int32_t& depth_;
};

}  // namespace

int32_t run_checked_kernel(void* self, const RbCall* c, const RbValue* args, int32_t nargs,
                           RbValue* rets, int32_t nrets) {
  const CheckedHandler& handler = *static_cast<const CheckedHandler*>(self);
  RbValue given[kMaxRets];
  std::copy(rets, rets + nrets, given);
  const int32_t rc = handler.fn(handler.self, c, args, nargs, given, nrets);
  if (rc != RB_OK) return rc;
  for (int32_t i = 0; i < nrets; ++i) {
    if (given[i].tag == rets[i].tag && given[i].v.t == rets[i].v.t) continue;
    return set_error(RB_E_PLUGIN, impl(c->op)->name +
                                      ": the kernel put another value in place of "
                                      "result " +
                                      std::to_string(i) +
                                      "; it must write to the tensor that it is given");
  }
  return RB_OK;
}

int32_t run_checked(void* self, const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const CheckedHandler& handler = *static_cast<const CheckedHandler*>(self);
  const LayerEntry& layer = layer_entry(handler.bit);
  const Op& op = *impl(c->op);
  const auto who = [&] { return op.name + ": the handler of " + layer_text(layer); };
  return guarded([&] {
    const Inside inside(op, layer);
    const bool out = c->flags & RB_CALL_OUT;
    RbValue given[kMaxRets];
    std::copy(rets, rets + nrets, given);
    if (!out) std::fill(rets, rets + nrets, value_none());
    int32_t rc;
    try {
      rc = handler.fn(handler.self, c, args, nargs, rets, nrets);
    } catch (...) {
      rc = store_thrown(who());
    }
    if (rc != RB_OK) {
      explain(rc, who());
      add_error_frame("while running " + op.name + " in " + layer_text(layer));
      rethrow(rc);
    }
    if (out) return check_destinations(op, layer, given, rets, nrets);
    check_made(op, layer, args, nargs, rets, nrets);
  });
}

}  // namespace rabbet

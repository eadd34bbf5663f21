// The plugin's entry, and the table that it publishes for bindings and other plugins.
#include <algorithm>
#include <mutex>

#include "at_end.h"
#include "call_mode.h"
#include "engine.h"
#include "forward.h"
#include "grad_level.h"
#include "node_blocks.h"
#include "observers.h"
#include "record.h"
#include "record_writes.h"
#include "saved.h"
#include "streams.h"

namespace tape {

int32_t layer = 0, slot = 0;
uint32_t slot_offset = 0;
uint64_t layer_key = 0;

namespace {

std::atomic<int64_t> next_hook{1};

int32_t requires_grad(const RbTensor* t) {
  int32_t status = RB_OK;
  const Meta* m = current_meta(const_cast<RbTensor*>(t), &status);
  return status == RB_OK && is_recorded(m);
}

int32_t recorded_at(const RbTensor* t, int32_t level) {
  int32_t status = RB_OK;
  const Meta* m = current_meta(const_cast<RbTensor*>(t), &status);
  return status == RB_OK && is_recorded_at(m, level);
}

int32_t set_requires_grad(RbTensor* t, int32_t on) {
  Meta* m = meta_of(t);
  if (m && m->fn) {
    if (on) return RB_OK;
    return fail(RB_E_STATE,
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach().");
  }
  if (on && !differentiable(t->dtype_id)) {
    return fail(RB_E_TYPE,
                "only Tensors of floating point and complex dtype can require gradients, got %s",
                dtype_name(t->dtype_id).c_str());
  }
  if (on && (t->flags & RB_T_INFERENCE)) {
    if (!(rb::thread_get().tensor_flags & RB_T_INFERENCE)) {
      return fail(RB_E_STATE,
                  "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                  "allowed.");
    }
  }
  if (!m && !on) return RB_OK;
  if (!m) m = new_meta(t);
  if (on) {
    m->depth = static_cast<int16_t>(rb::thread_get().depth);
  }
  m->requires_grad = on != 0;
  host->slot_set(t, slot, m, on);
  return RB_OK;
}

int32_t is_leaf(const RbTensor* t) {
  int32_t status = RB_OK;
  const Meta* m = current_meta(const_cast<RbTensor*>(t), &status);
  return !(m && m->fn);
}

RbTensor* get_grad(const RbTensor* t) {
  const Meta* m = gradient_holder(meta_of(t));
  return m ? m->grad : nullptr;
}

int32_t set_grad(RbTensor* t, RbTensor* grad) {
  if (grad) {
    if (grad == t) return fail(RB_E_ARG, "can't assign Variable as its own grad");
    if (grad->ndim != t->ndim || !std::equal(t->shape, t->shape + t->ndim, grad->shape)) {
      return fail(RB_E_ARG,
                  "attempting to assign a gradient of size '%s' to a tensor of size '%s'. Please "
                  "ensure that the gradient and the tensor are the same size",
                  rb::shape_text(grad).c_str(), rb::shape_text(t).c_str());
    }
    if (grad->dtype_id != t->dtype_id) {
      return fail(RB_E_ARG,
                  "attempting to assign a gradient with dtype '%s' to a tensor with dtype '%s'. "
                  "The gradient must have the tensor's dtype",
                  dtype_name(grad->dtype_id).c_str(), dtype_name(t->dtype_id).c_str());
    }
    if (grad->backend != t->backend || grad->device.id != t->device.id) {
      return fail(RB_E_DEVICE,
                  "attempting to assign a gradient on another device than the tensor's. Please "
                  "ensure that the gradient and the tensor are on the same device");
    }
  }
  Meta* m = gradient_holder(meta_of(t));
  if (!m && !grad) return RB_OK;
  if (!m) m = new_meta(t);
  RbTensor* old = m->grad;
  if (grad) host->retain(grad);
  m->grad = grad;
  if (old) host->release(old);
  return RB_OK;
}

int32_t retain_grad(RbTensor* t) {
  int32_t status = RB_OK;
  Meta* m = current_meta(t, &status);
  if (status != RB_OK) return status;
  if (!is_recorded(m))
    return fail(RB_E_STATE, "can't retain_grad on Tensor that has requires_grad=False");
  if (m->fn) m->fn->metas[m->output].retains = true;
  return RB_OK;
}

int32_t retains_grad(const RbTensor* t) {
  const Meta* m = gradient_holder(meta_of(t));
  return m && m->retains;
}

RbNode* grad_fn(RbTensor* t, uint32_t* output) {
  int32_t status = RB_OK;
  const Meta* m = current_meta(t, &status);
  if (status != RB_OK || !m || !m->fn) return nullptr;
  *output = m->output;
  node_retain(m->fn);
  return m->fn;
}

RbNode* accumulator(RbTensor* t) {
  const Meta* m = meta_of(t);
  return m && !m->fn && m->requires_grad ? gradient_target(t).fn : nullptr;
}

int32_t node_inputs(const RbNode* n) { return n->nedges; }
RbNode* node_input(const RbNode* n, int32_t i, uint32_t* output) {
  *output = n->edges[i].output;
  return n->edges[i].fn;
}
RbTensor* node_variable(const RbNode* n) {
  return n->kind == NodeKind::kAccumulate ? n->tensor : nullptr;
}
uint64_t node_sequence(const RbNode* n) { return n->seq; }

int64_t add_grad_hook(RbTensor* t, RbGradHook fn, void* ctx, void (*del)(void*),
                      int32_t after_accumulation) {
  int32_t status = RB_OK;
  Meta* m = current_meta(t, &status);
  if (status != RB_OK) return -1;
  if (!is_recorded(m)) {
    fail(RB_E_STATE, "register_hook: the tensor does not require grad");
    return -1;
  }
  if (after_accumulation && m->fn) {
    fail(RB_E_STATE, "register_post_accumulate_grad_hook: only leaf tensors accumulate gradients");
    return -1;
  }
  Meta* place = m->fn ? &m->fn->metas[m->output] : m;
  std::lock_guard<std::mutex> lock(hooks_mutex);
  if (!place->hooks) place->hooks = new std::vector<GradHook>;
  const int64_t id = next_hook++;
  place->hooks->push_back({id, fn, {ctx, del}, after_accumulation != 0});
  return id;
}

int32_t has_hooks(const RbTensor* t) {
  const Meta* m = gradient_holder(meta_of(t));
  if (!m) return 0;
  const std::lock_guard<std::mutex> lock(hooks_mutex);
  return (m->hooks && !m->hooks->empty()) || (m->acc && m->acc->hooks && !m->acc->hooks->empty());
}

int64_t add_node_hook(RbNode* n, RbNodeHook fn, void* ctx, void (*del)(void*), int32_t before) {
  std::lock_guard<std::mutex> lock(hooks_mutex);
  if (!n->hooks) n->hooks = new std::vector<NodeHook>;
  const int64_t id = next_hook++;
  n->hooks->push_back({id, fn, {ctx, del}, before != 0});
  return id;
}

// The hook with this id, removed from its list, if it is there. Under hooks_mutex; the hook must be
// destroyed without it, as that may run Python.
template <class Hook>
std::vector<Hook> take_out(std::vector<Hook>* list, int64_t id) {
  std::vector<Hook> taken;
  if (!list) return taken;
  const auto it = std::find_if(list->begin(), list->end(), [&](auto& h) { return h.id == id; });
  if (it == list->end()) return taken;
  taken.push_back(std::move(*it));
  list->erase(it);
  return taken;
}

void remove_grad_hook(RbTensor* t, int64_t id) {
  std::vector<GradHook> taken;
  const std::lock_guard<std::mutex> lock(hooks_mutex);
  const Meta* m = gradient_holder(meta_of(t));
  if (m) taken = take_out(m->hooks, id);
  if (taken.empty()) taken = take_out(forget_former_hook(id), id);
}

void remove_node_hook(RbNode* n, int64_t id) {
  std::vector<NodeHook> taken;
  const std::lock_guard<std::mutex> lock(hooks_mutex);
  taken = take_out(n->hooks, id);
}

int32_t record_custom(const char* name, RbTensor* const* inputs, int32_t ninputs,
                      RbTensor* const* outputs, int32_t noutputs, RbCustomBackward backward,
                      void* ctx, void (*del)(void*), RbNode** out) {
  NodeShape shape;
  shape.nedges = ninputs;
  shape.nrets = noutputs;
  for (int32_t i = 0; i < ninputs; ++i) shape.extra += meta_bytes(inputs[i]);
  for (int32_t i = 0; i < noutputs; ++i) shape.extra += outputs[i]->ndim * sizeof(int64_t);
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kCustom, shape, &extra);
  if (!n) return fail(RB_E_OOM, "%s: out of memory while recording", name);
  n->name = new std::string(name);
  n->custom = backward;
  n->ctx = ctx;
  n->ctx_del = del;
  uint64_t seq = 0;
  int16_t depth = 0;
  n->nest = no_nest;
  int32_t level = 0;
  for (int32_t i = 0; i < ninputs; ++i) level = std::max(level, inputs[i]->level);
  for (int32_t i = 0; i < ninputs; ++i) {
    const bool flows = recorded_at(inputs[i], level);
    const Target target = flows ? gradient_target(inputs[i]) : Target{nullptr, 0};
    if (target.fn) {
      n->nest = std::min(n->nest, target.fn->nest);
      depth = std::max(depth, meta_of(inputs[i])->depth);
    }
    n->edges[i] =
        Edge{target.fn, new_meta_copy(inputs[i], &extra), target.output, static_cast<int16_t>(i)};
    if (target.fn && target.fn->seq > seq) seq = target.fn->seq;
  }
  n->seq = next_sequence(seq);
  if (has_observers(RB_EVENT_NODE)) tell_recorded(n);
  if (noutputs) n->stream = stream_of(outputs[0]->backend, outputs[0]->device.id);
  for (int32_t i = 0; i < noutputs; ++i) {
    copy_meta(n->out_metas[i], outputs[i], &extra);
    n->metas[i].depth = depth;
    const uint32_t output = static_cast<uint32_t>(i);
    const bool is_input = std::find(inputs, inputs + ninputs, outputs[i]) != inputs + ninputs;
    if (is_input && (outputs[i]->flags & RB_T_VIEW)) {  // written in place: so was its base
      if (int32_t rc = record_view_write(outputs[i], n, output)) {
        node_release(n);
        return rc;
      }
    } else {
      set_history(outputs[i], n, output);
      if (is_input) meta_of(outputs[i])->rebased = true;
    }
  }
  *out = n;
  return RB_OK;
}

void* custom_context(const RbNode* n, RbCustomBackward backward) {
  return n->kind == NodeKind::kCustom && n->custom == backward ? n->ctx : nullptr;
}

const RbMeta* node_result(const RbNode* n, uint32_t output) {
  return output < n->nrets ? &n->out_metas[output] : nullptr;
}

int32_t detach_in_place(RbTensor* t) {
  if (host->view_parent(t))
    return fail(RB_E_STATE, "detach_: a view cannot be detached in place; use detach()");
  if (meta_of(t)) replace_meta(t, nullptr, 0);
  return RB_OK;
}

void set_anomaly(int32_t on) { check_nan.store(on); }

void* node_object(const RbNode* n) { return n->notes ? n->notes->object : nullptr; }
void node_set_object(RbNode* n, void* object, void (*del)(void*)) {
  if (!n->notes) n->notes = new Notes;
  void* old = n->notes->object;
  void (*old_del)(void*) = n->notes->del;
  n->notes->object = object;
  n->notes->del = del;
  if (old && old_del) old_del(old);
}
const char* node_source(const RbNode* n) {
  return n->notes && !n->notes->source.empty() ? n->notes->source.c_str() : nullptr;
}
int32_t node_is_freed(const RbNode* n) { return n->released; }
void keep_sources(int32_t on) { keeps_sources.store(on); }

RbAutograd table;

int32_t init(const RbHost* h, RbTxn* txn) {
  rb::host = h;
  static const char* const before[] = {nullptr};
  static const char* const after[] = {"autocast", nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = "autograd";
  desc.phase = 400;
  desc.on_missing = RB_L_FALLBACK;
  desc.before = before;
  desc.after = after;
  desc.fallback = handle_call;
  if (int32_t rc = host->add_layer(txn, &desc, &layer)) return rc;
  layer_key = 1ull << layer;
  find_observers();
  if (int32_t rc = add_dual_layer(txn)) return rc;
  if (int32_t rc = add_call_mode_layer(txn)) return rc;
  if (int32_t rc = host->slot_new("autograd", layer, delete_meta, &slot, &slot_offset)) return rc;
  table = RbAutograd{sizeof(RbAutograd),
                     layer,
                     requires_grad,
                     set_requires_grad,
                     is_leaf,
                     get_grad,
                     set_grad,
                     retain_grad,
                     retains_grad,
                     grad_fn,
                     accumulator,
                     node_retain,
                     node_release,
                     node_name,
                     node_inputs,
                     node_input,
                     node_variable,
                     node_sequence,
                     run_backward,
                     add_grad_hook,
                     add_node_hook,
                     remove_grad_hook,
                     remove_node_hook,
                     record_custom,
                     detach_in_place,
                     set_anomaly,
                     live_nodes,
                     push_saved_hooks,
                     pop_saved_hooks,
                     running_node,
                     set_history,
                     grad_enter,
                     grad_exit,
                     grad_input,
                     grad_open,
                     grad_close,
                     grad_result,
                     dual_enter,
                     dual_exit,
                     dual_make,
                     dual_unpack,
                     current_run,
                     run_has_inputs,
                     run_reaches,
                     saved_hooks_of,
                     push_call_mode,
                     pop_call_mode,
                     call_mode_run,
                     node_saved,
                     node_load,
                     node_pack,
                     node_object,
                     node_set_object,
                     node_source,
                     keep_sources,
                     each_context,
                     drop_hooks,
                     watch_nodes,
                     node_watcher,
                     node_is_freed,
                     is_dual_level,
                     recorded_at,
                     running_flags,
                     custom_context,
                     node_result,
                     at_end,
                     has_hooks};
  static const RbExplain explain = {RB_SIZE(RbExplain, explain), 0, explain_call};
  if (int32_t rc = host->publish("autograd.explain", 1, &explain)) return rc;
  return host->publish(RB_AUTOGRAD_EXT, RB_AUTOGRAD_VERSION, &table);
}

const RbPlugin plugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-autograd",         RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace tape

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &tape::plugin; }

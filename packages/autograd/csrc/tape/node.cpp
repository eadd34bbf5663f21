#include "node.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "node_blocks.h"
#include "rabbet/trace.h"
#include "saved.h"

namespace tape {

std::mutex hooks_mutex;

namespace {

// Hooks of tensors that were written in place since: they stay with the node that the tensor had
// then. Guarded by hooks_mutex.
std::unordered_map<int64_t, std::vector<GradHook>*> former_hooks;

inline void drop_hooks(std::vector<GradHook>*& hooks) {
  if (__builtin_expect(!hooks, 1)) return;
  {
    const std::lock_guard<std::mutex> lock(hooks_mutex);
    for (const GradHook& hook : *hooks) former_hooks.erase(hook.id);
  }
  delete hooks;
  hooks = nullptr;
}

void note_former_hooks(std::vector<GradHook>* hooks) {
  const std::lock_guard<std::mutex> lock(hooks_mutex);
  for (const GradHook& hook : *hooks) former_hooks.emplace(hook.id, hooks);
}

// What retain_grad() asked for and the gradient of a tensor, on the way to its next record.
struct Retained {
  bool retains = false;
  RbTensor* grad = nullptr;  // owned
  explicit operator bool() const { return retains || grad; }
};
Retained take_retained(Meta* holder) {
  if (!holder) return {};
  return {std::exchange(holder->retains, false), std::exchange(holder->grad, nullptr)};
}
void put_retained(Meta* holder, Retained kept) {
  holder->retains |= kept.retains;
  if (!kept.grad) return;
  if (RbTensor* old = std::exchange(holder->grad, kept.grad)) host->release(old);
}

// Free the members that few nodes have.
[[gnu::noinline]] void drop_rare(Node* n) {
  delete n->hooks;
  if (n->ctx && n->ctx_del) n->ctx_del(n->ctx);
  delete n->notes;
  delete n->name;
}

void destroy_one(Node* n, ThreadNodes& own) {
  if (n->holds) drop_saved(n);
  for (Edge *edge = n->edges, *end = edge + n->nedges; edge != end; ++edge) {
    if (edge->fn) node_release(edge->fn);
  }
  RbTensor** grad = n->grads;
  for (Meta *meta = n->metas, *end = meta + n->nrets; meta != end; ++meta, ++grad) {
    if (__builtin_expect(*grad != nullptr, 0)) host->release(*grad);  // of a run that failed
    drop_hooks(meta->hooks);
    if (meta->grad) host->release(meta->grad);
  }
  if (__builtin_expect(n->hooks || n->ctx || n->notes || n->name, 0)) drop_rare(n);
  RbTensor* tensor = n->kind == NodeKind::kAccumulate ? nullptr : n->tensor;
  own.count(-1);
  give_block(n, own);
  if (tensor) host->release(tensor);
}

}  // namespace

std::atomic<int32_t> keeps_sources{0};
std::atomic<uint64_t> newest_sequence{0};

int32_t fail(int32_t code, const char* format, ...) {
  char message[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return host->err_set(code, message);
}

std::string dtype_name(int32_t dtype) {
  RbDTypeInfo info{};
  info.struct_size = sizeof info;
  const bool known = host->dtype_info(dtype, &info) == RB_OK;
  return std::string("rabbet.") + (known ? info.name : "?");
}

void note_source(Node* n) {
  static const auto* trace =
      static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  const char* line = trace ? trace->source_get() : nullptr;
  if (!line) return;
  if (!n->notes) n->notes = new Notes;
  n->notes->source = line;
}

void node_retain(Node* n) {
  if (n->kind == NodeKind::kAccumulate) {
    host->retain(n->tensor);
  } else {
    n->refs.fetch_add(1, std::memory_order_relaxed);
  }
}

void node_release(Node* n) {
  if (n->kind == NodeKind::kAccumulate) return host->release(n->tensor);
  // A sole owner needs no locked instruction.
  if (n->refs.load(std::memory_order_acquire) != 1 &&
      n->refs.fetch_sub(1, std::memory_order_acq_rel) != 1)
    return;
  ThreadNodes& own = own_nodes();
  if (own.destroying) {
    n->next = own.pending;
    own.pending = n;
    return;
  }
  own.destroying = true;
  destroy_one(n, own);
  while (Node* next = own.pending) {
    own.pending = next->next;
    destroy_one(next, own);
  }
  own.destroying = false;
}

void drop_saved(Node* n) {
  if (!n->holds) return;
  for (int i = 0; i < n->nargs; ++i) drop_saved_value(n->args[i]);
  for (int i = 0; n->outs && i < n->nrets; ++i) drop_saved_value(n->outs[i]);
  n->holds = false;
  n->released = true;
}

namespace {
// The nodes that only `t` keeps alive: their references are edges of each other, or the tensor's.
template <class OnNode, class OnLeaf>
int32_t walk_owned(RbTensor* t, OnNode&& on_node, OnLeaf&& on_leaf) {
  Meta* m = meta_of(t);
  if (!m) return 0;
  if (!m->fn) return on_leaf(m);
  std::vector<Node*> left{m->fn};
  while (!left.empty()) {
    Node* n = left.back();
    left.pop_back();
    if (n->kind == NodeKind::kAccumulate) {
      Meta* leaf = meta_of(n->tensor);
      if (host->use_count(n->tensor) != 1 || !leaf) continue;
      if (int32_t rc = on_leaf(leaf)) return rc;
      continue;
    }
    if (n->refs.load(std::memory_order_relaxed) != 1) continue;
    if (int32_t rc = on_node(n)) return rc;
    for (int i = 0; i < n->nedges; ++i) {
      if (n->edges[i].fn) left.push_back(n->edges[i].fn);
    }
  }
  return 0;
}
}  // namespace

int32_t each_context(RbTensor* t, int32_t (*visit)(void*, void*, void (*)(void*)), void* arg) {
  auto visit_hooks = [&](const std::vector<GradHook>* hooks) {
    for (size_t i = 0; hooks && i < hooks->size(); ++i) {
      if (int32_t rc = visit(arg, (*hooks)[i].ctx.get(), (*hooks)[i].ctx.del)) return rc;
    }
    return int32_t{0};
  };
  return walk_owned(
      t,
      [&](Node* n) {
        for (int i = 0; i < n->nrets; ++i) {
          if (int32_t rc = visit_hooks(n->metas[i].hooks)) return rc;
        }
        for (size_t i = 0; n->hooks && i < n->hooks->size(); ++i) {
          if (int32_t rc = visit(arg, (*n->hooks)[i].ctx.get(), (*n->hooks)[i].ctx.del)) return rc;
        }
        if (n->ctx) {
          if (int32_t rc = visit(arg, n->ctx, n->ctx_del)) return rc;
        }
        return n->notes && n->notes->object ? visit(arg, n->notes->object, n->notes->del)
                                            : int32_t{0};
      },
      [&](Meta* leaf) { return visit_hooks(leaf->hooks); });
}

void drop_hooks(RbTensor* t) {
  std::vector<std::vector<GradHook>*> found;  // dropping one may free nodes
  walk_owned(
      t,
      [&](Node* n) {
        for (int i = 0; i < n->nrets; ++i)
          found.push_back(std::exchange(n->metas[i].hooks, nullptr));
        return 0;
      },
      [&](Meta* leaf) {
        found.push_back(std::exchange(leaf->hooks, nullptr));
        return 0;
      });
  for (auto*& hooks : found) drop_hooks(hooks);
}

Meta* new_meta(RbTensor* t) {
  auto* m = new Meta;
  m->version = host->version_get(t);
  host->slot_set(t, slot, m, 0);
  return m;
}

namespace {
[[gnu::noinline]] void delete_other_meta(Meta* m) {
  Node *fn = m->fn, *acc = m->acc;  // no graph uses the accumulator: it would keep the leaf alive
  m->acc = nullptr;
  if (m->embedded) {
    // Hooks stay with the node: the gradient still passes here. What the tensor retained goes with
    // it, unless another tensor has taken over the history.
    if ((m->retains || m->grad) && !m->shared) {
      const Retained kept = take_retained(m);
      if (kept.grad) host->release(kept.grad);
    }
  } else {
    drop_hooks(m->hooks);
    if (m->grad) host->release(m->grad);
    delete m;
  }
  if (acc) destroy_one(acc, own_nodes());
  if (fn) node_release(fn);
}
}  // namespace

void delete_meta(void* p) {
  auto* m = static_cast<Meta*>(p);
  // Most records lie in their node and hold nothing that belongs to the tensor.
  const bool plain = m->embedded && !m->retains && !m->grad && !m->acc;
  if (__builtin_expect(!plain, 0)) return delete_other_meta(m);
  node_release(m->fn);
}

void set_history(RbTensor* t, Node* fn, uint32_t output) {
  auto* m = new Meta;
  m->fn = fn;
  m->output = output;
  m->depth = fn->metas[output].depth;
  m->version = host->version_get(t);
  fn->metas[output].shared = true;
  node_retain(fn);
  replace_meta(t, m, 1);
}

void replace_meta(RbTensor* t, Meta* m, int32_t on) {
  Meta* old = meta_of(t);
  Meta* holder = gradient_holder(old);
  const Retained kept = take_retained(holder);
  if (old && !m && (old->acc || kept)) {
    m = new Meta;
    m->version = host->version_get(t) - 1;  // the history of a view is made anew
  }
  if (old && m) {  // graphs may still point to the accumulator
    m->acc = old->acc;
    old->acc = nullptr;
  }
  if (old && m) host->slot_set(t, slot, nullptr, 0);  // core would end what it replaces
  host->slot_set(t, slot, m, on);
  if (kept) put_retained(gradient_holder(m), kept);
  if (old && old->fn && holder->hooks) note_former_hooks(holder->hooks);
  if (old) delete_meta(old);
}

std::vector<GradHook>* forget_former_hook(int64_t id) {
  const auto found = former_hooks.find(id);
  if (found == former_hooks.end()) return nullptr;
  std::vector<GradHook>* list = found->second;
  former_hooks.erase(found);
  return list;
}

int32_t refuse_custom_view(const Node* function, uint32_t output, const char* what) {
  return fail(
      RB_E_STATE,
      "Output %u of %s is a view and %s is being modified inplace. This view was created "
      "inside a custom Function (or because an input was returned as-is) and the autograd "
      "logic to handle view+inplace would override the custom backward associated with the "
      "custom Function, leading to incorrect gradients. This behavior is forbidden. You can "
      "fix this by cloning the output of the custom Function.",
      output, function->name->c_str(), what);
}

Meta* current_meta(RbTensor* t, int32_t* status) {
  *status = RB_OK;
  Meta* m = meta_of(t);
  if (__builtin_expect(!(t->flags & RB_T_VIEW), 1)) return m;
  RbTensor* root = host->view_parent(t);
  while (RbTensor* up = host->view_parent(root)) root = up;
  const Meta* base = meta_of(root);
  if (!base || !base->rebased || (m && m->version == host->version_get(t))) return m;
  // The base was written since: the view's history is that of the same view of the new base.
  if (is_custom_view(t, m)) {
    *status = refuse_custom_view(m->fn, m->output, "its base");
    return nullptr;
  }
  *status = renew_view_history(t, root);
  return *status == RB_OK ? meta_of(t) : nullptr;
}

int32_t renew_view_history(RbTensor* view, RbTensor* root) {
  ThreadGuard guard;
  host->layer_mode(layer, -1, 0);
  Ref fresh;
  if (const int32_t status = host->view_replay(view, root, fresh.out())) return status;
  const Meta* made = meta_of(fresh.get());
  if (made && made->fn) set_history(view, made->fn, made->output);
  return RB_OK;
}

namespace {
Node* make_accumulator(RbTensor* t) {
  NodeShape shape;
  shape.nrets = 1;
  shape.extra = t->ndim * sizeof(int64_t);
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kAccumulate, shape, &extra);
  if (!n) return nullptr;
  copy_meta(n->out_metas[0], t, &extra);
  n->tensor = t;
  return n;
}
}  // namespace

Node* find_accumulator(RbTensor* t, Meta* m) {
  Node* const n = make_accumulator(t);
  if (!n) return nullptr;
  Node* first = nullptr;
  if (__atomic_compare_exchange_n(&m->acc, &first, n, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return n;
  destroy_one(n, own_nodes());  // another thread was quicker
  return first;
}

}  // namespace tape

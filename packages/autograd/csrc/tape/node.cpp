#include "node.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "rabbet/trace.h"
#include "saved.h"

namespace tape {

std::mutex hooks_mutex;

namespace {

// Each thread counts what it makes and frees; the sum over threads is right.
struct Count {
  std::atomic<int64_t> nodes{0};
  Count* next = nullptr;
};
std::atomic<Count*> counts{nullptr};
__thread Count* own_count __attribute__((tls_model("initial-exec"))) = nullptr;

[[gnu::noinline]] Count* make_count() {
  own_count = new Count;  // kept for the process: a few bytes per thread
  own_count->next = counts.load();
  while (!counts.compare_exchange_weak(own_count->next, own_count)) {
  }
  return own_count;
}

inline void count_node(int64_t by) {
  Count* const own = own_count ? own_count : make_count();
  own->nodes.store(own->nodes.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

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

template <class T>
T* carve(char*& at, size_t n) {
  T* p = reinterpret_cast<T*>(at);
  at += (n * sizeof(T) + 7) / 8 * 8;
  return p;
}
constexpr size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

// Gradients of a run that was broken off.
void drop_grads(Node* n) {
  for (int i = 0; i < n->nrets; ++i) {
    if (n->grads[i]) host->release(n->grads[i]);
    n->grads[i] = nullptr;
  }
}

// Nodes whose last reference went while another is being destroyed, linked through RbNode::next:
// chains are unwound by a loop.
struct Release {
  Node* pending = nullptr;
  bool running = false;
};
thread_local Release releasing __attribute__((tls_model("initial-exec")));

// Free the members that few nodes have.
[[gnu::noinline]] void drop_rare(Node* n) {
  delete n->hooks;
  if (n->ctx && n->ctx_del) n->ctx_del(n->ctx);
  delete n->notes;
  delete n->name;
}

void destroy_one(Node* n) {
  if (n->holds) drop_saved(n);
  drop_grads(n);
  for (int i = 0; i < n->nedges; ++i) {
    if (n->edges[i].fn) node_release(n->edges[i].fn);
  }
  for (int i = 0; i < n->nrets; ++i) {
    drop_hooks(n->metas[i].hooks);
    if (n->metas[i].grad) host->release(n->metas[i].grad);
  }
  if (__builtin_expect(n->hooks || n->ctx || n->notes || n->name, 0)) drop_rare(n);
  RbTensor* tensor = n->kind == NodeKind::kAccumulate ? nullptr : n->tensor;
  host->block_free(n, n->bytes);
  count_node(-1);
  if (tensor) host->release(tensor);
}

}  // namespace

std::atomic<int32_t> keeps_sources{0};
std::atomic<uint64_t> newest_sequence{0};

int64_t live_nodes() {
  int64_t total = 0;
  for (Count* c = counts.load(); c; c = c->next) total += c->nodes.load(std::memory_order_relaxed);
  return total;
}

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

Node* make_node(NodeKind kind, const NodeShape& s, char** extra) {
  const size_t kept_rets = s.saves_rets ? s.nrets : 0;
  const size_t bytes = sizeof(Node) + s.nedges * sizeof(Edge) + s.nargs * sizeof(RbValue) +
                       padded(s.nargs * sizeof(uint32_t)) + kept_rets * sizeof(RbValue) +
                       padded(kept_rets * sizeof(uint32_t)) +
                       s.nrets * (sizeof(Meta) + sizeof(RbMeta) + sizeof(RbTensor*)) +
                       padded(s.extra);
  char* block = static_cast<char*>(host->block_alloc(bytes));
  if (!block) return nullptr;
  char* at = block + sizeof(Node);
  Node* n = new (block) Node;
  n->refs.store(1, std::memory_order_relaxed);
  n->bytes = static_cast<uint32_t>(bytes);
  n->kind = kind;
  n->nedges = static_cast<uint16_t>(s.nedges);
  n->nargs = static_cast<uint16_t>(s.nargs);
  n->nrets = static_cast<uint16_t>(s.nrets);
  n->edges = carve<Edge>(at, s.nedges);
  n->args = carve<RbValue>(at, s.nargs);
  n->arg_versions = carve<uint32_t>(at, s.nargs);
  if (kept_rets) {
    n->outs = carve<RbValue>(at, kept_rets);
    n->out_versions = carve<uint32_t>(at, kept_rets);
    for (size_t i = 0; i < kept_rets; ++i) n->outs[i].tag = RB_NONE;
  }
  n->metas = carve<Meta>(at, s.nrets);
  n->out_metas = carve<RbMeta>(at, s.nrets);
  n->grads = carve<RbTensor*>(at, s.nrets);
  for (int i = 0; i < s.nedges; ++i) n->edges[i] = Edge{};
  for (int i = 0; i < s.nargs; ++i) n->args[i].tag = RB_NONE;
  for (int i = 0; i < s.nrets; ++i) {
    n->metas[i] = Meta{};
    n->grads[i] = nullptr;
  }
  *extra = at;
  if (__builtin_expect(keeps_sources.load(std::memory_order_relaxed), 0)) note_source(n);
  count_node(1);
  return n;
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
  Release& r = releasing;
  n->next = r.pending;
  r.pending = n;
  if (r.running) return;
  r.running = true;
  while (Node* next = r.pending) {
    r.pending = next->next;
    destroy_one(next);
  }
  r.running = false;
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

void delete_meta(void* p) {
  auto* m = static_cast<Meta*>(p);
  Node *fn = m->fn, *acc = m->acc;  // no graph uses the accumulator: it would keep the leaf alive
  m->acc = nullptr;
  if (m->embedded) {
    // Hooks stay with the node: the gradient still passes here. What the tensor retained goes with
    // it, unless another tensor has taken over the history.
    if (__builtin_expect((m->retains || m->grad) && !m->shared, 0)) {
      const Retained kept = take_retained(m);
      if (kept.grad) host->release(kept.grad);
    }
  } else {
    drop_hooks(m->hooks);
    if (m->grad) host->release(m->grad);
    delete m;
  }
  if (acc) destroy_one(acc);
  if (fn) node_release(fn);
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

Target gradient_target(RbTensor* t) {
  Meta* m = meta_of(t);
  if (!is_recorded(m)) return Target{nullptr, 0};
  if (m->fn) {
    node_retain(m->fn);
    return Target{m->fn, m->output};
  }
  Node* n = __atomic_load_n(&m->acc, __ATOMIC_ACQUIRE);
  if (!n) {
    n = make_accumulator(t);
    if (!n) return Target{nullptr, 0};
    Node* first = nullptr;
    if (!__atomic_compare_exchange_n(&m->acc, &first, n, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
      destroy_one(n);  // another thread was quicker
      n = first;
    }
  }
  host->retain(t);  // an edge to an accumulator is a hold on its leaf
  return Target{n, 0};
}

}  // namespace tape

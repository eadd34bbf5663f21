// The engine: runs the tape backwards, newest node first, on the calling thread.
#include "engine.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "at_end.h"
#include "forward.h"
#include "gradients.h"
#include "loaded.h"
#include "node_lock.h"
#include "observers.h"
#include "operators.h"
#include "streams.h"

namespace tape {

std::atomic<int32_t> check_nan{0};

namespace {

thread_local Node* running __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local uint32_t flags_of_running __attribute__((tls_model("initial-exec"))) = 0;

class Run;
thread_local const Run* innermost __attribute__((tls_model("initial-exec"))) = nullptr;

struct Watcher {
  int32_t (*fn)(void*, Node*, RbTensor* const*, int32_t) = nullptr;
  void* ctx = nullptr;
  void (*del)(void*) = nullptr;
};
thread_local Watcher watcher;

std::atomic<uint64_t> next_run{1};

// A node that is to run, and the gradients of its results so far.
struct Task {
  Node* node;
  RbTensor** grads;
};

struct Capture {
  Node* node;
  uint32_t output;
};

// Gradients of a node's inputs while it runs; of few inputs as a rule.
class Gradients {
 public:
  explicit Gradients(int n) : n_(n), list_(n <= kInline ? inline_ : new RbTensor*[n]) {
    for (int i = 0; i < n; ++i) list_[i] = nullptr;
  }
  ~Gradients() {
    for (int i = 0; i < n_; ++i) {
      if (list_[i]) host->release(list_[i]);
    }
    if (list_ != inline_) delete[] list_;
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  RbTensor*& operator[](int i) { return list_[i]; }
  RbTensor** data() { return list_; }
  int size() const { return n_; }

 private:
  static constexpr int kInline = 8;
  const int n_;
  RbTensor** list_;
  RbTensor* inline_[kInline];
};

int32_t refuse_second_run(const Node* n) {
  return fail(RB_E_STATE,
              "Trying to backward through the graph a second time (or directly access saved "
              "tensors after they have already been freed): what %s saved was freed by the first "
              "run. Specify retain_graph=True if you need to backward through the graph a second "
              "time or if you need to access saved tensors after calling backward.",
              node_name(n));
}

class Run {
 public:
  Run(uint32_t flags, RbTensor** results)
      : flags_(flags), results_(results), id_(next_run++), outer_(innermost) {
    innermost = this;
  }
  ~Run() {
    innermost = outer_;
    for (const Task& task : heap_) abandon(task);
    for (Capture& c : captures_) {
      if (c.node) node_release(c.node);
    }
  }

  uint64_t id() const { return id_; }
  bool has_inputs() const { return !captures_.empty(); }
  void find_reached(std::unordered_set<const Node*>& out) const;
  int32_t seed(RbTensor* output, RbTensor* grad, int32_t index);
  int32_t watch(RbTensor* const* inputs, int32_t n);
  int32_t finish(int32_t ninputs);
  int32_t go();

 private:
  bool creates() const { return (flags_ & RB_BACKWARD_CREATE) != 0; }
  static bool older(const Task& a, const Task& b) { return a.node->seq < b.node->seq; }

  RbTensor** gradients_of(Node* n);
  RbTensor** begin(Node* n, RbTensor** grads);
  void abandon(const Task& task);
  int32_t push(Node* n, uint32_t output, Ref grad);
  int32_t process(const Task& task);
  int32_t process_in_order(const Task& task);
  int32_t tensor_hooks(const Task& task, bool after_accumulation);
  int32_t retain(const Task& task);
  int32_t capture(const Task& task, bool& watched);
  int32_t accumulate(const Task& task);
  int32_t differentiate(const Task& task, NodeLock& lock, Gradients& results);
  int32_t look_at(const Task& task, Gradients& results);
  int32_t apply(const Task& task, Gradients& results);
  int32_t apply_op(const Task& task, Gradients& results);
  int32_t apply_view_write(const Task& task, Gradients& results);
  int32_t apply_custom(const Task& task, Gradients& results);
  int32_t node_hooks(const Task& task, Gradients& results, bool before);
  int32_t refuse_nan(const Node* n, Gradients& results);
  bool leads_on(const Node* n) const { return needed_.empty() || needed_.count(n) != 0; }
  void find_needed(Node* root);

  uint32_t flags_;
  RbTensor** results_;
  uint64_t id_;
  const Run* outer_;  // the run that this one is inside of
  StreamOrder order_;
  std::vector<Task> heap_;
  // Gradients of nodes that another run, or the one that this is inside of, has claimed.
  std::unordered_map<const Node*, std::unique_ptr<RbTensor*[]>> beside_;
  std::vector<Capture> captures_;
  uint64_t oldest_ = UINT64_MAX;  // sequence number among the captures
  // With inputs given: the nodes on a path to one of them (value: visited and found useful).
  std::unordered_map<const Node*, bool> visited_;
  std::unordered_map<const Node*, bool> needed_;
  std::vector<Node*> roots_;
};

RbTensor** Run::begin(Node* n, RbTensor** grads) {
  node_retain(n);
  heap_.push_back({n, grads});
  std::push_heap(heap_.begin(), heap_.end(), older);
  return grads;
}

// A node has room for the gradients of one run; every other run keeps its own.
RbTensor** Run::gradients_of(Node* n) {
  uint64_t claimed = n->run.load(std::memory_order_relaxed);
  if (claimed == id_) return n->grads;
  if (__builtin_expect(!beside_.empty(), 0)) {
    const auto found = beside_.find(n);
    if (found != beside_.end()) return found->second.get();
  }
  if (claimed == 0 && n->run.compare_exchange_strong(claimed, id_, std::memory_order_acquire))
    return begin(n, n->grads);
  auto& own = beside_[n];
  own = std::make_unique<RbTensor*[]>(n->nrets);
  return begin(n, own.get());
}

void Run::abandon(const Task& task) {
  Node* n = task.node;
  for (int i = 0; i < n->nrets; ++i) {
    if (task.grads[i]) host->release(task.grads[i]);
    task.grads[i] = nullptr;
  }
  if (task.grads == n->grads) {
    n->run.store(0, std::memory_order_release);
  } else {
    beside_.erase(n);
  }
  node_release(n);
}

int32_t Run::push(Node* n, uint32_t output, Ref grad) {
  RbTensor*& buffer = gradients_of(n)[output];
  if (!buffer) {
    buffer = grad.take();
  } else {
    if (order_.matters()) {
      if (int32_t rc = order_.use(&buffer)) return rc;
    }
    Ref total;
    if (int32_t rc = sum(buffer, grad.get(), total)) return rc;
    host->release(buffer);
    buffer = total.take();
  }
  if (order_.matters()) order_.made(&buffer);
  return RB_OK;
}

int32_t Run::seed(RbTensor* output, RbTensor* grad, int32_t index) {
  int32_t status = RB_OK;
  const Meta* m = current_meta(output, &status);
  if (status != RB_OK) return status;
  if (!is_recorded(m)) {
    return fail(RB_E_STATE,
                "element %d of tensors does not require grad and does not have a grad_fn", index);
  }
  Ref g = Ref::share(grad);
  if (!grad) {
    if (output->numel != 1) {
      return fail(RB_E_STATE,
                  "grad can be implicitly created only for scalar outputs, output %d has shape %s",
                  index, rb::shape_text(output).c_str());
    }
    if (is_complex(output->dtype_id)) {
      return fail(RB_E_STATE,
                  "grad can be implicitly created only for real scalar outputs but got %s",
                  dtype_name(output->dtype_id).c_str());
    }
    const RbValue args[3] = {tensor_value(output), RbValue{}, RbValue{}};
    ThreadGuard guard;
    host->layer_mode(layer, -1, 1);
    if (int32_t rc = call1(ops().ones_like, args, 3, g)) return rc;
  } else if (grad->ndim != output->ndim ||
             !std::equal(grad->shape, grad->shape + grad->ndim, output->shape)) {
    return fail(RB_E_ARG,
                "Mismatch in shape: grad_output[%d] has a shape of %s and output[%d] has a shape "
                "of %s.",
                index, rb::shape_text(grad).c_str(), index, rb::shape_text(output).c_str());
  } else if (is_complex(grad->dtype_id) != is_complex(output->dtype_id)) {
    return fail(RB_E_ARG,
                "For complex Tensors, both grad_output and output are required to have the same "
                "dtype. Mismatch in dtype: grad_output[%d] has a dtype of %s and output[%d] has a "
                "dtype of %s.",
                index, dtype_name(grad->dtype_id).c_str(), index,
                dtype_name(output->dtype_id).c_str());
  }
  const Target edge = gradient_target(output);
  if (!edge.fn) return fail(RB_E_OOM, "backward: out of memory");
  int32_t rc = fit(g, rb::meta_of(output), nullptr, index);
  if (rc == RB_OK) rc = push(edge.fn, edge.output, std::move(g));
  if (rc == RB_OK) roots_.push_back(edge.fn);
  node_release(edge.fn);  // the heap holds it
  return rc;
}

int32_t Run::watch(RbTensor* const* inputs, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    int32_t status = RB_OK;
    const Meta* m = current_meta(inputs[i], &status);
    if (status != RB_OK) return status;
    if (!is_recorded(m)) {
      return fail(RB_E_STATE, "One of the differentiated Tensors does not require grad: input %d",
                  i);
    }
    const Target edge = gradient_target(inputs[i]);
    captures_.push_back({edge.fn, edge.output});
    oldest_ = std::min(oldest_, edge.fn->seq);
  }
  if (n) {
    for (Node* root : roots_) find_needed(root);
    if (needed_.empty()) needed_[nullptr] = true;  // nothing leads to an input: run nothing
  }
  return RB_OK;
}

void Run::find_reached(std::unordered_set<const Node*>& out) const {
  std::vector<const Node*> left(roots_.begin(), roots_.end());
  while (!left.empty()) {
    const Node* n = left.back();
    left.pop_back();
    if (!leads_on(n) || !out.insert(n).second) continue;
    for (int i = 0; i < n->nedges; ++i) {
      if (n->edges[i].fn) left.push_back(n->edges[i].fn);
    }
  }
}

// Depth first without recursion: a node is useful if it is watched or leads to a useful one.
void Run::find_needed(Node* root) {
  struct Frame {
    Node* node;
    int next;
  };
  std::vector<Frame> stack{{root, 0}};
  if (visited_.count(root)) return;
  visited_[root] = true;
  while (!stack.empty()) {
    Frame& top = stack.back();
    Node* n = top.node;
    if (top.next < n->nedges) {
      Node* child = n->edges[top.next++].fn;
      if (child && child->seq >= oldest_ && !visited_.count(child)) {
        visited_[child] = true;
        stack.push_back({child, 0});
      }
      continue;
    }
    bool useful = false;
    for (const Capture& c : captures_) useful |= c.node == n;
    for (int i = 0; i < n->nedges; ++i) useful |= n->edges[i].fn && needed_.count(n->edges[i].fn);
    if (useful) needed_[n] = true;
    stack.pop_back();
  }
}

int32_t Run::go() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), older);
    const Task task = heap_.back();
    heap_.pop_back();
    const int32_t rc = order_.matters(task.node) ? process_in_order(task) : process(task);
    abandon(task);
    if (rc != RB_OK) return rc;
  }
  return order_.finish();
}

int32_t Run::process_in_order(const Task& task) {
  if (int32_t rc = order_.enter(task.node, task.grads)) return rc;
  const int32_t rc = process(task);
  const int32_t left = order_.leave();
  return rc != RB_OK ? rc : left;
}

int32_t Run::tensor_hooks(const Task& task, bool after_accumulation) {
  Node* n = task.node;
  for (int i = 0; i < n->nrets; ++i) {
    if (!task.grads[i] && !after_accumulation) continue;
    const bool leaf = n->kind == NodeKind::kAccumulate;
    const Meta* m = leaf ? meta_of(n->tensor) : &n->metas[i];
    if (!m || !m->hooks) continue;
    const std::vector<GradHook> list = copy_of(m->hooks);  // a hook may remove others
    for (const GradHook& h : list) {
      if (h.after_accumulation != after_accumulation) continue;
      RbTensor* replacement = nullptr;
      if (int32_t rc =
              h.fn(h.ctx.get(), after_accumulation ? n->tensor : task.grads[i], &replacement))
        return rc;
      if (!replacement) continue;
      const RbMeta& meta = n->out_metas[i];
      const bool shape = same_shape(replacement, meta), device = same_device(replacement, meta);
      if (!shape || !device || replacement->dtype_id != meta.dtype_id) {
        host->release(replacement);
        return fail(RB_E_ARG,
                    "a hook of %s returned a gradient of another %s than the tensor's, which has "
                    "shape %s",
                    node_name(n),
                    !shape   ? "shape"
                    : device ? "dtype"
                             : "device",
                    rb::shape_text(meta.ndim, meta.shape).c_str());
      }
      host->release(task.grads[i]);
      task.grads[i] = replacement;
    }
  }
  return RB_OK;
}

int32_t Run::retain(const Task& task) {
  for (int i = 0; i < task.node->nrets; ++i) {
    Meta& m = task.node->metas[i];
    if (!m.retains || !task.grads[i]) continue;
    Ref total = Ref::share(task.grads[i]);
    if (m.grad) {
      if (int32_t rc = sum(m.grad, task.grads[i], total)) return rc;
      host->release(m.grad);
    }
    m.grad = total.take();
    if (int32_t rc = order_.give(m.grad)) return rc;
  }
  return RB_OK;
}

int32_t Run::capture(const Task& task, bool& watched) {
  for (size_t k = 0; k < captures_.size(); ++k) {
    const Capture& c = captures_[k];
    if (c.node != task.node) continue;
    watched = true;
    if (results_ && task.grads[c.output] && !results_[k]) {
      host->retain(task.grads[c.output]);
      results_[k] = task.grads[c.output];
      if (int32_t rc = order_.give(results_[k])) return rc;
    }
  }
  return RB_OK;
}

int32_t Run::process(const Task& task) {
  Node* n = task.node;
  const ObservedRange range(n, RB_RANGE_NODE);
  if (int32_t rc = tensor_hooks(task, false)) return rc;
  bool watched = false;
  if (n->kind == NodeKind::kAccumulate) {
    if (int32_t rc = capture(task, watched)) return rc;
    if (!(flags_ & RB_BACKWARD_ACCUMULATE) || (!captures_.empty() && !watched)) return RB_OK;
    const NodeLock lock(n);  // of a hook after it too: it may read what was added
    const ObservedRange derivative(n, RB_RANGE_DERIVATIVE);
    if (int32_t rc = accumulate(task)) return rc;
    return tensor_hooks(task, true);
  }
  NodeLock lock(n);
  if (int32_t rc = retain(task)) return rc;
  if (int32_t rc = capture(task, watched)) return rc;
  if (!captures_.empty()) {
    bool onward = false;
    for (int i = 0; i < n->nedges; ++i) onward |= n->edges[i].fn && leads_on(n->edges[i].fn);
    if (!onward) return RB_OK;
  }
  if (lock.is_nested()) {
    return fail(RB_E_STATE,
                "backward: %s is being computed; a hook of what it saved must not run backward "
                "through it",
                node_name(n));
  }
  Gradients results(n->nedges);
  if (int32_t rc = differentiate(task, lock, results)) return rc;
  if (!(flags_ & RB_BACKWARD_RETAIN)) {
    drop_saved(n);
    if (n->kind == NodeKind::kCustom) n->released = true;
  }
  lock.open();
  for (int i = 0; i < n->nedges; ++i) {
    if (!results[i] || !n->edges[i].fn) continue;
    Ref grad(results[i]);
    results[i] = nullptr;
    if (int32_t rc = fit(grad, *n->edges[i].meta, n, i)) return rc;
    if (int32_t rc = push(n->edges[i].fn, n->edges[i].output, std::move(grad))) return rc;
  }
  return RB_OK;
}

// The gradients of the node's inputs. The lock is open while code of the user runs, but for hooks
// of saved tensors.
int32_t Run::differentiate(const Task& task, NodeLock& lock, Gradients& results) {
  Node* n = task.node;
  if (n->released) return refuse_second_run(n);
  if (n->hooks) {
    lock.open();
    if (int32_t rc = node_hooks(task, results, true)) return rc;
    lock.close();
    if (n->released) return refuse_second_run(n);
  }
  if (n->kind == NodeKind::kCustom) {
    lock.open();
    if (int32_t rc = apply_custom(task, results)) return rc;
  } else if (int32_t rc = apply(task, results)) {
    return rc;
  }
  if (n->hooks || watcher.fn || check_nan.load(std::memory_order_relaxed)) {
    lock.open();
    if (int32_t rc = look_at(task, results)) return rc;
  }
  lock.close();
  return RB_OK;
}

int32_t Run::look_at(const Task& task, Gradients& results) {
  Node* n = task.node;
  if (check_nan.load(std::memory_order_relaxed)) {
    if (int32_t rc = refuse_nan(n, results)) return rc;
  }
  if (watcher.fn) {
    if (int32_t rc = watcher.fn(watcher.ctx, n, results.data(), n->nedges)) return rc;
  }
  return n->hooks ? node_hooks(task, results, false) : RB_OK;
}

namespace {
// A gradient lies in memory as its leaf does; one of a transform's level, whose leaf is outside, in
// rows.
bool row_major(const RbTensor* grad, const RbTensor* leaf) {
  return (leaf->flags & RB_T_CONTIGUOUS) || grad->level != leaf->level;
}

bool is_laid_out_like(const RbTensor* grad, const RbTensor* leaf) {
  if (row_major(grad, leaf)) return (grad->flags & RB_T_CONTIGUOUS) != 0;
  for (int d = 0; d < leaf->ndim; ++d) {
    if (leaf->shape[d] > 1 && grad->strides[d] != leaf->strides[d]) return false;
  }
  return true;
}
}  // namespace

int32_t Run::accumulate(const Task& task) {
  RbTensor* leaf = task.node->tensor;
  Meta* m = meta_of(leaf);
  RbTensor* grad = task.grads[0];
  if (!m) return RB_OK;
  if (grad->level > leaf->level && grad->level > m->depth && !duals_above(grad, leaf->level)) {
    return fail(
        RB_E_STATE,
        "backward: inside a transform the gradient of a tensor from outside has a value for "
        "each of many; use func.grad, or make the tensor's history inside");
  }
  if (m->grad && !creates() && !(m->grad->keys[0] & layer_key)) {
    const RbValue args[3] = {tensor_value(m->grad), tensor_value(grad), int_value(1)};
    RbValue out = tensor_value(m->grad);
    return host->call(ops().add, args, 3, &out, 1, RB_CALL_OUT);
  }
  if (m->grad) {
    Ref total;
    if (int32_t rc = sum(m->grad, grad, total)) return rc;
    host->release(m->grad);
    m->grad = total.take();
    return RB_OK;
  }
  // Take the gradient itself if nobody else holds it and it fills memory of its own; else a copy.
  const bool own =
      host->use_count(grad) == 1 && is_laid_out_like(grad, leaf) && !host->view_parent(grad);
  if (own || creates()) {
    m->grad = grad;
    task.grads[0] = nullptr;
    return RB_OK;
  }
  Ref copy;
  if (row_major(grad, leaf)) {
    const RbValue arg = tensor_value(grad);
    if (int32_t rc = call1(ops().contiguous_clone, &arg, 1, copy)) return rc;
  } else {
    const RbValue like[3] = {tensor_value(leaf), RbValue{}, RbValue{}};
    if (int32_t rc = call1(ops().empty_like, like, 3, copy)) return rc;
    const RbValue args[2] = {tensor_value(copy.get()), tensor_value(grad)};
    RbValue out = args[0];
    if (int32_t rc = host->call(ops().copy, args, 2, &out, 1, RB_CALL_OUT)) return rc;
  }
  m->grad = copy.take();
  return RB_OK;
}

int32_t Run::apply(const Task& task, Gradients& results) {
  const Node* n = task.node;
  const ObservedRange derivative(n, RB_RANGE_DERIVATIVE);
  switch (n->kind) {
    case NodeKind::kOp:
      return apply_op(task, results);
    case NodeKind::kViewWrite:
      return apply_view_write(task, results);
    case NodeKind::kFlat:
      return apply_flat(n, task.grads[0], results.data());
    case NodeKind::kNotDifferentiable:
      return fail(
          RB_E_NOTIMPL,
          "%s has no derivative: add `vjp ARGUMENT FORMULA` to its record, or call it under "
          "no_grad() or on detach()ed tensors",
          n->info->name);
    case NodeKind::kCustom:
    case NodeKind::kAccumulate:
      break;
  }
  return RB_OK;
}

int32_t Run::apply_op(const Task& task, Gradients& results) {
  Node* n = task.node;
  uint64_t wanted = 0;
  for (int i = 0; i < n->nedges; ++i) {
    if (n->edges[i].fn && (captures_.empty() || leads_on(n->edges[i].fn)))
      wanted |= 1ull << n->edges[i].arg;
  }
  Loaded loaded(creates());
  if (int32_t rc = loaded.load(n)) return rc;
  RbValue outs[kMaxRets], grads[kMaxRets], given[kMaxArgs];
  for (int i = 0; i < n->nrets; ++i) {
    if (n->outs) outs[i] = n->outs[i];
    if (n->outs && is_packed(outs[i])) {
      if (int32_t rc = loaded.load_result(n, i, &outs[i])) return rc;
    } else if (n->outs && outs[i].tag == RB_TENSOR) {
      RbTensor* t = outs[i].v.t;
      if (int32_t rc = check_version(n, t, n->out_versions[i], n->info->ret_names[i])) return rc;
    }
    if (n->outs && outs[i].tag == RB_TENSOR) {
      RbTensor* t = outs[i].v.t;
      if (creates() && differentiable(t->dtype_id) && !meta_of(t))
        set_history(t, n, static_cast<uint32_t>(i));
    } else {
      outs[i].tag = RB_META;
      outs[i].len = 0;
      outs[i].v.meta = &n->out_metas[i];
    }
    grads[i] = RbValue{};
    grads[i].tag = RB_ZERO;
    if (task.grads[i]) grads[i] = tensor_value(task.grads[i]);
  }
  const int nargs = n->info->nargs;
  const int32_t rc = host->vjp(n->op, wanted, loaded.args, nargs, outs, n->nrets, grads, given);
  if (creates()) {  // a saved result must not keep its own node alive
    for (int i = 0; n->outs && i < n->nrets; ++i) {
      if (n->outs[i].tag != RB_TENSOR) continue;
      Meta* m = meta_of(n->outs[i].v.t);
      if (!m || m->fn != n) continue;
      RbTensor* fresh = nullptr;
      if (host->tensor_alias(n->outs[i].v.t, &fresh) == RB_OK) {
        host->release(n->outs[i].v.t);
        n->outs[i].v.t = fresh;
      }
    }
  }
  if (rc != RB_OK) return rc;
  // A zero derivative gives zeros, unless a result without a gradient may be the reason.
  const bool complete =
      std::none_of(grads, grads + n->nrets, [](const RbValue& g) { return g.tag == RB_ZERO; });
  // An argument's gradient goes to its edge; a list's entries go to one edge each.
  for (int i = 0; i < n->nedges; ++i) {
    RbValue& v = given[n->edges[i].arg];
    if (v.tag == RB_TENSOR) {
      results[i] = v.v.t;
      v.tag = RB_NONE;
    } else if (v.tag == RB_ZERO && complete && n->edges[i].fn) {
      Ref zeros;
      if (int32_t status = make_zeros(*n->edges[i].meta, zeros)) return status;
      results[i] = zeros.take();
    } else if (v.tag == RB_TENSORS) {
      const int first = i, a = n->edges[i].arg;
      for (; i < n->nedges && n->edges[i].arg == a; ++i) {
        if (i - first >= static_cast<int>(v.len)) continue;
        results[i] = v.v.ts[i - first];
        if (results[i]) host->retain(results[i]);
      }
      --i;
    }
  }
  for (uint64_t rest = wanted; rest; rest &= rest - 1) {
    RbValue& v = given[__builtin_ctzll(rest)];
    if (v.tag == RB_TENSOR || v.tag == RB_TENSORS) host->value_release(&v);
  }
  for (int i = 0; creates() && i < n->nedges; ++i) {
    if (!results[i]) continue;
    if (int32_t status = depend_flatly(results[i], n)) return status;
  }
  return RB_OK;
}

int32_t Run::apply_view_write(const Task& task, Gradients& results) {
  Node* n = task.node;
  RbTensor* g = task.grads[0];
  if (!g) return RB_OK;
  if (n->edges[1].fn) {
    Ref part, whole = Ref::share(g);
    if (int32_t rc = rb::replay_view(n->tensor, whole, part)) return rc;
    results[1] = part.take();
  }
  if (!n->edges[0].fn) return RB_OK;
  const RbValue arg = tensor_value(g);
  Ref rest, hole;
  if (int32_t rc = call1(ops().contiguous_clone, &arg, 1, rest)) return rc;
  if (int32_t rc = rb::replay_view(n->tensor, rest, hole)) return rc;
  const RbValue fill_args[2] = {tensor_value(hole), int_value(0)};
  RbValue out = tensor_value(hole.get());
  if (int32_t rc = host->call(ops().fill, fill_args, 2, &out, 1, RB_CALL_OUT)) return rc;
  results[0] = rest.take();
  return RB_OK;
}

int32_t Run::apply_custom(const Task& task, Gradients& results) {
  Node* n = task.node;
  Node* outer = running;
  const uint32_t outer_flags = flags_of_running;
  const ObservedRange derivative(n, RB_RANGE_DERIVATIVE);
  running = n;
  flags_of_running = flags_;
  const int32_t rc = n->custom(n->ctx, task.grads, n->nrets, results.data(), n->nedges);
  running = outer;
  flags_of_running = outer_flags;
  return rc;
}

int32_t Run::node_hooks(const Task& task, Gradients& results, bool before) {
  const Node* n = task.node;
  const std::vector<NodeHook> list = copy_of(n->hooks);
  for (const NodeHook& h : list) {
    if (h.before != before) continue;
    if (int32_t rc = h.fn(h.ctx.get(), results.data(), n->nedges, task.grads, n->nrets)) return rc;
  }
  return RB_OK;
}

int32_t Run::refuse_nan(const Node* n, Gradients& results) {
  for (int i = 0; i < results.size(); ++i) {
    RbTensor* t = results[i];
    if (!t || !differentiable(t->dtype_id)) continue;
    ThreadGuard guard;
    host->layer_mode(layer, -1, 1);
    const RbValue arg = tensor_value(t);
    Ref nan, some;
    if (int32_t rc = call1(ops().isnan, &arg, 1, nan)) return rc;
    const RbValue args[3] = {tensor_value(nan), RbValue{}, rb::bool_value(false)};
    if (int32_t rc = call1(ops().any, args, 3, some)) return rc;
    if (some.get()->data && *static_cast<const uint8_t*>(some.get()->data)) {
      const bool known = n->notes && !n->notes->source.empty();
      return fail(RB_E_STATE, "%s returned NaN in its gradient%s%s", node_name(n),
                  known ? "; its forward call: " : "", known ? n->notes->source.c_str() : "");
    }
  }
  return RB_OK;
}

int32_t Run::finish(int32_t ninputs) {
  if (!results_) return RB_OK;
  for (int32_t i = 0; i < ninputs; ++i) {
    if (!results_[i] && !(flags_ & RB_BACKWARD_ALLOW_UNUSED)) {
      return fail(RB_E_STATE,
                  "The differentiated Tensor at index %d appears to not have been used in the "
                  "graph. Set allow_unused=True if this is the desired behavior.",
                  i);
    }
  }
  return RB_OK;
}

}  // namespace

Node* running_node() { return running; }
uint64_t current_run() { return innermost ? innermost->id() : 0; }
void run_reaches(Node* const* nodes, int32_t n, uint8_t* out) {
  std::unordered_set<const Node*> reached;
  if (innermost) innermost->find_reached(reached);
  for (int32_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(reached.count(nodes[i]));
}
int32_t run_has_inputs() { return innermost && innermost->has_inputs(); }

void* node_watcher(int32_t (*fn)(void*, Node*, RbTensor* const*, int32_t)) {
  return watcher.fn == fn ? watcher.ctx : nullptr;
}
void watch_nodes(int32_t (*fn)(void*, Node*, RbTensor* const*, int32_t), void* ctx,
                 void (*del)(void*)) {
  const Watcher old = watcher;
  watcher = Watcher{fn, ctx, del};
  if (old.del) old.del(old.ctx);
}
uint32_t running_flags() { return flags_of_running; }

namespace {
// Layers above the tape that the thread has switched on (autocast): the forward pass has settled
// what they decide. Those below (a profiler) see the operators of the backward pass like all
// others.
void modes_off() {
  RbThread state = rb::thread_get();
  state.include &= layer_key - 1;
  host->thread_set(&state);
}
}  // namespace

int32_t run_backward(RbTensor* const* outputs, RbTensor* const* grads, int32_t noutputs,
                     RbTensor* const* inputs, int32_t ninputs, uint32_t flags, RbTensor** results) {
  ThreadGuard guard;
  modes_off();
  host->layer_mode(layer, -1, flags & RB_BACKWARD_CREATE ? 0 : 1);
  RunScope scope;
  RbTensor** captured = flags & RB_BACKWARD_ACCUMULATE ? nullptr : results;
  int32_t status = RB_OK;
  {
    Run run(flags, captured);
    for (int32_t i = 0; i < noutputs && status == RB_OK; ++i)
      status = run.seed(outputs[i], grads ? grads[i] : nullptr, i);
    if (status == RB_OK) status = run.watch(inputs, ninputs);
    if (status == RB_OK) status = run.go();
    if (status == RB_OK) status = run.finish(ninputs);
  }
  if (status == RB_OK) status = scope.end();
  if (status != RB_OK && captured) {
    for (int32_t i = 0; i < ninputs; ++i) {
      if (captured[i]) host->release(captured[i]);
      captured[i] = nullptr;
    }
  }
  return status;
}

}  // namespace tape

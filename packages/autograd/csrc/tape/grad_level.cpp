#include "grad_level.h"

#include <algorithm>
#include <vector>

#include "node_blocks.h"
#include "operators.h"
#include "streams.h"

namespace tape {

namespace {

struct Frame {
  RbGradFrame shown;
  RbThread outside;
};
struct Frames {
  std::vector<Frame> list;
};
thread_local Frames* frames_ __attribute__((tls_model("initial-exec"))) = nullptr;
std::vector<Frame>& frames() {
  if (!frames_) frames_ = new Frames;  // kept for the thread's life: a few bytes
  return frames_->list;
}

bool recording(const RbThread& state) { return !(state.exclude >> layer & 1); }

// Nodes that only `nest` (and grads inside it) could ask for: nobody does any more.
void forget_nest(Node* root, uint16_t nest) {
  std::vector<Node*> stack{root};
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    if (n->nest < nest || n->nest == no_nest) continue;
    n->nest = no_nest;
    for (int i = 0; i < n->nedges; ++i) {
      if (n->edges[i].fn) stack.push_back(n->edges[i].fn);
    }
  }
}

// Whether somebody outside can differentiate what led to the tensor.
bool is_open(const Meta* m, uint16_t nest) {
  if (!is_recorded(m)) return false;
  return !m->fn || m->fn->nest < nest;
}

}  // namespace

int32_t grad_enter(RbGradFrame* out) {
  std::vector<Frame>& list = frames();
  if (list.size() >= 1000) return fail(RB_E_STATE, "grad: nested more than 1000 deep");
  Frame f{};
  f.outside = rb::thread_get();
  f.shown.struct_size = sizeof(RbGradFrame);
  f.shown.nest = static_cast<uint16_t>(list.size() + 1);
  f.shown.depth = static_cast<int16_t>(f.outside.depth);
  f.shown.enclosing = list.empty() ? int16_t{0} : list.back().shown.depth;
  f.shown.recording = recording(f.outside);
  list.push_back(f);
  RbThread inside = f.outside;
  inside.exclude &= ~layer_key;
  inside.tensor_flags = 0;
  host->thread_set(&inside);
  *out = f.shown;
  return RB_OK;
}

int32_t grad_exit(const RbGradFrame* frame) {
  std::vector<Frame>& list = frames();
  if (list.size() != frame->nest) {
    return fail(RB_E_STATE, "grad: left out of order: expected level %zu, got %d", list.size(),
                frame->nest);
  }
  host->thread_set(&list.back().outside);
  list.pop_back();
  return RB_OK;
}

int32_t link_identity(RbTensor* t, RbTensor* x, int16_t depth, uint16_t nest) {
  const RbOp* const identity = ops().contiguous_clone;
  int32_t status = RB_OK;
  if (x) current_meta(x, &status);
  if (status != RB_OK) return status;
  NodeShape shape;
  shape.nedges = 1;
  shape.nrets = 1;
  shape.extra = t->ndim * sizeof(int64_t);
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kOp, shape, &extra);
  if (!n) return fail(RB_E_OOM, "out of memory while recording");
  n->op = identity;
  n->info = host->op_info(identity);
  copy_meta(n->out_metas[0], t, &extra);
  n->stream = stream_of(n->out_metas[0]);
  const Target target = x ? gradient_target(x) : Target{nullptr, 0};
  n->edges[0] = Edge{target.fn, &n->out_metas[0], target.output, 0};
  n->seq = next_sequence(target.fn ? target.fn->seq : 0);
  n->nest = target.fn ? std::min(nest, target.fn->nest) : nest;
  n->metas[0].depth = depth;
  set_history(t, n, 0);
  node_release(n);
  return RB_OK;
}

int32_t grad_input(const RbGradFrame* frame, RbTensor* x, RbTensor** inside, RbTensor** handle) {
  if (!differentiable(x->dtype_id)) {
    return fail(
        RB_E_TYPE,
        "grad: only Tensors of floating point and complex dtype can require gradients, got %s",
        dtype_name(x->dtype_id).c_str());
  }
  Ref a, b;
  if (int32_t rc = host->tensor_alias(x, a.out())) return rc;
  if (int32_t rc = host->tensor_alias(x, b.out())) return rc;
  if (int32_t rc =
          link_identity(a.get(), frame->recording ? x : nullptr, frame->depth, frame->nest))
    return rc;
  const Meta* m = meta_of(a.get());
  set_history(b.get(), m->fn, m->output);
  *inside = a.take();
  *handle = b.take();
  return RB_OK;
}

int32_t grad_open(const RbGradFrame* frame, const RbTensor* t) {
  for (;; t = wrap_of(t)->inner) {
    if (is_open(meta_of(t), frame->nest)) return 1;
    const RbWrap* w = wrap_of(t);
    if (!w) return 0;
    if (w->second && grad_open(frame, w->second)) return 1;
  }
}

namespace {
void forget(RbTensor* t, uint16_t nest) {
  for (;; t = wrap_of(t)->inner) {
    const Meta* m = meta_of(t);
    if (m && m->fn) forget_nest(m->fn, nest);
    const RbWrap* w = wrap_of(t);
    if (!w) return;
    if (w->second) forget(w->second, nest);
  }
}
}  // namespace

void grad_close(RbGradFrame* frame, RbTensor* const* outputs, int32_t n) {
  for (int32_t i = 0; i < n; ++i) forget(outputs[i], frame->nest);
  frame->nest = no_nest;
  frame->recording = 1;
}

int32_t grad_result(const RbGradFrame* frame, RbTensor* t, RbTensor** out) {
  int32_t status = RB_OK;
  Meta* m = current_meta(t, &status);
  if (status != RB_OK) return status;
  const int16_t enclosing = frame->nest != no_nest ? frame->enclosing
                            : frames().empty()     ? int16_t{0}
                                                   : frames().back().shown.depth;
  const bool leaf = is_recorded(m) && !m->fn;
  bool keeps = leaf || !is_recorded(m);
  if (is_recorded(m) && m->fn && frame->recording && is_open(m, frame->nest) &&
      t->level <= enclosing) {
    keeps = true;
    m->depth = std::min(m->depth, enclosing);
    Meta& own = m->fn->metas[m->output];
    own.depth = std::min(own.depth, enclosing);
  }
  const RbWrap* w = wrap_of(t);
  Ref inner, second;
  bool same = true;
  if (w) {
    status = grad_result(frame, w->inner, inner.out());
    if (status == RB_OK && w->second) status = grad_result(frame, w->second, second.out());
    if (status != RB_OK) return status;
    same = inner.get() == w->inner && second.get() == w->second;
  }
  if (keeps && same) {
    host->retain(t);
    *out = t;
    return RB_OK;
  }
  Ref made;
  status = same ? host->tensor_alias(t, made.out())
                : host->tensor_wrap(t->level, inner.get(), second.get(), w->bits, t->ndim, t->shape,
                                    t->strides, made.out());
  if (status != RB_OK) return status;
  if (keeps && is_recorded(m) && m->fn) set_history(made.get(), m->fn, m->output);
  *out = made.take();
  return RB_OK;
}

}  // namespace tape

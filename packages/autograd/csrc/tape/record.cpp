// The tape: the layer's handler, which runs what is below and records it.
#include "record.h"

#include <algorithm>
#include <cstdio>

#include "grad_level.h"
#include "observers.h"
#include "operators.h"
#include "saved.h"
#include "streams.h"

namespace tape {

namespace {

// The arguments that a call of `level` records, a bit each, and the depth of its results.
struct Recorded {
  int32_t level;
  uint64_t need = 0;
  int16_t depth = 0;
  void add(const RbTensor* t, int32_t i) {
    if (!(t->keys[0] & layer_key)) return;
    const Meta* m = meta_of(t);
    if (!is_recorded_at(m, level)) return;
    need |= 1ull << i;
    depth = std::max(depth, m->depth);
  }
};

// Add arguments that are neither lists nor views. False if there is a list or a view, which
// recorded_arguments handles.
inline bool add_plain(const RbValue* args, int32_t nargs, Recorded& out) {
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSORS) return false;
    if (args[i].tag != RB_TENSOR) continue;
    if (__builtin_expect((args[i].v.t->flags & RB_T_VIEW) != 0, 0)) return false;
    out.add(args[i].v.t, i);
  }
  return true;
}

// Views are brought up to date first.
[[gnu::noinline]] int32_t recorded_arguments(const RbValue* args, int32_t nargs, Recorded& out) {
  int32_t status = RB_OK;
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) {
      if (__builtin_expect((args[i].v.t->flags & RB_T_VIEW) != 0, 0)) {
        current_meta(args[i].v.t, &status);
        if (status != RB_OK) return status;
      }
      out.add(args[i].v.t, i);
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t j = 0; j < args[i].len; ++j) {
        RbTensor* t = args[i].v.ts[j];
        if (!t) continue;
        current_meta(t, &status);
        if (status != RB_OK) return status;
        out.add(t, i);
      }
    }
  }
  return RB_OK;
}

// What the derivatives of the wanted arguments read: bits of arguments and results whose values
// are read, and that are mentioned at all.
struct Reads {
  uint64_t save_args = 0, save_rets = 0, args = 0;
  uint32_t flags = 0;  // RB_ARG_* of the wanted arguments
  Reads(const RbOpInfo* info, uint64_t need) {
    for (uint64_t rest = need; rest; rest &= rest - 1) {
      const RbArgInfo& a = *RB_ARG(info, __builtin_ctzll(rest));
      save_args |= a.saves_args;
      save_rets |= a.saves_rets;
      args |= a.reads_args;
      flags |= a.flags;
    }
  }
};

size_t list_bytes(const RbValue& v) {
  switch (v.tag) {
    case RB_INTS:
    case RB_FLOATS:
    case RB_TENSORS:
      return v.len * 8;
    case RB_STR:
      return (v.len + 8) / 8 * 8;
    case RB_COMPLEX:
      return 16;
    default:
      return 0;
  }
}

// Keep a value that is no tensor: lists and strings are copied into the node's block.
void keep_plain(RbValue& to, const RbValue& from, char** extra) {
  to = from;
  const size_t bytes = list_bytes(from);
  if (!bytes) return;
  if (from.tag == RB_STR) {
    std::memcpy(*extra, from.v.s, from.len);
    (*extra)[from.len] = 0;
  } else {
    std::memcpy(*extra, from.v.p, bytes);
  }
  to.v.p = *extra;
  *extra += bytes;
}

struct Recorder {
  const RbCall* call;
  const RbOpInfo* info;
  const RbValue* args;
  int32_t nargs;
  uint64_t need;
  int16_t depth;
  Reads reads;
  RbTensor* replaced = nullptr;  // an argument that the call overwrites ...
  RbTensor* original = nullptr;  // ... and the copy of what it held, if a derivative reads it

  /// Node with edges and saved arguments for results of the shapes of `rets`; call before an
  /// in-place call overwrites histories.
  Node* begin(const RbValue* rets, int32_t nrets, int32_t* status) const;
  /// Save what the derivatives read of the results.
  int32_t save_results(Node* n, const RbValue* rets, int32_t nrets) const;

 private:
  NodeShape layout(const RbValue* rets, int32_t nrets, uint64_t* shared) const;
  bool wants(int32_t i) const { return need >> i & 1; }
  bool reads_arg(int32_t i) const { return reads.args >> i & 1; }
  bool saves_arg(int32_t i) const { return reads.save_args >> i & 1; }
  bool needs_meta(int32_t i) const { return wants(i) || (reads_arg(i) && !saves_arg(i)); }
  int32_t keep_argument(Node* n, int32_t i, const RbMeta* meta, char** extra) const;
};

// `shared`: tensor arguments that have the shape and dtype of result 0.
NodeShape Recorder::layout(const RbValue* rets, int32_t nrets, uint64_t* shared) const {
  const RbTensor* like = rets[0].v.t;
  NodeShape shape;
  shape.nargs = reads.args ? nargs : 0;
  shape.nrets = nrets;
  shape.saves_rets = reads.save_rets != 0;
  for (int32_t i = 0; i < nrets; ++i) shape.extra += rets[i].v.t->ndim * sizeof(int64_t);
  for (uint64_t rest = need | reads.args; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    const RbValue& v = args[i];
    if (v.tag == RB_TENSOR) {
      shape.nedges += wants(i);
      if (!needs_meta(i)) continue;
      if (same_meta(v.v.t, like)) {
        *shared |= 1ull << i;
      } else {
        shape.extra += meta_bytes(v.v.t);
      }
      continue;
    }
    if (v.tag == RB_TENSORS && wants(i)) {
      shape.nedges += static_cast<int>(v.len);
      for (uint32_t j = 0; j < v.len; ++j) {
        const RbTensor* t = v.v.ts[j];
        if (t && !same_meta(t, like)) shape.extra += meta_bytes(t);
      }
    }
    if (reads_arg(i)) shape.extra += list_bytes(v);
  }
  return shape;
}

int32_t Recorder::keep_argument(Node* n, int32_t i, const RbMeta* meta, char** extra) const {
  const RbValue& v = args[i];
  RbValue& to = n->args[i];
  if (v.tag == RB_TENSOR) {
    if (!saves_arg(i)) {
      to.tag = RB_META;
      to.len = 0;
      to.v.meta = meta;
      return RB_OK;
    }
    RbTensor* kept = v.v.t == replaced && original ? original : v.v.t;
    n->holds = true;
    n->arg_versions[i] = host->version_get(kept);
    return save_tensor(kept, &to);
  }
  if (v.tag != RB_TENSORS) {
    keep_plain(to, v, extra);
    return RB_OK;
  }
  to.v.p = *extra;
  *extra += list_bytes(v);
  n->holds = true;
  return save_tensors(v, &to);
}

Node* Recorder::begin(const RbValue* rets, int32_t nrets, int32_t* status) const {
  const NodeKind kind = info->flags & RB_OP_HAS_VJP ? NodeKind::kOp : NodeKind::kNotDifferentiable;
  char* extra = nullptr;
  uint64_t shared = 0;
  Node* n = make_node(kind, layout(rets, nrets, &shared), &extra);
  if (!n) {
    *status = fail(RB_E_OOM, "%s: out of memory while recording", info->name);
    return nullptr;
  }
  n->op = call->op;
  n->info = info;
  n->stream = call->stream;
  for (int32_t i = 0; i < nrets; ++i) copy_meta(n->out_metas[i], rets[i].v.t, &extra);
  const RbTensor* like = rets[0].v.t;
  uint64_t seq = 0;
  uint16_t nest = no_nest;
  Edge* edge = n->edges;
  auto add_edge = [&](RbTensor* t, int32_t i, const RbMeta* meta) {
    const bool flows = t && is_recorded_at(meta_of(t), call->level);
    const Target target = flows ? gradient_target(t) : Target{nullptr, 0};
    *edge++ = Edge{target.fn, meta, target.output, static_cast<int16_t>(i)};
    if (!target.fn) return;
    seq = std::max(seq, target.fn->seq);
    nest = std::min(nest, target.fn->nest);
  };
  for (uint64_t rest = need | reads.args; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    const RbValue& v = args[i];
    const RbMeta* meta = nullptr;
    if (v.tag == RB_TENSOR && needs_meta(i))
      meta = shared >> i & 1 ? &n->out_metas[0] : new_meta_copy(v.v.t, &extra);
    if (wants(i) && v.tag == RB_TENSOR) {
      add_edge(v.v.t, i, meta);
    } else if (wants(i)) {
      for (uint32_t j = 0; j < v.len; ++j) {
        RbTensor* t = v.v.ts[j];
        add_edge(t, i,
                 !t                   ? nullptr
                 : same_meta(t, like) ? &n->out_metas[0]
                                      : new_meta_copy(t, &extra));
      }
    }
    if (!reads_arg(i)) continue;
    *status = keep_argument(n, i, meta, &extra);
    if (__builtin_expect(*status != RB_OK, 0)) {
      node_release(n);
      return nullptr;
    }
  }
  n->seq = next_sequence(seq);
  n->nest = nest;
  if (has_observers(RB_EVENT_NODE)) tell_recorded(n);
  return n;
}

int32_t Recorder::save_results(Node* n, const RbValue* rets, int32_t nrets) const {
  for (int32_t i = 0; i < nrets; ++i) {
    if (!(reads.save_rets >> i & 1)) continue;
    RbTensor* alias = nullptr;  // without the slot: the node must not keep itself alive
    if (int32_t rc = host->tensor_alias(rets[i].v.t, &alias)) return rc;
    n->holds = true;
    n->out_versions[i] = host->version_get(alias);
    if (int32_t rc = save_owned(alias, &n->outs[i])) return rc;
  }
  return RB_OK;
}

// Point a tensor at its node; the record lies in the node. Takes over a reference to the node.
inline void attach(Node* n, int32_t i, RbTensor* t, int16_t depth) {
  Meta& m = n->metas[i];
  m.depth = depth;
  m.fn = n;
  m.output = static_cast<uint32_t>(i);
  m.embedded = true;
  if (t->flags & RB_T_VIEW) m.version = host->version_get(t);
  if (__builtin_expect(!meta_of(t), 1)) {
    host->slot_set(t, slot, &m, 1);
  } else {
    replace_meta(t, &m, 1);
  }
}

int count_differentiable(const RbValue* rets, int32_t nrets) {
  int count = 0;
  for (int32_t i = 0; i < nrets; ++i)
    count += rets[i].tag == RB_TENSOR && differentiable(rets[i].v.t->dtype_id);
  return count;
}

// There is no node with a list of outputs: a gradient would be lost without a word.
[[gnu::noinline]] int32_t refuse_lists(const RbOpInfo* info, RbValue* rets, int32_t nrets) {
  bool any = false;
  for (int32_t i = 0; i < nrets; ++i) {
    for (uint32_t k = 0; rets[i].tag == RB_TENSORS && k < rets[i].len; ++k)
      any = any || (rets[i].v.ts[k] && differentiable(rets[i].v.ts[k]->dtype_id));
  }
  if (!any) return RB_OK;
  for (int32_t i = 0; i < nrets; ++i) host->value_release(&rets[i]);
  return fail(RB_E_NOTIMPL,
              "%s: an argument requires grad, but an operator with a list of results is "
              "differentiated only if it is made of others; detach() the argument",
              info->name);
}

int32_t record_call(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                    RbValue* rets, int32_t nrets, const Recorded& recorded, const Reads& reads) {
  int32_t status = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (status != RB_OK) return status;
  const int users = count_differentiable(rets, nrets);
  if (!users) return refuse_lists(info, rets, nrets);
  const Recorder recorder{call, info, args, nargs, recorded.need, recorded.depth, reads};
  Node* n = recorder.begin(rets, nrets, &status);
  if (n && recorder.reads.save_rets) {
    status = recorder.save_results(n, rets, nrets);
    if (status != RB_OK) node_release(n);
  }
  if (__builtin_expect(status != RB_OK, 0)) {
    for (int32_t i = 0; i < nrets; ++i) host->value_release(&rets[i]);
    return status;
  }
  n->refs.store(users, std::memory_order_relaxed);  // nobody else knows it yet
  for (int32_t i = 0; i < nrets; ++i) {
    if (differentiable(rets[i].v.t->dtype_id)) attach(n, i, rets[i].v.t, recorded.depth);
  }
  return RB_OK;
}

// ---- writes in place

RbTensor* root_of(const RbTensor* t) {
  RbTensor* root = host->view_parent(t);
  while (root) {
    RbTensor* up = host->view_parent(root);
    if (!up) break;
    root = up;
  }
  return root;
}

// A view that has no history, of a base that has one: nothing was recorded where it was made.
bool was_made_unrecorded(const RbTensor* target, const RbTensor* root, int32_t level) {
  return root && is_recorded_at(meta_of(root), level) && !is_recorded(meta_of(target));
}

int32_t check_target(const RbOpInfo* info, const RbTensor* target, const RbTensor* root,
                     int32_t level) {
  if (was_made_unrecorded(target, root, level)) {
    return fail(RB_E_STATE,
                "%s_: A view was created in no_grad mode and is being modified inplace with grad "
                "mode enabled. Given that this use case is ambiguous and error-prone, it is "
                "forbidden. You can clarify your code by moving both the view and the inplace "
                "either both inside the no_grad block (if you don't want the inplace to be "
                "tracked) or both outside (if you want the inplace to be tracked). "
                "inference_mode() is such a block too.",
                info->name);
  }
  for (const RbTensor* t : {target, root}) {  // a view may be a leaf itself
    const Meta* m = t ? meta_of(t) : nullptr;
    if (!m || !m->requires_grad || m->fn) continue;
    return fail(
        RB_E_STATE,
        "%s_: a %sleaf Variable that requires grad is being used in an in-place operation; use "
        "no_grad(), or write to a copy",
        info->name, t == root ? "view of a " : "");
  }
  return RB_OK;
}

// The base of a written view gets a history: everywhere else its old one, in the view that of
// `value`.
int32_t rebase_view(RbTensor* view, RbTensor* root, Node* value, uint32_t output,
                    Target root_target, int16_t depth) {
  NodeShape shape;
  shape.nedges = 2;
  shape.nrets = 1;
  shape.extra = root->ndim * sizeof(int64_t) + meta_bytes(view);
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kViewWrite, shape, &extra);
  if (!n) return fail(RB_E_OOM, "out of memory while recording a write to a view");
  copy_meta(n->out_metas[0], root, &extra);
  n->stream = stream_of(n->out_metas[0]);
  n->edges[0] = Edge{root_target.fn, &n->out_metas[0], root_target.output, 0};
  n->edges[1] = Edge{value, new_meta_copy(view, &extra), output, 1};
  n->seq =
      next_sequence(std::max(root_target.fn ? root_target.fn->seq : 0, value ? value->seq : 0));
  n->nest =
      std::min(root_target.fn ? root_target.fn->nest : no_nest, value ? value->nest : no_nest);
  n->metas[0].depth = depth;
  if (value) node_retain(value);
  {
    // How the view was made, kept on an alias of the base: the base itself will point here.
    ThreadGuard guard;
    host->layer_mode(layer, -1, 1);
    Ref alias;
    int32_t status = host->tensor_alias(root, alias.out());
    if (status == RB_OK) status = host->view_replay(view, alias.get(), &n->tensor);
    if (status != RB_OK) {
      node_release(n);
      return status;
    }
  }
  set_history(root, n, 0);
  meta_of(root)->rebased = true;
  node_release(n);
  replace_meta(view, nullptr, 0);  // rebuilt from the base when it is used next
  return RB_OK;
}

// Whether gradients that pass through a view, or through a view that it was made of, are seen by
// hooks or retained.
bool is_observed(const RbTensor* view, const RbTensor* root) {
  for (const RbTensor* t = view; t && t != root; t = host->view_parent(t)) {
    const Meta* holder = gradient_holder(meta_of(t));
    if (holder && (holder->hooks || holder->retains)) return true;
  }
  return false;
}

bool is_in_place(const RbValue* args, int32_t nargs, const RbValue* rets, int32_t nrets) {
  return nrets == 1 && nargs > 0 && args[0].tag == RB_TENSOR && args[0].v.t == rets[0].v.t;
}

int32_t refuse_destination(const RbOpInfo* info) {
  return fail(RB_E_STATE, "%s: out= does not support gradients, but 'out' requires grad",
              info->name);
}

// A write of values that carry no gradient over a recorded tensor: random numbers.
[[gnu::noinline]] int32_t write_detached(const RbCall* call, const RbOpInfo* info,
                                         const RbValue* args, int32_t nargs, RbValue* rets,
                                         int32_t nrets) {
  RbTensor* target = rets[0].v.t;
  RbTensor* root = root_of(target);
  int32_t status = check_target(info, target, root, call->level);
  if (status != RB_OK) return status;
  const bool recorded = is_recorded_at(meta_of(root ? root : target), call->level);
  if (recorded && !is_in_place(args, nargs, rets, nrets)) return refuse_destination(info);
  const Target edge = recorded && root ? gradient_target(root) : Target{nullptr, 0};
  status = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (status == RB_OK && recorded && root)
    return rebase_view(target, root, nullptr, 0, edge, meta_of(root)->depth);
  if (edge.fn) node_release(edge.fn);
  if (status == RB_OK && recorded) replace_meta(target, nullptr, 0);
  return status;
}

// By a decomposition of a copy: its operators may save what the result is then written over.
[[gnu::noinline]] int32_t decompose_write(const RbCall* call, const RbValue* args, int32_t nargs,
                                          RbValue* rets) {
  RbValue given[RB_MAX_ARGS];
  std::copy(args, args + nargs, given);
  Ref original;
  if (const int32_t status = call1(ops().clone, args, 1, original)) return status;
  given[0] = tensor_value(original.get());
  return host->decompose(call, given, nargs, rets, 1);
}

[[gnu::noinline]] int32_t record_write(const RbCall* call, const RbOpInfo* info,
                                       const RbValue* args, int32_t nargs, RbValue* rets,
                                       int32_t nrets, const Recorded& recorded,
                                       const Reads& reads) {
  RbTensor* target = rets[0].v.t;
  if (!is_in_place(args, nargs, rets, nrets)) {
    return fail(RB_E_STATE, "%s: out= does not support gradients, but an argument requires grad",
                info->name);
  }
  if (!differentiable(target->dtype_id))
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  RbTensor* root = root_of(target);
  int32_t status = check_target(info, target, root, call->level);
  if (status != RB_OK) return status;
  for (RbTensor* t = target; t; t = host->view_parent(t)) {
    const Meta* m = meta_of(t);
    if (is_custom_view(t, m)) return refuse_custom_view(m->fn, m->output, "it");
  }
  // What the view held before is a part of the base from now on: the gradient goes to the base past
  // the hooks of the view.
  if (root && is_observed(target, root)) {
    status = renew_view_history(target, root);
    if (status != RB_OK) return status;
  }
  const Meta* before = meta_of(root ? root : target);
  const int16_t depth =
      std::max(recorded.depth, is_recorded(before) ? before->depth : recorded.depth);
  Recorder recorder{call, info, args, nargs, recorded.need, depth, reads};
  Ref original;
  if (recorder.reads.save_args & 1) {
    ThreadGuard guard;
    host->layer_mode(layer, -1, 1);
    const RbValue arg = tensor_value(target);
    status = call1(ops().clone, &arg, 1, original);
    if (status != RB_OK) return status;
    const Meta* m = meta_of(target);
    if (m && m->fn) set_history(original.get(), m->fn, m->output);
  }
  recorder.replaced = target;
  recorder.original = original.get();
  Node* n = recorder.begin(rets, 1, &status);
  if (!n) return status;
  const Target root_edge = root ? gradient_target(root) : Target{nullptr, 0};
  status = host->redispatch(call, layer, args, nargs, rets, nrets);
  // The target's new value may be saved as the result; it is already that of the write.
  if (status == RB_OK) status = recorder.save_results(n, rets, 1);
  if (status != RB_OK) {
    if (root_edge.fn) node_release(root_edge.fn);
    node_release(n);
    return status;
  }
  if (root) {
    status = rebase_view(target, root, n, 0, root_edge, depth);
  } else {
    node_retain(n);
    attach(n, 0, target, depth);
    n->metas[0].rebased = true;
  }
  node_release(n);
  return status;
}

}  // namespace

int32_t record_view_write(RbTensor* view, Node* value, uint32_t output) {
  RbTensor* root = root_of(view);
  const Meta* m = meta_of(root);
  if (m && m->requires_grad && !m->fn) {
    return fail(RB_E_STATE,
                "%s: a view of a leaf Variable that requires grad is being used in an in-place "
                "operation.",
                value->name->c_str());
  }
  const Target target = is_recorded(m) ? gradient_target(root) : Target{nullptr, 0};
  const int16_t depth = value->metas[output].depth;
  return rebase_view(view, root, value, output, target,
                     is_recorded(m) ? std::max(m->depth, depth) : depth);
}

namespace {

// A write of results that carry no gradient: what it replaces may have one.
[[gnu::noinline]] int32_t write_unrecorded(const RbCall* call, const RbOpInfo* info,
                                           const RbValue* args, int32_t nargs, RbValue* rets,
                                           int32_t nrets, const Recorded& recorded) {
  const bool in_place = is_in_place(args, nargs, rets, nrets);
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR) continue;
    RbTensor* target = rets[i].v.t;
    int32_t updated = RB_OK;
    const Meta* m = current_meta(target, &updated);
    if (updated != RB_OK) return updated;
    if (is_recorded_at(m, call->level)) {
      if (!in_place) return refuse_destination(info);
      const Reads reads(info, recorded.need);
      return record_write(call, info, args, nargs, rets, nrets, recorded, reads);
    }
    const RbTensor* root = root_of(target);
    if (was_made_unrecorded(target, root, call->level))
      return check_target(info, target, root, call->level);
  }
  return host->redispatch(call, layer, args, nargs, rets, nrets);
}

// Some wanted argument is written by the operator.
[[gnu::cold]] int32_t refuse_mutated(const RbOpInfo* info, uint64_t need) {
  while (!(RB_ARG(info, __builtin_ctzll(need))->flags & RB_ARG_MUTATED)) need &= need - 1;
  return fail(RB_E_STATE,
              "%s writes its argument '%s' in place, which requires grad: there is no "
              "derivative of that; pass a detach()ed copy",
              info->name, RB_ARG(info, __builtin_ctzll(need))->name);
}

}  // namespace

int32_t handle_call(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const RbOpInfo* info = host->op_info(call->op);
  const bool writes = (call->flags & RB_CALL_OUT) != 0;
  if (info->flags & RB_OP_DETACHED) {
    if (writes && nrets == 1) return write_detached(call, info, args, nargs, rets, nrets);
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  }
  Recorded recorded{call->level};
  if (__builtin_expect(!add_plain(args, nargs, recorded), 0)) {
    Recorded found{call->level};
    const int32_t status = recorded_arguments(args, nargs, found);
    if (status != RB_OK) return status;
    recorded = found;
  }
  if (!recorded.need) {
    if (writes) return write_unrecorded(call, info, args, nargs, rets, nrets, recorded);
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  }
  if (!(info->flags & RB_OP_HAS_VJP) && (info->flags & RB_OP_HAS_DECOMP)) {
    if (writes && is_in_place(args, nargs, rets, nrets))
      return decompose_write(call, args, nargs, rets);
    return host->decompose(call, args, nargs, rets, nrets);
  }
  const Reads reads(info, recorded.need);
  if (__builtin_expect(reads.flags & RB_ARG_MUTATED, 0)) return refuse_mutated(info, recorded.need);
  if (writes) return record_write(call, info, args, nargs, rets, nrets, recorded, reads);
  return record_call(call, info, args, nargs, rets, nrets, recorded, reads);
}

int32_t explain_call(const RbOp* op, const RbValue* args, int32_t nargs, char* text,
                     uint32_t size) {
  const RbOpInfo* info = host->op_info(op);
  if (info->flags & RB_OP_DETACHED) {
    std::snprintf(text, size, "its results never carry a gradient");
    return RB_EXPLAIN_PASSES;
  }
  Recorded recorded{0};
  for (int32_t i = 0; i < nargs; ++i) {
    const bool list = args[i].tag == RB_TENSORS;
    for (uint32_t k = 0; k < (list ? args[i].len : args[i].tag == RB_TENSOR); ++k) {
      const RbTensor* t = list ? args[i].v.ts[k] : args[i].v.t;
      if (t) recorded.level = std::max(recorded.level, t->level);
    }
  }
  if (recorded_arguments(args, nargs, recorded) != RB_OK || !recorded.need) {
    host->err_clear();
    std::snprintf(text, size, "no argument requires grad");
    return RB_EXPLAIN_PASSES;
  }
  const char* name = RB_ARG(info, __builtin_ctzll(recorded.need))->name;
  if (!(info->flags & RB_OP_HAS_VJP) && (info->flags & RB_OP_HAS_DECOMP)) {
    std::snprintf(text, size,
                  "'%s' requires grad: the operators that it is made of are called and recorded",
                  name);
    return RB_EXPLAIN_ENDS;
  }
  std::snprintf(text, size,
                info->flags & RB_OP_HAS_VJP
                    ? "'%s' requires grad: the call is recorded with its derivative"
                    : "'%s' requires grad: the call is recorded, but has no derivative",
                name);
  return RB_EXPLAIN_ACTS;
}

}  // namespace tape

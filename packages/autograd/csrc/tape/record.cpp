// The tape: the layer's handler, which runs what is below and records it.
#include "record.h"

#include <algorithm>

namespace tape {

namespace {

inline bool wants_gradient(const RbTensor* t) {
  return (t->keys[0] & layer_key) && is_recorded(meta_of(t));
}

// A bit for each argument that holds a recorded tensor; views are brought up to date first.
int32_t recorded_arguments(const RbValue* args, int32_t nargs, uint64_t* out) {
  uint64_t need = 0;
  int32_t status = RB_OK;
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) {
      if (host->view_parent(args[i].v.t)) {
        current_meta(args[i].v.t, &status);
        if (status != RB_OK) return status;
      }
      if (wants_gradient(args[i].v.t)) need |= 1ull << i;
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t j = 0; j < args[i].len; ++j) {
        RbTensor* t = args[i].v.ts[j];
        if (!t) continue;
        current_meta(t, &status);
        if (status != RB_OK) return status;
        if (wants_gradient(t)) need |= 1ull << i;
      }
    }
  }
  *out = need;
  return RB_OK;
}

// What the derivatives of the wanted arguments read.
void saves(const RbOpInfo* info, uint64_t need, uint64_t* args, uint64_t* rets) {
  *args = *rets = 0;
  for (uint64_t rest = need; rest; rest &= rest - 1) {
    const RbArgInfo& a = info->args[__builtin_ctzll(rest)];
    *args |= a.saves_args;
    *rets |= a.saves_rets;
  }
}

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
  NodeKind kind = NodeKind::kOp;
  RbTensor* replaced = nullptr;  // an argument that the call overwrites ...
  RbTensor* original = nullptr;  // ... and the copy of what it held, if a derivative reads it

  /// Node with edges and saved arguments, and room for `result_dims` sizes of the results; call
  /// before an in-place call overwrites histories.
  Node* begin(int32_t nrets, size_t result_dims, int32_t* status) const;
  static void finish(Node* n, const RbValue* rets, int32_t nrets, uint64_t save_rets);
};

Node* Recorder::begin(int32_t nrets, size_t result_dims, int32_t* status) const {
  uint64_t save_args = 0, save_rets = 0;
  saves(info, need, &save_args, &save_rets);
  NodeShape shape;
  shape.nargs = nargs;
  shape.nrets = nrets;
  for (int32_t i = 0; i < nargs; ++i) {
    shape.extra += list_bytes(args[i]);
    if (args[i].tag == RB_TENSOR) {
      shape.extra += args[i].v.t->ndim * 8;
      if (!(save_args >> i & 1)) shape.extra += sizeof(RbMeta);
      if (need >> i & 1) ++shape.nedges;
    } else if (args[i].tag == RB_TENSORS && (need >> i & 1)) {
      shape.nedges += static_cast<int>(args[i].len);
      for (uint32_t j = 0; j < args[i].len; ++j)
        shape.extra += args[i].v.ts[j] ? args[i].v.ts[j]->ndim * 8 : 0;
    }
  }
  shape.extra += result_dims * sizeof(int64_t);
  char* extra = nullptr;
  Node* n = make_node(kind, shape, &extra);
  if (!n) {
    *status = fail(RB_E_OOM, "%s: out of memory while recording", info->name);
    return nullptr;
  }
  n->op = call->op;
  n->info = info;
  uint64_t seq = 0;
  int edge = 0;
  auto add_edge = [&](RbTensor* t, int32_t i) {
    n->edges[edge] = t ? gradient_edge(t) : Edge{nullptr, 0};
    n->edge_args[edge] = static_cast<int16_t>(i);
    if (n->edges[edge].fn) seq = std::max(seq, n->edges[edge].fn->seq);
    if (t) copy_meta(n->edge_metas[edge], t, &extra);
    ++edge;
  };
  for (int32_t i = 0; i < nargs; ++i) {
    const RbValue& v = args[i];
    if (v.tag == RB_TENSOR) {
      RbTensor* t = v.v.t;
      const int64_t* dims = nullptr;
      if (need >> i & 1) {
        add_edge(t, i);
        dims = n->edge_metas[edge - 1].shape;
      }
      if (save_args >> i & 1) {
        RbTensor* kept = t == replaced && original ? original : t;
        host->retain(kept);
        n->args[i] = tensor_value(kept);
        n->arg_versions[i] = host->version_get(kept);
      } else {
        auto* meta = reinterpret_cast<RbMeta*>(extra);
        extra += sizeof(RbMeta);
        if (dims) {
          *meta = n->edge_metas[edge - 1];
        } else {
          copy_meta(*meta, t, &extra);
        }
        n->args[i].tag = RB_META;
        n->args[i].len = 0;
        n->args[i].v.meta = meta;
      }
    } else if (v.tag == RB_TENSORS) {
      keep_plain(n->args[i], v, &extra);
      for (uint32_t j = 0; j < v.len; ++j) {
        if (v.v.ts[j]) host->retain(v.v.ts[j]);
        if (need >> i & 1) add_edge(v.v.ts[j], i);
      }
      n->arg_versions[i] = 0;
    } else {
      keep_plain(n->args[i], v, &extra);
    }
  }
  n->seq = seq + 1;
  n->ctx = extra;  // room for the results' sizes; finish() takes it over
  return n;
}

void Recorder::finish(Node* n, const RbValue* rets, int32_t nrets, uint64_t save_rets) {
  char* extra = static_cast<char*>(n->ctx);
  n->ctx = nullptr;
  for (int32_t i = 0; i < nrets; ++i) {
    RbTensor* t = rets[i].v.t;
    copy_meta(n->out_metas[i], t, &extra);
    if (save_rets >> i & 1) {
      RbTensor* alias = nullptr;  // without the slot: the node must not keep itself alive
      if (host->tensor_alias(t, &alias) == RB_OK) {
        n->outs[i] = tensor_value(alias);
        n->out_versions[i] = host->version_get(t);
      }
    }
  }
}

// Point a fresh result at its node; the record lies in the node.
void attach(Node* n, int32_t i, RbTensor* t) {
  Meta& m = n->metas[i];
  m.fn = n;
  m.output = static_cast<uint32_t>(i);
  m.embedded = true;
  m.version = host->version_get(t);
  node_retain(n);
  replace_meta(t, &m, 1);
}

bool any_differentiable(const RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag == RB_TENSOR && differentiable(rets[i].v.t->dtype_id)) return true;
  }
  return false;
}

int32_t record_call(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                    RbValue* rets, int32_t nrets, uint64_t need) {
  int32_t status = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (status != RB_OK || !any_differentiable(rets, nrets)) return status;
  Recorder recorder{call, info, args, nargs, need};
  if (!(info->flags & RB_OP_HAS_VJP)) recorder.kind = NodeKind::kNotDifferentiable;
  size_t dims = 0;
  for (int32_t i = 0; i < nrets; ++i) dims += rets[i].v.t->ndim;
  Node* n = recorder.begin(nrets, dims, &status);
  if (!n) {
    for (int32_t i = 0; i < nrets; ++i) host->value_release(&rets[i]);
    return status;
  }
  uint64_t save_args = 0, save_rets = 0;
  saves(info, need, &save_args, &save_rets);
  Recorder::finish(n, rets, nrets, save_rets);
  for (int32_t i = 0; i < nrets; ++i) {
    if (differentiable(rets[i].v.t->dtype_id)) attach(n, i, rets[i].v.t);
  }
  node_release(n);
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

int32_t check_target(const RbOpInfo* info, const RbTensor* target, const RbTensor* root) {
  const Meta* m = meta_of(root ? root : target);
  if (m && m->requires_grad && !m->fn) {
    return fail(
        RB_E_STATE,
        "%s_: a %sleaf tensor that requires grad cannot be written in place; use no_grad(), or "
        "write to a copy",
        info->name, root ? "view of a " : "");
  }
  return RB_OK;
}

// The base of a written view gets a history: everywhere else its old one, in the view that of
// `value`.
int32_t rebase_view(RbTensor* view, RbTensor* root, Node* value, Edge root_edge) {
  NodeShape shape;
  shape.nedges = 2;
  shape.nrets = 1;
  shape.extra = (3 * root->ndim + view->ndim) * sizeof(int64_t);
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kViewWrite, shape, &extra);
  if (!n) return fail(RB_E_OOM, "out of memory while recording a write to a view");
  n->edges[0] = root_edge;
  n->edges[1] = Edge{value, 0};
  n->seq = 1 + std::max(root_edge.fn ? root_edge.fn->seq : 0, value ? value->seq : 0);
  copy_meta(n->edge_metas[0], root, &extra);
  copy_meta(n->edge_metas[1], view, &extra);
  copy_meta(n->out_metas[0], root, &extra);
  n->edge_args[0] = 0;
  n->edge_args[1] = 1;
  if (value) node_retain(value);
  {
    // How the view was made, kept on an alias of the base: the base itself will point here.
    TlsGuard guard;
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

// A write of values that carry no gradient over a recorded tensor: random numbers.
int32_t write_detached(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets) {
  RbTensor* target = rets[0].v.t;
  RbTensor* root = root_of(target);
  int32_t status = check_target(info, target, root);
  if (status != RB_OK) return status;
  const bool recorded = is_recorded(meta_of(root ? root : target));
  const Edge edge = recorded && root ? gradient_edge(root) : Edge{nullptr, 0};
  status = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (status == RB_OK && recorded && root) return rebase_view(target, root, nullptr, edge);
  if (edge.fn) node_release(edge.fn);
  if (status == RB_OK && recorded) replace_meta(target, nullptr, 0);
  return status;
}

int32_t record_write(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                     RbValue* rets, int32_t nrets, uint64_t need) {
  RbTensor* target = rets[0].v.t;
  const bool in_place =
      nrets == 1 && nargs > 0 && args[0].tag == RB_TENSOR && args[0].v.t == target;
  if (!in_place) {
    return fail(RB_E_STATE, "%s: out= does not support gradients, but an argument requires grad",
                info->name);
  }
  RbTensor* root = root_of(target);
  int32_t status = check_target(info, target, root);
  if (status != RB_OK) return status;
  if (root && is_recorded(meta_of(root)) && !meta_of(root)->rebased &&
      !is_recorded(meta_of(target))) {
    return fail(
        RB_E_STATE,
        "%s_: the target is a view that was made under no_grad() of a tensor that requires grad; "
        "make the view, or write to it, under the same mode",
        info->name);
  }
  uint64_t save_args = 0, save_rets = 0;
  saves(info, need, &save_args, &save_rets);
  Ref original;
  if (save_args & 1) {
    static const RbOp* const clone = host->find_op("clone");
    TlsGuard guard;
    host->layer_mode(layer, -1, 1);
    const RbValue arg = tensor_value(target);
    status = call1(clone, &arg, 1, original);
    if (status != RB_OK) return status;
    const Meta* m = meta_of(target);
    if (m && m->fn) set_history(original.get(), m->fn, m->output);
  }
  Recorder recorder{call, info, args, nargs, need};
  recorder.replaced = target;
  recorder.original = original.get();
  if (!(info->flags & RB_OP_HAS_VJP)) recorder.kind = NodeKind::kNotDifferentiable;
  Node* n = recorder.begin(1, target->ndim, &status);
  if (!n) return status;
  const Edge root_edge = root ? gradient_edge(root) : Edge{nullptr, 0};
  status = host->redispatch(call, layer, args, nargs, rets, nrets);
  if (status != RB_OK) {
    n->ctx = nullptr;
    if (root_edge.fn) node_release(root_edge.fn);
    node_release(n);
    return status;
  }
  // The target's new value may be saved as the result; it is already that of the write.
  Recorder::finish(n, rets, 1, save_rets);
  if (root) {
    status = rebase_view(target, root, n, root_edge);
  } else {
    attach(n, 0, target);
    n->metas[0].rebased = true;
  }
  node_release(n);
  return status;
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
  uint64_t need = 0;
  const int32_t status = recorded_arguments(args, nargs, &need);
  if (status != RB_OK) return status;
  if (!need) {
    if (writes && nrets == 1 && is_recorded(meta_of(rets[0].v.t))) {
      return record_write(call, info, args, nargs, rets, nrets, need);
    }
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  }
  if (!(info->flags & RB_OP_HAS_VJP) && (info->flags & RB_OP_HAS_DECOMP)) {
    return host->decompose(call, args, nargs, rets, nrets);
  }
  if (writes) return record_write(call, info, args, nargs, rets, nrets, need);
  return record_call(call, info, args, nargs, rets, nrets, need);
}

}  // namespace tape

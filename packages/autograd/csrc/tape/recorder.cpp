#include "recorder.h"

namespace tape {

namespace {
// Bytes that a value's list or string takes in the node's block.
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
}  // namespace

int32_t keep_argument(Node* n, int32_t i, const RbValue& v, bool saves, const RbMeta* meta,
                      char* room) {
  RbValue& to = n->args[i];
  if (v.tag == RB_TENSOR) {
    if (!saves) {
      to.tag = RB_META;
      to.len = 0;
      to.v.meta = meta;
      return RB_OK;
    }
    n->holds = true;
    n->arg_versions[i] = host->version_get(v.v.t);
    return save_tensor(v.v.t, &to);
  }
  to = v;
  if (!list_bytes(v)) return RB_OK;
  if (v.tag == RB_STR) {
    std::memcpy(room, v.v.s, v.len);
    room[v.len] = 0;
  } else {
    std::memcpy(room, v.v.p, list_bytes(v));
  }
  to.v.p = room;
  return RB_OK;
}

int32_t keep_tensors(Node* n, int32_t i, const RbValue& v, char* room) {
  n->args[i].v.p = room;
  n->holds = true;
  return save_tensors(v, &n->args[i]);
}

int32_t save_results(Node* n, uint64_t saved, const RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (!(saved >> i & 1)) continue;
    RbTensor* alias = nullptr;  // without the slot: the node must not keep itself alive
    if (int32_t rc = host->tensor_alias(rets[i].v.t, &alias)) return rc;
    n->holds = true;
    n->out_versions[i] = host->version_get(alias);
    if (int32_t rc = save_owned(alias, &n->outs[i])) return rc;
  }
  return RB_OK;
}

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

int32_t Recorder::keep(Node* n, int32_t i, const RbMeta* meta, char** extra) const {
  const RbValue& v = args[i];
  char* const room = *extra;
  if (v.tag == RB_TENSOR) {
    const bool replaces = v.v.t == replaced && original;
    return keep_argument(n, i, replaces ? tensor_value(original) : v, saves_arg(i), meta, room);
  }
  *extra += list_bytes(v);
  return v.tag == RB_TENSORS ? keep_tensors(n, i, v, room)
                             : keep_argument(n, i, v, saves_arg(i), meta, room);
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
  Links links{n->edges};
  const auto target_of = [&](RbTensor* t) {
    const bool flows = t && is_recorded_at(meta_of(t), call->level);
    return flows ? gradient_target(t) : Target{nullptr, 0};
  };
  for (uint64_t rest = need | reads.args; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    const RbValue& v = args[i];
    const RbMeta* meta = nullptr;
    if (v.tag == RB_TENSOR && needs_meta(i))
      meta = shared >> i & 1 ? &n->out_metas[0] : new_meta_copy(v.v.t, &extra);
    if (wants(i) && v.tag == RB_TENSOR) {
      links.add(target_of(v.v.t), meta, i);
    } else if (wants(i)) {
      for (uint32_t j = 0; j < v.len; ++j) {
        RbTensor* t = v.v.ts[j];
        const RbMeta* own = !t                   ? nullptr
                            : same_meta(t, like) ? &n->out_metas[0]
                                                 : new_meta_copy(t, &extra);
        links.add(target_of(t), own, i);
      }
    }
    if (!reads_arg(i)) continue;
    *status = keep(n, i, meta, &extra);
    if (__builtin_expect(*status != RB_OK, 0)) {
      node_release(n);
      return nullptr;
    }
  }
  links.finish(n);
  return n;
}

}  // namespace tape

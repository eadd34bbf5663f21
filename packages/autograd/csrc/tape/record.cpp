// The tape: the layer's handler, which runs what is below and records it.
#include "record.h"

#include <cstdio>

#include "record_writes.h"

namespace tape {

namespace {

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

inline int count_differentiable(const RbValue* rets, int32_t nrets) {
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

[[gnu::noinline]] int32_t record_results(const RbCall* call, const RbOpInfo* info,
                                         const RbValue* args, int32_t nargs, RbValue* rets,
                                         int32_t nrets, const Recorded& recorded,
                                         const Reads& reads) {
  const int users = count_differentiable(rets, nrets);
  if (!users) return refuse_lists(info, rets, nrets);
  const Recorder recorder{call, info, args, nargs, recorded.need, reads};
  int32_t status = RB_OK;
  Node* n = recorder.begin(rets, nrets, &status);
  if (n && reads.save_rets) {
    status = save_results(n, reads.save_rets, rets, nrets);
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

// ---- the most frequent calls: one result like the arguments

// Whether the node of a call with this result needs room for the result's sizes only: the arguments
// in `metas`, whose shape and dtype are kept, are tensors like the result, and no argument in
// `read` is a list or a string.
inline bool is_like_arguments(const RbValue& ret, const RbValue* args, uint64_t metas,
                              uint64_t read) {
  if (ret.tag != RB_TENSOR || !differentiable(ret.v.t->dtype_id)) return false;
  constexpr uint32_t kPlain = 1u << RB_NONE | 1u << RB_BOOL | 1u << RB_INT | 1u << RB_FLOAT |
                              1u << RB_TENSOR | 1u << RB_DTYPE;
  for (uint64_t rest = metas | read; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    if (!(kPlain >> args[i].tag & 1)) return false;
    if (args[i].tag == RB_TENSOR && (metas >> i & 1) && !same_meta(args[i].v.t, ret.v.t))
      return false;
  }
  return true;
}

// Save the arguments and the result that the derivatives read. Releases the node and the result on
// an error.
[[gnu::noinline]] int32_t keep_read(Node* n, const RbValue* args, RbValue* ret,
                                    const Reads& reads) {
  int32_t status = RB_OK;
  for (uint64_t rest = reads.args; rest && status == RB_OK; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    const bool saves = reads.save_args >> i & 1;
    status = keep_argument(n, i, args[i], saves, n->out_metas, nullptr);
  }
  if (status == RB_OK) status = save_results(n, reads.save_rets, ret, 1);
  if (status == RB_OK) return RB_OK;
  node_release(n);
  host->value_release(ret);
  return status;
}

[[gnu::always_inline]] inline int32_t record_like(const RbCall* call, const RbOpInfo* info,
                                                  const RbValue* args, int32_t nargs, RbValue* ret,
                                                  const Recorded& recorded, const Reads& reads) {
  RbTensor* const result = ret->v.t;
  NodeShape shape;
  shape.nedges = recorded.count;
  shape.nargs = reads.args ? nargs : 0;
  shape.nrets = 1;
  shape.saves_rets = reads.save_rets != 0;
  shape.extra = result->ndim * sizeof(int64_t);
  char* extra = nullptr;
  Node* const n = make_node(NodeKind::kOp, shape, &extra);
  if (__builtin_expect(!n, 0)) {
    host->value_release(ret);
    return fail(RB_E_OOM, "%s: out of memory while recording", info->name);
  }
  n->op = call->op;
  n->info = info;
  n->stream = call->stream;
  const RbMeta* const meta = n->out_metas;
  copy_meta(n->out_metas[0], result, &extra);
  Links links{n->edges};
  for (uint64_t rest = recorded.need; rest; rest &= rest - 1) {
    const int32_t i = __builtin_ctzll(rest);
    links.add(gradient_target(args[i].v.t), meta, i);
  }
  links.finish(n);
  if (reads.args || reads.save_rets) {
    if (const int32_t rc = keep_read(n, args, ret, Reads(reads))) return rc;
  }
  attach(n, 0, result, recorded.depth);
  return RB_OK;
}

// Some wanted argument is written by the operator.
[[gnu::cold]] int32_t refuse_mutated(const RbOpInfo* info, uint64_t need) {
  while (!(RB_ARG(info, __builtin_ctzll(need))->flags & RB_ARG_MUTATED)) need &= need - 1;
  return fail(RB_E_STATE,
              "%s writes its argument '%s' in place, which requires grad: there is no "
              "derivative of that; pass a detach()ed copy",
              info->name, RB_ARG(info, __builtin_ctzll(need))->name);
}

// The calls that handle_call leaves out.
[[gnu::noinline]] int32_t handle_other(const RbCall* call, const RbOpInfo* info,
                                       const RbValue* args, int32_t nargs, RbValue* rets,
                                       int32_t nrets) {
  const bool writes = (call->flags & RB_CALL_OUT) != 0;
  if (info->flags & RB_OP_DETACHED) {
    if (writes && nrets == 1) return write_detached(call, info, args, nargs, rets, nrets);
    return host->redispatch(call, layer, args, nargs, rets, nrets);
  }
  Recorded recorded{call->level};
  if (const int32_t rc = recorded_arguments(args, nargs, recorded)) return rc;
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
  if (reads.flags & RB_ARG_MUTATED) return refuse_mutated(info, recorded.need);
  if (writes) return record_write(call, info, args, nargs, rets, nrets, recorded, reads);
  if (const int32_t rc = host->redispatch(call, layer, args, nargs, rets, nrets)) return rc;
  return record_results(call, info, args, nargs, rets, nrets, recorded, reads);
}

}  // namespace

int32_t handle_call(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const RbOpInfo* info = host->op_info(call->op);
  // Most calls have one new result, and neither lists of tensors nor views among their arguments.
  Recorded recorded{call->level};
  constexpr uint32_t kAsked = RB_OP_HAS_VJP | RB_OP_DETACHED;
  const bool usual = nrets == 1 && !(call->flags & RB_CALL_OUT) &&
                     (info->flags & kAsked) == RB_OP_HAS_VJP && add_plain(args, nargs, recorded) &&
                     recorded.need;
  if (__builtin_expect(!usual, 0)) return handle_other(call, info, args, nargs, rets, nrets);
  const Reads reads(info, recorded.need);
  if (__builtin_expect(reads.flags & RB_ARG_MUTATED, 0)) return refuse_mutated(info, recorded.need);
  if (const int32_t rc = host->redispatch(call, layer, args, nargs, rets, 1)) return rc;
  if (is_like_arguments(rets[0], args, reads.metas(recorded.need), reads.args))
    return record_like(call, info, args, nargs, rets, recorded, reads);
  return record_results(call, info, args, nargs, rets, 1, Recorded(recorded), Reads(reads));
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

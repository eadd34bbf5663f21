#include "record_writes.h"

#include <algorithm>

#include "node_blocks.h"
#include "operators.h"
#include "streams.h"

namespace tape {

namespace {

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

int32_t refuse_destination(const RbOpInfo* info) {
  return fail(RB_E_STATE, "%s: out= does not support gradients, but 'out' requires grad",
              info->name);
}

}  // namespace

int32_t write_detached(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets) {
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

int32_t decompose_write(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets) {
  RbValue given[RB_MAX_ARGS];
  std::copy(args, args + nargs, given);
  Ref original;
  if (const int32_t status = call1(ops().clone, args, 1, original)) return status;
  given[0] = tensor_value(original.get());
  return host->decompose(call, given, nargs, rets, 1);
}

int32_t record_write(const RbCall* call, const RbOpInfo* info, const RbValue* args, int32_t nargs,
                     RbValue* rets, int32_t nrets, const Recorded& recorded, const Reads& reads) {
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
  Recorder recorder{call, info, args, nargs, recorded.need, reads};
  Ref original;
  if (reads.save_args & 1) {
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
  if (status == RB_OK) status = save_results(n, reads.save_rets, rets, 1);
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

int32_t write_unrecorded(const RbCall* call, const RbOpInfo* info, const RbValue* args,
                         int32_t nargs, RbValue* rets, int32_t nrets, const Recorded& recorded) {
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

}  // namespace tape

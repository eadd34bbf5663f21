// What a node saved, when its derivative is to be computed.
#pragma once
#include <algorithm>

#include "record.h"
#include "saved.h"

namespace tape {

/// An error where `t` was written since it was saved as `what` by `n`.
int32_t check_version(const Node* n, const RbTensor* t, uint32_t saved, const char* what);

/// Saved values as the derivatives read them: checked, and unpacked where a hook packed them.
class Loaded {
 public:
  explicit Loaded(bool records) : records_(records) {}
  int32_t load(const Node* n) {
    if (!n->nargs) {
      args = nothing;
      return RB_OK;
    }
    args = n->args;
    for (int i = 0; n->holds && i < n->nargs; ++i) {
      if (int32_t rc = load_argument(n, i)) return rc;
    }
    return RB_OK;
  }
  int32_t load_argument(const Node* n, int i) {
    if (!args) args = n->args;
    const RbValue& v = n->args[i];
    if (v.tag == RB_TENSOR)
      return check_version(n, v.v.t, n->arg_versions[i], RB_ARG(n->info, i)->name);
    if (__builtin_expect(!is_packed(v), 1)) return RB_OK;
    if (args == n->args) {
      std::copy(n->args, n->args + n->nargs, unpacked_);
      args = unpacked_;
    }
    if (int32_t rc = load_saved(v, &unpacked_[i], hold_, lists_)) return rc;
    for (int k = 0; k < n->nedges; ++k) {
      if (n->edges[k].arg != i || !n->edges[k].fn) continue;
      if (int32_t rc = give_history(n->edges[k].fn, n->edges[k].output, &unpacked_[i])) return rc;
    }
    return RB_OK;
  }
  int32_t load_result(Node* n, int i, RbValue* out) {
    if (int32_t rc = load_saved(n->outs[i], out, hold_, lists_)) return rc;
    return give_history(n, static_cast<uint32_t>(i), out);
  }

  const RbValue* args = nullptr;

 private:
  // What a hook gave back has the history of what was packed.
  int32_t give_history(Node* fn, uint32_t output, RbValue* v) {
    if (!records_ || v->tag != RB_TENSOR || !differentiable(v->v.t->dtype_id)) return RB_OK;
    Ref alias;
    if (int32_t rc = host->tensor_alias(v->v.t, alias.out())) return rc;
    set_history(alias.get(), fn, output);
    *v = tensor_value(alias.get());
    hold_.push_back(std::move(alias));
    return RB_OK;
  }

  inline static const RbValue nothing[kMaxArgs] = {};
  const bool records_;
  RbValue unpacked_[kMaxArgs];
  std::vector<Ref> hold_;
  std::vector<std::vector<RbTensor*>> lists_;
};

}  // namespace tape

#include "saved.h"

#include "engine.h"
#include "gradients.h"
#include "loaded.h"

namespace tape {

thread_local SavedHooks* saved_hooks __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

void release_hooks(SavedHooks* hooks) {
  if (hooks->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (hooks->del) hooks->del(hooks->ctx);
  delete hooks;
}

void drop_packed(Packed* packed) {
  packed->hooks->fns.drop(packed->object);
  release_hooks(packed->hooks);
  delete packed;
}

int32_t refuse_inference() {
  return fail(RB_E_STATE,
              "Inference tensors cannot be saved for backward. To work around you can make a clone "
              "to get a normal tensor and use it in autograd.");
}

// The hook runs without recording and without hooks: what it saves itself is not packed again.
int32_t pack(RbTensor* t, Packed** out) {
  SavedHooks* hooks = saved_hooks;
  ThreadGuard guard;
  host->layer_mode(layer, -1, 1);
  saved_hooks = nullptr;
  void* object = nullptr;
  const int32_t rc = hooks->fns.pack(hooks->ctx, t, &object);
  saved_hooks = hooks;
  if (rc != RB_OK) return rc;
  hooks->refs.fetch_add(1, std::memory_order_relaxed);
  *out = new Packed{hooks, object};
  return RB_OK;
}

}  // namespace

void push_saved_hooks(const RbSavedHooks* fns, void* ctx, void (*del)(void*)) {
  auto* hooks = new SavedHooks;
  hooks->refs.store(1);
  hooks->fns = *fns;
  hooks->ctx = ctx;
  hooks->del = del;
  hooks->below = saved_hooks;
  saved_hooks = hooks;
}

int32_t node_pack(Node* n, int32_t i, const RbSavedHooks* fns, void* ctx, void (*del)(void*)) {
  const RbSaved saved = node_saved(n, i);
  RbValue& v = saved.is_result ? n->outs[i - n->info->nargs] : n->args[i];
  if (is_packed(v)) {
    return fail(RB_E_STATE,
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: "
                "only one pair of hooks is allowed at a time.");
  }
  if (v.tag != RB_TENSOR) {
    return fail(RB_E_STATE,
                n->released ? "Calling register_hooks on a saved tensor after it has been freed. "
                              "Saved intermediate values of the graph are freed when you call "
                              ".backward() or autograd.grad()."
                            : "Calling register_hooks on a saved value that is no tensor");
  }
  push_saved_hooks(fns, ctx, del);
  Packed* packed = nullptr;
  const int32_t rc = pack(v.v.t, &packed);
  pop_saved_hooks();
  if (rc != RB_OK) return rc;
  host->release(v.v.t);
  v.tag = RB_OBJECT;
  v.len = 0;
  v.v.p = packed;
  return RB_OK;
}

void pop_saved_hooks() {
  SavedHooks* top = saved_hooks;
  if (!top) return;
  saved_hooks = top->below;
  release_hooks(top);
}

int32_t save_owned(RbTensor* t, RbValue* to) {
  if (__builtin_expect(!(t->flags & RB_T_INFERENCE) && !saved_hooks, 1)) {
    *to = tensor_value(t);
    return RB_OK;
  }
  const Ref owned(t);
  if (t->flags & RB_T_INFERENCE) return refuse_inference();
  Packed* packed = nullptr;
  if (int32_t rc = pack(t, &packed)) return rc;
  to->tag = RB_OBJECT;
  to->len = 0;
  to->v.p = packed;
  return RB_OK;
}

int32_t save_tensor(RbTensor* t, RbValue* to) {
  host->retain(t);
  return save_owned(t, to);
}

int32_t save_tensors(const RbValue& list, RbValue* to) {
  auto** entries = reinterpret_cast<void**>(const_cast<RbTensor**>(to->v.ts));
  const bool packs = saved_hooks != nullptr && list.len > 0;
  to->tag = packs ? RB_OBJECT : RB_TENSORS;
  to->len = 0;
  for (uint32_t i = 0; i < list.len; ++i) {
    RbTensor* t = list.v.ts[i];
    to->len = i;  // so many are held
    entries[i] = nullptr;
    if (!t) continue;
    RbValue one{};
    const int32_t rc = save_tensor(t, &one);
    if (rc != RB_OK) {
      if (packs && i == 0) to->tag = RB_NONE;  // a packed value of length 0 is a single one
      return rc;
    }
    entries[i] = one.v.p;
  }
  to->len = list.len;
  return RB_OK;
}

namespace {
int32_t unpack(Packed* packed, RbTensor** out) {
  RbTensor* t = nullptr;
  SavedHooks* active = saved_hooks;
  saved_hooks = nullptr;
  const int32_t rc = packed->hooks->fns.unpack(packed->hooks->ctx, packed->object, &t);
  saved_hooks = active;
  *out = t;
  return rc;
}
}  // namespace

int32_t load_saved(const RbValue& saved, RbValue* out, std::vector<Ref>& hold,
                   std::vector<std::vector<RbTensor*>>& lists) {
  if (saved.len == 0) {
    RbTensor* t = nullptr;
    if (int32_t rc = unpack(static_cast<Packed*>(saved.v.p), &t)) return rc;
    hold.emplace_back(t);
    *out = tensor_value(t);
    return RB_OK;
  }
  lists.emplace_back(saved.len, nullptr);
  for (uint32_t i = 0; i < saved.len; ++i) {
    auto* packed = reinterpret_cast<Packed*>(saved.v.ts[i]);
    if (!packed) continue;
    RbTensor* t = nullptr;
    if (int32_t rc = unpack(packed, &t)) return rc;
    hold.emplace_back(t);
    lists.back()[i] = t;
  }
  out->tag = RB_TENSORS;
  out->len = saved.len;
  out->v.ts = lists.back().data();
  return RB_OK;
}

RbSaved node_saved(const Node* n, int32_t i) {
  if (n->kind != NodeKind::kOp || i >= n->info->nargs + n->nrets) return RbSaved{};
  const bool is_result = i >= n->info->nargs;
  const int32_t at = is_result ? i - n->info->nargs : i;
  if (is_result) {
    const bool kept = n->outs && (n->released || n->outs[at].tag != RB_NONE);
    return RbSaved{n->info->ret_names[at], 1, kept, kept && is_packed(n->outs[at])};
  }
  const bool kept = n->nargs && n->args[at].tag != RB_META;
  return RbSaved{RB_ARG(n->info, at)->name, 0, kept, kept && is_packed(n->args[at])};
}

int32_t node_load(Node* n, int32_t i, int32_t (*use)(void*, const RbValue*), void* ctx) {
  const RbSaved saved = node_saved(n, i);
  if (n->released) {
    return fail(RB_E_STATE,
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed): what %s saved was freed by the first "
                "run; pass retain_graph=True to it",
                node_name(n));
  }
  Loaded loaded(true);
  if (!saved.is_result) {
    if (int32_t rc = loaded.load_argument(n, i)) return rc;
    return use(ctx, &loaded.args[i]);
  }
  const int32_t at = i - n->info->nargs;
  RbValue value = n->outs[at];
  if (is_packed(value)) {
    if (int32_t rc = loaded.load_result(n, at, &value)) return rc;
    return use(ctx, &value);
  }
  if (int32_t rc = check_version(n, value.v.t, n->out_versions[at], saved.name)) return rc;
  Ref alias;  // the saved one itself must not get a history: it would keep its node
  if (int32_t rc = host->tensor_alias(value.v.t, alias.out())) return rc;
  if (differentiable(alias.get()->dtype_id)) set_history(alias.get(), n, static_cast<uint32_t>(at));
  value = tensor_value(alias.get());
  return use(ctx, &value);
}

void* saved_hooks_of(int32_t (*pack)(void*, RbTensor*, void**)) {
  return saved_hooks && saved_hooks->fns.pack == pack ? saved_hooks->ctx : nullptr;
}

void drop_saved_value(RbValue& v) {
  if (v.tag == RB_TENSOR) {
    host->release(v.v.t);
  } else if (v.tag == RB_TENSORS) {
    for (uint32_t j = 0; j < v.len; ++j) {
      if (v.v.ts[j]) host->release(v.v.ts[j]);
    }
  } else if (v.tag == RB_OBJECT) {
    if (v.len == 0) {
      drop_packed(static_cast<Packed*>(v.v.p));
    } else {
      for (uint32_t j = 0; j < v.len; ++j) {
        if (v.v.ts[j]) drop_packed(reinterpret_cast<Packed*>(v.v.ts[j]));
      }
    }
  }
  v.tag = RB_NONE;
}

int32_t check_version(const Node* n, const RbTensor* t, uint32_t saved, const char* what) {
  const uint32_t now = host->version_get(t);
  if (now == saved) return RB_OK;
  return fail(
      RB_E_STATE,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: %s saved '%s' of shape %s at version %u, and it is at version %u now",
      node_name(n), what, rb::shape_text(t).c_str(), saved, now);
}

}  // namespace tape

#include "boundary/host_tensors.h"

#include <string>
#include <utility>
#include <vector>

#include "boundary/host_checks.h"
#include "boundary/slots.h"
#include "call/core_functions.h"
#include "call/dispatch.h"
#include "device/backends.h"
#include "layer/layers.h"
#include "layer/transforms.h"
#include "rules/shape_rules.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

Tensor* view_root(const Tensor* t) {
  Tensor* root = t->view ? t->view->parent : nullptr;
  while (root && root->view) root = root->view->parent;
  return root;
}

// A strided view names memory: it can be replayed where the elements lie in the same way.
void check_layout(const RbTensor* t, const RbValue& size, const RbValue& strides) {
  bool same = static_cast<uint32_t>(t->ndim) == size.len;
  for (int d = 0; same && d < t->ndim; ++d) {
    same = t->shape[d] == size.v.is[d] && (t->shape[d] < 2 || t->strides[d] == strides.v.is[d]);
  }
  if (same || !t->numel) return;
  fail(RB_E_NOTIMPL,
       "view_replay: the tensor was made by many views of a tensor with strides %s, and is to be "
       "seen in one with strides %s; clone() it before",
       shape_text(static_cast<int>(strides.len), strides.v.is).c_str(),
       shape_text(t->ndim, t->strides).c_str());
}

// What the step of a chain of views makes of `args`.
TensorRef replay_step(const ViewRecord& step, const std::vector<RbValue>& args) {
  const auto nargs = static_cast<int32_t>(args.size());
  if (!step.entry) return call1(step.op, args.data(), nargs);
  RbValue list = value_none();
  check(call(step.op, args.data(), nargs, &list, 1));
  const uint32_t index = step.entry - 1u;
  const bool is_there = list.tag == RB_TENSORS && index < list.len && list.v.ts[index];
  TensorRef found = is_there ? TensorRef::share(list.v.ts[index]) : TensorRef();
  value_release(&list);
  if (!found) {
    fail(RB_E_PLUGIN, "view_replay: %s has no result %u any more", step.op->name.c_str(), index);
  }
  return found;
}

TensorRef replay(const Tensor* t, Tensor* root) {
  static const Op* const strided_view = find_op("strided_view");
  std::vector<const ViewRecord*> chain;  // innermost first
  for (const Tensor* at = t; at->view; at = at->view->parent) chain.push_back(at->view);
  TensorRef current = TensorRef::share(root);
  for (auto step = chain.rbegin(); step != chain.rend(); ++step) {
    std::vector<RbValue> args((*step)->args, (*step)->args + (*step)->nargs);
    args[0] = value_tensor(current.get());
    if ((*step)->op == strided_view) check_layout(current.get(), args[4], args[5]);
    current = replay_step(**step, args);
  }
  return current;
}

[[gnu::cold]] [[gnu::noinline]] int32_t refuse_slot(const RbTensor* t, int32_t slot) {
  return set_error(RB_E_ARG, t ? "slot_set: " + std::to_string(slot) + " is not a slot"
                               : "slot_set: the tensor is null");
}
// Adjust the count of a slot in which `p` has replaced `old`, or end `old`. Either may be null.
[[gnu::noinline]] int32_t replace_slot(int32_t slot, void* old, void* p) {
  const int more = (p != nullptr) - (old != nullptr);
  if (more) {
    bump(thread_state().live->slots[slot], more);
  } else if (old != p) {
    slot_deleters[slot](old);
  }
  return RB_OK;
}

}  // namespace

void host_retain(RbTensor* t) {
  if (__builtin_expect(t != nullptr, 1)) retain(t);
}
void host_release(RbTensor* t) {
  if (__builtin_expect(t != nullptr, 1)) release(t);
}
int32_t host_tensor_new(int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                        const int64_t* shape, const int64_t* strides, RbTensor** out) {
  return guarded([&] {
    need(out, "tensor_new: where the tensor goes");
    check_geometry("tensor_new", backend, device, dtype, ndim, shape, strides, backend != kMeta);
    *out = tensor_new(backend, device, dtype, ndim, shape, strides);
  });
}
int32_t host_tensor_adopt(void* data, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                          const int64_t* shape, const int64_t* strides, uint32_t flags, void* ctx,
                          void (*del)(void*), RbTensor** out) {
  return guarded([&] {
    need(out, "tensor_adopt: where the tensor goes");
    check_geometry("tensor_adopt", backend, device, dtype, ndim, shape, strides, false);
    if (backend != kMeta && count_elements(ndim, shape)) need(data, "tensor_adopt: the memory");
    *out = tensor_adopt(data, backend, device, dtype, ndim, shape, strides, flags, ctx, del);
  });
}
int32_t host_tensor_alias(RbTensor* t, RbTensor** out) {
  return guarded([&] {
    need(out, "tensor_alias: where the tensor goes");
    *out = tensor_alias(need(t, "tensor_alias: the tensor"));
  });
}
int32_t host_tensors_new(uint32_t n, RbTensor*** out) {
  return guarded([&] {
    need(out, "tensors_new: where the array goes");
    *out = tensors_new(n);
  });
}
void host_value_release(RbValue* v) {
  if (v) value_release(v);
}

int32_t host_slot_new(const char* name, int32_t layer, void (*del)(void*), int32_t* slot,
                      uint32_t* offset) {
  return guarded([&] {
    need(slot, "slot_new: where the slot goes");
    need(offset, "slot_new: where the offset goes");
    need(del, "slot_new: the function that ends what a slot holds");
    check_layer_id("slot_new", layer);
    *slot = slot_new(need(name, "slot_new: the name"), layer, del);
    // Tensor is no standard-layout class, for which offsetof would be defined.
    alignas(Tensor) static char place[sizeof(Tensor)];
    auto* slots = reinterpret_cast<char*>(&reinterpret_cast<Tensor*>(place)->slots[*slot]);
    *offset = static_cast<uint32_t>(slots - place);
  });
}
int32_t host_slot_set(RbTensor* t, int32_t slot, void* p, int32_t on) {
  if (__builtin_expect(!t || static_cast<uint32_t>(slot) >= kSlots || !slot_deleters[slot], 0))
    return refuse_slot(t, slot);
  void*& place = impl(t)->slots[slot];
  void* const old = std::exchange(place, p);
  impl(t)->used_slots |= 1u << slot;
  const uint64_t key = 1ull << slot_layers[slot];
  t->keys[0] = on ? t->keys[0] | key : t->keys[0] & ~key;
  const ThreadState* const state = thread_state_;
  if (__builtin_expect(old || !p || !state, 0)) return replace_slot(slot, old, p);
  bump(state->live->slots[slot], 1);
  return RB_OK;
}

uint32_t host_version_get(const RbTensor* t) { return t ? version_of(t) : 0; }
int32_t host_version_bump(RbTensor* t) {
  if (!t) return set_error(RB_E_ARG, "version_bump: the tensor is null");
  impl(t)->storage->version.fetch_add(1, std::memory_order_relaxed);
  return RB_OK;
}
int32_t host_same_storage(const RbTensor* a, const RbTensor* b) {
  return a && b && same_memory(a, b);
}
int32_t host_use_count(const RbTensor* t) {
  return t ? impl(t)->refs.load(std::memory_order_acquire) : 0;
}
RbTensor* host_view_parent(const RbTensor* t) {
  return t && impl(t)->view ? impl(t)->view->parent : nullptr;
}
int32_t host_view_replay(const RbTensor* t, RbTensor* root, RbTensor** out) {
  return guarded([&] {
    need(root, "view_replay: the root");
    need(out, "view_replay: where the tensor goes");
    const Tensor* original = view_root(impl(need(t, "view_replay: the tensor")));
    if (!original) fail(RB_E_STATE, "view_replay: the tensor is not a view");
    *out = replay(impl(t), impl(root)).release_ownership();
  });
}

int32_t host_tensor_wrap(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits,
                         int32_t ndim, const int64_t* shape, const int64_t* strides,
                         RbTensor** out) {
  return guarded([&] {
    need(out, "tensor_wrap: where the tensor goes");
    need(inner, "tensor_wrap: the tensor to wrap");
    if (ndim < 0 || (ndim && (!shape || !strides)))
      fail(RB_E_ARG, "tensor_wrap: it needs a shape and strides of %d dimensions", ndim);
    if (ndim <= kMaxDims) count_elements(ndim, shape);  // which throws where it cannot be a shape
    *out = tensor_wrap(level, inner, second, bits, ndim, shape, strides);
  });
}
int32_t host_tensor_wrap_along(int32_t level, RbTensor* inner, int64_t dim, RbTensor** out) {
  TensorRef owned(inner);
  return guarded([&] {
    need(out, "tensor_wrap_along: where the tensor goes");
    need(inner, "tensor_wrap_along: the tensor to wrap");
    *out = tensor_wrap_along(level, std::move(owned), dim);
  });
}

}  // namespace rabbet

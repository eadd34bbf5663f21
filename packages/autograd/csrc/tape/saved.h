// Values that wait for backward: tensors as they are, or what a saved-tensors hook made of them.
#pragma once
#include "node.h"

namespace tape {

/// A pair of hooks, shared by all that it packed. A thread's hooks form a stack.
struct SavedHooks {
  std::atomic<int32_t> refs;
  RbSavedHooks fns;
  void* ctx;
  void (*del)(void*);
  SavedHooks* below;
};
/// What RbValue::v.p of a packed value points to.
struct Packed {
  SavedHooks* hooks;  // strong
  void* object;
};

/// The innermost hooks of the thread, or null.
extern thread_local SavedHooks* saved_hooks __attribute__((tls_model("initial-exec")));
void push_saved_hooks(const RbSavedHooks* fns, void* ctx, void (*del)(void*));
void pop_saved_hooks();

/// Keep `t` in `to`: the tensor itself, or packed. An inference tensor is refused.
int32_t save_tensor(RbTensor* t, RbValue* to);
/// The same for an owned tensor, which goes on an error.
int32_t save_owned(RbTensor* t, RbValue* to);
/// Keep a list of tensors in `to`, whose v.ts is room for as many pointers.
int32_t save_tensors(const RbValue& list, RbValue* to);
/// The value as the derivative reads it. A packed one is unpacked into `hold` and `list`.
int32_t load_saved(const RbValue& saved, RbValue* out, std::vector<Ref>& hold,
                   std::vector<std::vector<RbTensor*>>& lists);
inline bool is_packed(const RbValue& v) { return v.tag == RB_OBJECT; }
/// See RbAutograd.node_saved and node_load.
RbSaved node_saved(const Node* n, int32_t i);
int32_t node_load(Node* n, int32_t i, int32_t (*use)(void*, const RbValue*), void* ctx);
/// See RbAutograd.node_pack.
int32_t node_pack(Node* n, int32_t i, const RbSavedHooks* fns, void* ctx, void (*del)(void*));
/// See RbAutograd.saved_hooks.
void* saved_hooks_of(int32_t (*pack)(void*, RbTensor*, void**));
/// Release what a saved value holds, and make it RB_NONE.
void drop_saved_value(RbValue& v);

}  // namespace tape

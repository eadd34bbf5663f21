// What is found out about the arguments of a call, once, and handed down to all that handle it.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// A call on its way down, with the facts about its arguments.
struct CallPlan : RbCall {
  const RbValue* planned_args;  // which the facts are about
  /// The first tensor, if the call is uniform: all tensors are contiguous and of one shape, dtype
  /// and device, and the other arguments are numbers, strings or none. Else null. At the backend it
  /// has memory: wrappers and composites do not come there.
  const RbTensor* uniform;
};

/// The keys of a tensor. What a layer knows of a base holds for its views: a write through another
/// view may have told it since.
inline uint64_t keys_of(const RbTensor* t) {
  uint64_t keys = t->keys[0];
  for (const ViewRecord* view = impl(t)->view; __builtin_expect(view != nullptr, 0);
       view = view->parent->view) {
    keys |= view->parent->keys[0];
  }
  return keys;
}

inline bool same_kind_and_shape(const RbTensor* t, const RbTensor* other) {
  if (t->dtype_id != other->dtype_id || t->ndim != other->ndim || t->device.id != other->device.id)
    return false;
  for (int d = 0; d < t->ndim; ++d) {
    if (t->shape[d] != other->shape[d]) return false;
  }
  return true;
}

/// What one pass over the arguments finds.
struct ArgumentFacts {
  uint64_t keys = 0;
  int32_t level = 0, device = 0;
  const RbTensor* uniform = nullptr;
};

/// The facts about the tensors of a list, which no uniform call has.
inline ArgumentFacts facts_of_list(const RbValue& list) {
  ArgumentFacts facts;
  for (uint32_t j = 0; j < list.len; ++j) {
    const RbTensor* t = list.v.ts[j];
    if (!t) continue;
    if (!facts.keys) facts.device = t->device.id;
    facts.keys |= keys_of(t);
    if (t->level > facts.level) facts.level = t->level;
  }
  return facts;
}

[[gnu::always_inline]] inline ArgumentFacts facts_of(const RbValue* args, int32_t nargs) {
  constexpr uint64_t kPlain =
      1u << RB_NONE | 1u << RB_INT | 1u << RB_FLOAT | 1u << RB_STR | 1u << RB_TENSOR;
  uint64_t keys = 0;
  int32_t level = 0, device = 0;
  const RbTensor* first = nullptr;
  bool same = true;
  for (int32_t i = 0; i < nargs; ++i) {
    const uint32_t tag = args[i].tag;
    if (tag == RB_TENSOR) {
      const RbTensor* t = args[i].v.t;
      if (!first) {
        first = t;
        if (!keys) device = t->device.id;
        if (!(t->flags & RB_T_CONTIGUOUS)) same = false;
      } else if (same && t != first) {
        same = (t->flags & RB_T_CONTIGUOUS) && same_kind_and_shape(t, first);
      }
      keys |= keys_of(t);
      if (__builtin_expect(t->level > level, 0)) level = t->level;
    } else if (__builtin_expect(!(kPlain >> tag & 1), 0)) {
      same = false;
      if (tag != RB_TENSORS) continue;
      const ArgumentFacts list = facts_of_list(args[i]);
      if (!keys) device = list.device;
      keys |= list.keys;
      if (list.level > level) level = list.level;
    }
  }
  return {keys, level, device, same ? first : nullptr};
}

/// Handler.flags of a kernel that may be called directly, see is_direct.
constexpr uint32_t kDirectFlag = uint32_t{1} << 30;
/// Whether calls whose tensors have one dtype need nothing but the shape of the result before the
/// kernel fills it: there are no checks, no formulas and no other results or writes. Found when the
/// kernel is registered.
bool is_direct(const Op& op, const Handler& handler);

/// The dtypes of uniform calls that the kernel answers alone: nothing has to be inferred, cast or
/// checked, and the result has the shape of the arguments. Found when the kernel is registered.
uint64_t uniform_dtypes(const Op& op, const Handler& handler);

}  // namespace rabbet

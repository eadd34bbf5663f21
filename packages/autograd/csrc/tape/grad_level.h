// `grad` as a transform of functions: a stack of frames on the thread. There are no levels of their
// own: a frame notes how deep the levels of vmap and jvp are where it starts (Meta::depth), and
// which nodes an outer one can still ask for (RbNode::nest).
#pragma once
#include "node.h"

namespace tape {

constexpr uint16_t no_nest = UINT16_MAX;  // nothing is differentiated there

/// See RbAutograd.
int32_t grad_enter(RbGradFrame* out);
int32_t grad_exit(const RbGradFrame* frame);
int32_t grad_input(const RbGradFrame* frame, RbTensor* x, RbTensor** inside, RbTensor** handle);
int32_t grad_open(const RbGradFrame* frame, const RbTensor* t);
void grad_close(RbGradFrame* frame, RbTensor* const* outputs, int32_t n);
int32_t grad_result(const RbGradFrame* frame, RbTensor* t, RbTensor** out);

/// Give `t` a history of its own: an identity of `x`, or of nothing if `x` is null.
int32_t link_identity(RbTensor* t, RbTensor* x, int16_t depth, uint16_t nest);

inline const RbWrap* wrap_of(const RbTensor* t) {
  return t->flags & RB_T_WRAPPER ? static_cast<const RbWrap*>(t->ext) : nullptr;
}

}  // namespace tape

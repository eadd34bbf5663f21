// Composites: what their layers say of them, and what core does with them for every layer.
#pragma once
#include "layer/layers.h"
#include "record/op.h"
#include "tensor/tensor.h"
#include "thread/thread_state.h"

namespace rabbet {

/// What the layer's composites are called and do; once for each layer. Throws.
void describe_composites(int layer, const RbCompositeLayer& what);
/// A composite of a layer that has described them, or a stub (no parts). Throws.
Tensor* compose(const Composition& what);
/// Give a composite the parts and the blob of `with`, which shows the same. Throws.
void replace_parts(Tensor* t, const Composition& with);
/// Out of a file: by the layer's own `load` if it has one. Throws.
Tensor* load_composite(const Composition& saved);
/// The layer whose composites have that name in files; null: it is not loaded.
const LayerEntry* find_composites(const std::string& name);
/// What print() shows; empty: the layer does not say it.
std::string composite_text(const RbTensor* t);
/// Give a layer the function that makes the values of its tensors; null takes it back.
void set_data_hook(int layer, RbRealFn fn, void* self);

/// What a call comes to that the layer has no kernel for, in words.
std::string composite_way(const LayerEntry& layer, const Op& op, const RbValue* args,
                          int32_t nargs);

/// While a handler or a kernel of the layer with key `bit` runs: what it computes is recorded as
/// one call already, so that the layers of differentiation above do not record the parts of it.
class WithoutDifferentiation {
 public:
  explicit WithoutDifferentiation(int bit) : exclude_(state_.exclude) {
    state_.exclude |= differentiation_above(bit);
  }
  ~WithoutDifferentiation() { state_.exclude = exclude_; }
  WithoutDifferentiation(const WithoutDifferentiation&) = delete;
  WithoutDifferentiation& operator=(const WithoutDifferentiation&) = delete;

 private:
  ThreadState& state_ = thread_state();
  const uint64_t exclude_;
};
/// Refuse part `i` of a composite, which requires grad.
[[noreturn]] void fail_part_requires_grad(const char* what, const LayerEntry& layer, uint32_t i);
}  // namespace rabbet

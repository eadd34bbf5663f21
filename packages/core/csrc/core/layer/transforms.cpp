#include "layer/transforms.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <unordered_map>

#include "formula/formula.h"
#include "formula/formula_program.h"
#include "layer/layers.h"
#include "tensor/dtype.h"
#include "thread/deferral.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

constexpr uint32_t kDifferentiation = 400;  // phase of what runs just before transforms
constexpr size_t kMaxLevels = 64;

std::atomic<uint64_t> next_serial{1};

const RbWrap& wrap_of(const RbTensor* t) { return *static_cast<const RbWrap*>(t->ext); }

// The frame of `level`, if a tensor with that serial belongs to it.
const TransformFrame* live_frame(int32_t level, uint64_t serial) {
  const std::vector<TransformFrame>& frames = thread_state().levels;
  if (level < 1 || static_cast<size_t>(level) > frames.size()) return nullptr;
  const TransformFrame& frame = frames[level - 1];
  return frame.serial == serial ? &frame : nullptr;
}

[[noreturn]] void fail_left(const char* what, int32_t level) {
  fail(RB_E_STATE,
       "%s: a tensor belongs to a transform (level %d) that this thread is not inside: it must not "
       "leave the function that is transformed",
       what, level);
}

void check_tensor(const Op& op, const RbTensor* t, int32_t level, uint64_t serial) {
  if (t->level == level && wrap_of(t).serial != serial) fail_left(op.name.c_str(), level);
}

void check_serials(const Op& op, const RbValue* args, int32_t nargs, int32_t level,
                   uint64_t serial) {
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) check_tensor(op, args[i].v.t, level, serial);
    if (args[i].tag != RB_TENSORS) continue;
    for (uint32_t j = 0; j < args[i].len; ++j) {
      if (args[i].v.ts[j]) check_tensor(op, args[i].v.ts[j], level, serial);
    }
  }
}

// While a transform handles a call, the thread is below its level: modes of the layers before
// differentiation have seen the call, and random numbers are drawn by the levels below only.
class Below {
 public:
  explicit Below(int32_t level) : exclude_(state_.exclude), depth_(state_.depth) {
    state_.exclude |= ~uint64_t{0} << (highest_key_bit(kDifferentiation) + 1);
    state_.depth = level - 1;
  }
  ~Below() {
    state_.exclude = exclude_;
    state_.depth = depth_;
  }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  ThreadState& state_ = thread_state();
  uint64_t exclude_;
  int32_t depth_;
};

// Takes over the references in `like` if it does not throw.
Tensor* make_wrapper(int32_t level, const RbWrap& like, int ndim, const int64_t* shape,
                     const int64_t* strides) {
  static_assert(sizeof(RbWrap) <= kInlineBytes);
  Tensor* t = tensor_share(like.inner, ndim, shape, strides, nullptr);
  t->ext = new (t->inline_data) RbWrap(like);
  t->level = level;
  t->flags |= RB_T_WRAPPER;
  t->keys[0] |= uint64_t{1} << kTransformSlot;
  return t;
}

// That a tensor of `level` may stand for `inner`.
void check_level(int32_t level, const RbTensor* inner) {
  if (__builtin_expect(level < 1 || static_cast<size_t>(level) > thread_state().levels.size(), 0))
    fail(RB_E_STATE, "tensor_wrap: level %d is not entered", level);
  if (__builtin_expect(inner->level >= level, 0)) {
    fail(RB_E_ARG, "tensor_wrap: a tensor of level %d cannot wrap one of level %d", level,
         inner->level);
  }
}

uint64_t serial_of(int32_t level) { return thread_state().levels[level - 1].serial; }

}  // namespace

int32_t run_transform(void*, const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                      int32_t nrets) {
  const Op& op = *impl(c->op);
  const TransformFrame* frame = nullptr;
  int32_t rc = guarded([&] {
    const std::vector<TransformFrame>& frames = thread_state().levels;
    if (c->level < 1 || static_cast<size_t>(c->level) > frames.size())
      fail_left(op.name.c_str(), c->level);
    frame = &frames[c->level - 1];
    check_serials(op, args, nargs, c->level, frame->serial);
  });
  if (rc != RB_OK) return rc;
  RbCall call = *c;
  call.frame = frame->frame;
  const Handler& exact = op.table[frame->layer];
  const RbLayer& desc = layer_entry(frame->layer).desc;
  {
    const Below below(c->level);
    rc = exact.fn ? exact.fn(exact.self, &call, args, nargs, rets, nrets)
                  : desc.fallback(desc.self, &call, args, nargs, rets, nrets);
  }
  if (rc != RB_OK) return rc;
  // A wrapper is a view of a wrapper where the operator makes views.
  if (!(c->flags & RB_CALL_OUT) && op.is_view_primitive() && nrets == 1 &&
      rets[0].tag == RB_TENSOR && args[0].tag == RB_TENSOR) {
    Tensor* result = impl(rets[0].v.t);
    if (result->level == c->level && result != args[0].v.t && !result->view &&
        args[0].v.t->level == c->level) {
      rc = guarded([&] { set_view_record(result, &op, args, nargs); });
    }
  }
  return rc;
}

int32_t transform_push(int32_t layer, void* frame, uint32_t flags) {
  if (layer < kBackendBits || layer >= kKeyBits || layer == kTransformSlot ||
      layer_entry(layer).bit != layer || !is_transform(layer_entry(layer).desc)) {
    fail(RB_E_ARG, "transform_push: the key %d is not that of a transform's layer", layer);
  }
  if (!layer_entry(layer).desc.fallback) {
    fail(RB_E_ARG, "transform_push: the layer '%s' has no fallback",
         layer_entry(layer).name.c_str());
  }
  ThreadState& state = thread_state();
  if (state.levels.size() == kMaxLevels)
    fail(RB_E_STATE, "transforms nest at most %d deep", static_cast<int>(kMaxLevels));
  // While a transform handles a call, new levels lie above those that the call is below of.
  const auto entered = static_cast<int32_t>(state.levels.size());
  state.levels.push_back({layer, flags, frame, next_serial.fetch_add(1), state.depth, state.floor});
  if (state.depth != entered) state.floor = entered;
  state.depth = entered + 1;
  return state.depth;
}

void transform_pop(int32_t level) {
  ThreadState& state = thread_state();
  if (static_cast<size_t>(state.depth) != state.levels.size())
    fail(RB_E_STATE, "transform_pop: not possible while a transform handles a call");
  if (level < 1 || static_cast<size_t>(level) != state.levels.size()) {
    fail(RB_E_STATE, "transform_pop: expected the last level, %d, got %d",
         static_cast<int>(state.levels.size()), level);
  }
  state.depth = state.levels.back().depth;
  state.floor = state.levels.back().floor;
  state.levels.pop_back();
}

int32_t transform_below(int32_t level, int32_t (*body)(void*), void* ctx) {
  if (level < 1 || static_cast<size_t>(level) > thread_state().levels.size())
    fail(RB_E_STATE, "transform_below: level %d is not entered", level);
  const Below below(level);
  return body(ctx);
}

Tensor* tensor_wrap(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits, int ndim,
                    const int64_t* shape, const int64_t* strides) {
  check_level(level, inner);
  if (second) check_level(level, second);
  const RbWrap wrap{sizeof(RbWrap), 0, inner, second, bits, serial_of(level)};
  Tensor* t = make_wrapper(level, wrap, ndim, shape, strides);
  retain(inner);
  if (second) retain(second);
  return t;
}

Tensor* tensor_wrap_along(int32_t level, TensorRef inner, int64_t dim) {
  check_level(level, inner.get());
  if (dim < 0 || dim >= inner->ndim)
    fail(RB_E_ARG, "tensor_wrap_along: dimension %lld of a tensor of %d dimensions",
         static_cast<long long>(dim), inner->ndim);
  int64_t shape[kMaxDims], strides[kMaxDims];
  int n = 0;
  for (int d = 0; d < inner->ndim; ++d) {
    if (d == dim) continue;
    shape[n] = inner->shape[d];
    strides[n++] = inner->strides[d];
  }
  const RbWrap wrap{sizeof(RbWrap), 0, inner.get(), nullptr, dim, serial_of(level)};
  Tensor* t = make_wrapper(level, wrap, n, shape, strides);
  inner.release_ownership();
  return t;
}

Tensor* tensor_alias(RbTensor* t) {
  if (t->flags & RB_T_COMPOSITE) return composite_alias(t);
  if (t->flags & RB_T_WRAPPER) {
    const RbWrap& wrap = wrap_of(t);
    Tensor* other = make_wrapper(t->level, wrap, t->ndim, t->shape, t->strides);
    retain(wrap.inner);
    if (wrap.second) retain(wrap.second);
    return other;
  }
  return tensor_share(t, t->ndim, t->shape, t->strides, t->data);
}

namespace {

// While a layer that is no transform gives values: below it, as its handlers run.
class BelowLayer {
 public:
  explicit BelowLayer(int bit) : exclude_(state_.exclude) { state_.exclude |= ~uint64_t{0} << bit; }
  ~BelowLayer() { state_.exclude = exclude_; }
  BelowLayer(const BelowLayer&) = delete;
  BelowLayer& operator=(const BelowLayer&) = delete;

 private:
  ThreadState& state_ = thread_state();
  uint64_t exclude_;
};

// Whether `t` lies in memory of a part, or is one.
bool is_of_parts(const RbTensor* t, const RbTensor* made_of_parts) {
  const Composition c = composition(made_of_parts);
  for (uint32_t i = 0; i < c.nparts; ++i) {
    const RbTensor* part = c.parts[i];
    if (!part) continue;
    if (t == part || (t->numel && same_memory(t, part))) return true;
    if (part->flags & RB_T_COMPOSITE && is_of_parts(t, part)) return true;
  }
  return false;
}

// What a data hook gave in place of the values of `t`; null: values.
const char* what_is_wrong(const LayerEntry& layer, const RbTensor* t, const RbTensor* real) {
  if (!real) return "nothing";
  if (real == t) return "the tensor itself";
  if (real->dtype_id != t->dtype_id || real->ndim != t->ndim ||
      !std::equal(t->shape, t->shape + t->ndim, real->shape))
    return "another shape or dtype";
  if (!(t->flags & RB_T_COMPOSITE)) return nullptr;
  if (real->flags & RB_T_COMPOSITE && body_of(real).layer == layer.bit)
    return "another composite of the layer";
  return is_of_parts(real, t) ? "a part, or a tensor that shares memory with a part," : nullptr;
}

TensorRef real_values(const LayerEntry& layer, void* frame, RbTensor* t, const char* what) {
  RbTensor* made = nullptr;
  check(layer.real(layer.real_self, frame, t, what, &made));
  const TensorRef real(made);
  if (const char* wrong = what_is_wrong(layer, t, real.get())) {
    fail(RB_E_PLUGIN,
         "%s: the data hook of the layer '%s' [%s] gave %s where the values of a tensor of %d "
         "dimensions and %lld elements of %s are needed",
         what, layer.name.c_str(), layer.provider.c_str(), wrong, t->ndim,
         static_cast<long long>(t->numel), kDTypes[t->dtype_id].name);
  }
  return real;
}

TensorRef wrapper_values(RbTensor* t, const char* what) {
  const TransformFrame* frame = live_frame(t->level, wrap_of(t).serial);
  if (!frame) fail_left(what, t->level);
  const LayerEntry& layer = layer_entry(frame->layer);
  const Below below(t->level);
  if (layer.real) return real_values(layer, frame->frame, t, what);
  if (!(frame->flags & RB_X_READABLE)) {
    fail(RB_E_STATE,
         "%s: not possible inside '%s': the tensor stands for many values there, of which none is "
         "the one; compute with the tensor itself, for example with where() instead of a branch",
         what, layer.name.c_str());
  }
  if (layer.desc.refresh) check(layer.desc.refresh(frame->frame, t));
  return TensorRef::share(wrap_of(t).inner);
}

TensorRef composite_values(RbTensor* t, const char* what) {
  const LayerEntry& layer = layer_entry(body_of(t).layer);
  if (!layer.real) {
    fail(RB_E_STATE,
         "%s: the tensor is a composite of the layer '%s' [%s]: it has no memory of its own, and "
         "the layer has no data hook that would give its values",
         what, layer.name.c_str(), layer.provider.c_str());
  }
  check_current(t, what);
  const BelowLayer below(layer.bit);
  return real_values(layer, nullptr, t, what);
}

}  // namespace

void check_current(const RbTensor* t, const char* what) {
  if (__builtin_expect(!is_outdated(t), 1)) return;
  fail(RB_E_STATE,
       "%s: a composite tensor of the layer '%s' is a view or an alias of one whose parts were "
       "replaced since (by an operator that writes in place): take the view again",
       what, layer_entry(body_of(t).layer).name.c_str());
}

TensorRef readable(const RbTensor* t, const char* what) {
  TensorRef at = TensorRef::share(const_cast<RbTensor*>(t));
  uint64_t seen = 0;  // the layers of the composites so far
  while (is_made_of_parts(at.get())) {
    if (at->flags & RB_T_COMPOSITE) {
      const LayerEntry& layer = layer_entry(body_of(at.get()).layer);
      if (seen >> layer.bit & 1) {
        fail(RB_E_PLUGIN,
             "%s: the data hooks of the layer '%s' [%s] and others give composites of one another, "
             "and none gives the values",
             what, layer.name.c_str(), layer.provider.c_str());
      }
      seen |= uint64_t{1} << layer.bit;
    }
    at = at->flags & RB_T_WRAPPER ? wrapper_values(at.get(), what)
                                  : composite_values(at.get(), what);
  }
  make_ready(at.get(), what);
  return at;
}

Composition composition(const RbTensor* t) {
  if (!is_made_of_parts(t)) fail(RB_E_TYPE, "the tensor has memory of its own: it is no composite");
  Composition c{-1,      t->backend, t->device.id, t->dtype_id, t->ndim, t->shape, t->strides,
                nullptr, 0,          nullptr,      0,           nullptr, t->layout};
  if (t->flags & RB_T_COMPOSITE) {
    const Body& body = body_of(t);
    c.layer = body.layer;
    c.parts = body.parts();
    c.nparts = body.nparts;
    c.blob = body.blob();
    c.nbytes = body.nbytes;
    return c;
  }
  const RbWrap& wrap = wrap_of(t);
  static_assert(offsetof(RbWrap, second) == offsetof(RbWrap, inner) + sizeof(RbTensor*) &&
                offsetof(RbWrap, serial) == offsetof(RbWrap, bits) + sizeof(int64_t));
  if (const TransformFrame* frame = live_frame(t->level, wrap.serial)) c.layer = frame->layer;
  c.parts = &wrap.inner;
  c.nparts = wrap.second ? 2 : 1;
  c.blob = &wrap.bits;
  c.nbytes = sizeof wrap.bits + sizeof wrap.serial;
  return c;
}

bool draws(const Op& op) {
  if (op.info.kind == RB_KIND_RANDOM) return true;
  if (op.info.kind != RB_KIND_COMPOSITE && op.info.kind != RB_KIND_CREATION) return false;
  if (op.rules[kDecompRule].fn || decomp_function(op)) return false;  // what it calls is asked
  static thread_local std::unordered_map<const Op*, bool> known;
  const auto [at, is_new] = known.emplace(&op, false);
  if (!is_new) return at->second;
  bool found = false;
  for (const Callee& c : compiled(op).callees) found = found || draws(*c.op);
  return known[&op] = found;
}

bool concerns_transform(const Op& op, int32_t* level) {
  const ThreadState& state = thread_state();
  if (state.exclude >> kTransformSlot & 1) return false;
  const uint32_t wanted = RB_X_EVERY | (draws(op) ? +RB_X_RANDOM : 0u);
  for (int32_t i = state.depth; i > *level && i > state.floor; --i) {
    if (state.levels[i - 1].flags & wanted) {
      *level = i;
      return true;
    }
  }
  return false;
}

}  // namespace rabbet

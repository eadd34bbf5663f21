#include "call/dispatch.h"

#include <cstring>

#include "call/call_event.h"
#include "call/check_call.h"
#include "call/composite_call.h"
#include "call/core_functions.h"
#include "call/plan.h"
#include "call/run_backend.h"
#include "call/uniform.h"
#include "device/backends.h"
#include "device/streams.h"
#include "formula/formula.h"
#include "layer/layers.h"
#include "layer/transforms.h"
#include "rules/checks.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/host_table.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

constexpr int kMaxArgs = RB_MAX_ARGS;

// Calls without a tensor argument, and creation with `device=`, go where that argument says.
int device_argument(const Op& op, const RbValue* args, int32_t nargs, int32_t* index) {
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_DEVICE && op.params[i].type == RB_A_DEVICE) {
      *index = args[i].v.dev.index;
      return args[i].v.dev.backend;
    }
  }
  return -1;
}

// Hand the call to the layer of the highest key; `keys` are those that the operator stops at.
[[gnu::always_inline]] inline int32_t run_layer_here(CallPlan& c, uint64_t keys,
                                                     const RbValue* args, int32_t nargs,
                                                     RbValue* rets, int32_t nrets) {
  const int bit = 63 - __builtin_clzll(keys);
  const Handler& exact = impl(c.op)->table[bit];
  RbFn fn = exact.fn;
  void* self = exact.self;
  if (!fn) {
    static const LayerEntry* const entries = &layer_entry(0);  // spares the calls
    const RbLayer& layer = entries[bit].desc;
    fn = layer.fallback;
    self = layer.self;
  }
  if (__builtin_expect(!fn, 0)) {
    return redispatch(&c, bit, args, nargs, rets, nrets);
  }
  ThreadState& state = thread_state();
  if (__builtin_expect(state.included_once != 0, 0)) {
    state.include &= ~state.included_once;
    state.included_once = 0;
  }
  const CallPlan* const outer = state.plan;
  state.plan = &c;
  const int32_t rc = __builtin_expect(c.keys[0] >> kCompositeSlot & 1, 0)
                         ? run_composite_handler(c, bit, fn, self, args, nargs, rets, nrets)
                         : fn(self, &c, args, nargs, rets, nrets);
  state.plan = outer;
  return rc;
}
[[gnu::noinline]] int32_t run_layer(CallPlan& c, uint64_t keys, const RbValue* args, int32_t nargs,
                                    RbValue* rets, int32_t nrets) {
  return run_layer_here(c, keys, args, nargs, rets, nrets);
}

// Run the topmost handler among the keys of the call.
template <bool kFromTop>
[[gnu::always_inline]] inline int32_t run_top(CallPlan& c, const RbValue* args, int32_t nargs,
                                              RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c.op);
  const uint64_t keys = c.keys[0] & op.mask;
  if (__builtin_expect(keys > kBackendMask, 0)) {
    return kFromTop ? run_layer_here(c, keys, args, nargs, rets, nrets)
                    : run_layer(c, keys, args, nargs, rets, nrets);
  }
  if (__builtin_expect(c.level != 0, 0)) {
    return set_error(RB_E_INTERNAL,
                     op.name + ": a transform passed a tensor of its level on to the backend");
  }
  if (is_answered_alone(c, op, keys)) return run_uniform(c, op, args, nargs, rets);
  return run_backend(c, args, nargs, rets, nrets);
}

// The device of a call that its tensors do not give, or that has an argument for it: where neither
// says it, that of the destination.
[[gnu::noinline]] int32_t find_device(const Op& op, const RbValue* args, int32_t nargs,
                                      const RbValue* rets, CallPlan& c) {
  return guarded([&] {
    int32_t index = 0;
    int backend = device_argument(op, args, nargs, &index);
    if (backend < 0 && !(c.keys[0] & kBackendMask)) {
      const RbTensor* target = c.flags & RB_CALL_OUT ? rets[0].v.t : nullptr;
      backend = target ? target->backend : default_backend();
      if (target) index = target->device.id;
    }
    if (backend >= 0) {
      c.keys[0] = (c.keys[0] & ~kBackendMask) | 1ull << backend;
      c.device_index = index;
    }
  });
}

[[gnu::always_inline]] inline int32_t call_unseen(const Op* op, const RbValue* args, int32_t nargs,
                                                  RbValue* rets, int32_t nrets, uint32_t flags) {
  const ArgumentFacts facts = facts_of(args, nargs);
  const ThreadState& state = thread_state();
  CallPlan c;
  c.struct_size = sizeof(RbCall);
  c.flags = flags;
  c.host = &kHost;
  c.op = handle(op);
  c.stream = nullptr;
  c.keys[0] = (facts.keys | state.include) & ~state.exclude;
  c.keys[1] = 0;
  c.device_index = facts.device;
  c.level = facts.level;
  c.frame = nullptr;
  c.planned_args = args;
  c.uniform = facts.uniform;
  if (__builtin_expect(state.depth > facts.level, 0) && concerns_transform(*op, &c.level))
    c.keys[0] |= uint64_t{1} << kTransformSlot;
  if (__builtin_expect(!(c.keys[0] & kBackendMask) || op->info.kind == RB_KIND_CREATION, 0)) {
    if (const int32_t rc = find_device(*op, args, nargs, rets, c)) return rc;
  }
  if (__builtin_expect(state.has_streams, 0))
    c.stream = find_stream(state, __builtin_ctzll(c.keys[0]), c.device_index);
  return run_top<true>(c, args, nargs, rets, nrets);
}

[[gnu::noinline]] int32_t call_seen(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets,
                                    int32_t nrets, uint32_t flags) {
  CallEvent event(*op, args, nargs, rets, nrets, flags);
  return event.status = call_unseen(op, args, nargs, rets, nrets, flags);
}

inline int32_t call_wrapped(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets,
                            int32_t nrets, uint32_t flags) {
  if (__builtin_expect(watched_kinds.load(std::memory_order_relaxed) != 0, 0))
    return call_seen(op, args, nargs, rets, nrets, flags);
  return call_unseen(op, args, nargs, rets, nrets, flags);
}

// The same call with other dims, which are counted from the end.
[[gnu::noinline]] int32_t call_with_dims(const Op* op, const RbValue* args, int32_t nargs,
                                         RbValue* rets, int32_t nrets, uint32_t flags) {
  if (nargs > kMaxArgs) return set_error(RB_E_ARG, op->name + ": too many arguments");
  RbValue wrapped[kMaxArgs];
  std::memcpy(wrapped, args, nargs * sizeof(RbValue));
  DimScratch scratch;
  const int32_t rc = guarded([&] { wrap_dims(*op, wrapped, nargs, scratch); });
  if (rc != RB_OK) return rc;
  return call_wrapped(op, wrapped, nargs, rets, nrets, flags);
}

// A call that leaves out the last arguments: layers and kernels see them all.
[[gnu::noinline]] int32_t call_with_defaults(const Op* op, const RbValue* args, int32_t nargs,
                                             RbValue* rets, int32_t nrets, uint32_t flags) {
  RbValue all[kMaxArgs];
  std::copy(args, args + nargs, all);
  for (int32_t i = nargs; i < op->info.nargs; ++i) {
    const Param& param = op->params[i];
    if (!param.has_default) return missing_argument(*op, i);
    all[i] = param.default_value;
  }
  return call(op, all, op->info.nargs, rets, nrets, flags);
}

bool is_empty_list(const RbValue& v) { return v.tag == RB_INTS && v.len == 0; }

// The cases below stand apart from `call`, which is small without them.
[[gnu::noinline]] int32_t call_decomposed(const Op* op, const RbValue* args, int32_t nargs,
                                          RbValue* rets, int32_t nrets, uint32_t flags) {
  return guarded([&] {
    RbCall c{};
    c.op = handle(op);
    c.flags = flags;
    decompose(&c, args, nargs, rets, nrets);
  });
}

// Whether an argument is there that `check_values` looks at.
inline bool gives_values(const Op& op, const RbValue* args, int32_t nargs) {
  for (uint64_t rest = op.fit_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i < nargs && is_number(args[i])) return true;
  }
  return op.choice_args || op.reduces_listed;
}

[[gnu::noinline]] int32_t check_values(const Op& op, const RbValue* args, int32_t nargs) {
  return guarded([&] {
    check_choices(op, args, nargs);
    check_fits(op, args, nargs);
  });
}

bool gives_complex(const Op& op, const RbValue* args, int32_t nargs) {
  for (uint64_t rest = op.fit_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i < nargs && args[i].tag == RB_COMPLEX) return true;
  }
  return false;
}

// Replaces complex numbers by their real parts where the result is not complex: `check_fits` lets
// through only those without an imaginary part.
void take_real_parts(const Op& op, RbValue* args, int32_t nargs) {
  const int dtype = result_dtype(op, 0, args, nargs);
  if (dtype < 0 || is_complex(dtype)) return;
  for (uint64_t rest = op.fit_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i < nargs && args[i].tag == RB_COMPLEX) args[i] = value_float(args[i].v.fs[0]);
  }
}

// Whether the dims that are given need no wrapping: single ones in the range of the first tensor.
inline bool dims_are_wrapped(const Op& op, const RbValue* args, int32_t nargs) {
  for (uint64_t rest = op.dim_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs || args[i].tag == RB_NONE) continue;
    if (args[i].tag != RB_INT || op.first_tensor < 0 || args[op.first_tensor].tag != RB_TENSOR ||
        static_cast<uint64_t>(args[i].v.i) >=
            static_cast<uint64_t>(args[op.first_tensor].v.t->ndim))
      return false;
  }
  return true;
}

inline int32_t call_checked(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets,
                            int32_t nrets, uint32_t flags) {
  if (op->dim_args && !dims_are_wrapped(*op, args, nargs))
    return call_with_dims(op, args, nargs, rets, nrets, flags);
  return call_wrapped(op, args, nargs, rets, nrets, flags);
}

[[gnu::noinline]] int32_t call_with_real_parts(const Op* op, const RbValue* args, int32_t nargs,
                                               RbValue* rets, int32_t nrets, uint32_t flags) {
  if (nargs > kMaxArgs) return set_error(RB_E_ARG, op->name + ": too many arguments");
  RbValue real[kMaxArgs];
  std::memcpy(real, args, nargs * sizeof(RbValue));
  if (const int32_t rc = guarded([&] { take_real_parts(*op, real, nargs); })) return rc;
  return call_checked(op, real, nargs, rets, nrets, flags);
}

}  // namespace

DestinationLayers::DestinationLayers(const RbValue* rets, int32_t nrets)
    : include_(thread_state().include), included_once_(thread_state().included_once) {
  uint64_t keys = 0;
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag == RB_TENSOR && rets[i].v.t) keys |= keys_of(rets[i].v.t);
  }
  keys &= ~(kBackendMask | uint64_t{1} << kTransformSlot | uint64_t{1} << kCompositeSlot);
  ThreadState& state = thread_state();
  state.included_once = keys & ~state.include;
  state.include |= keys;
}

DestinationLayers::~DestinationLayers() {
  ThreadState& state = thread_state();
  state.include = include_;
  state.included_once = included_once_;
}

int32_t call(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
             uint32_t flags) {
  if (__builtin_expect(nargs < op->info.nargs, 0))
    return call_with_defaults(op, args, nargs, rets, nrets, flags);
  if (__builtin_expect(op->itself_if_real, 0) && !(flags & RB_CALL_OUT) &&
      args[0].tag == RB_TENSOR && !is_complex(args[0].v.t->dtype_id)) {
    retain(args[0].v.t);
    rets[0] = args[0];
    return RB_OK;
  }
  if (__builtin_expect(op->checks_values, 0) && gives_values(*op, args, nargs)) {
    if (op->reduces_listed && is_empty_list(args[op->dim_arg]))
      return call_decomposed(op, args, nargs, rets, nrets, flags);
    if (const int32_t rc = check_values(*op, args, nargs)) return rc;
    if (__builtin_expect(gives_complex(*op, args, nargs), 0))
      return call_with_real_parts(op, args, nargs, rets, nrets, flags);
  }
  return call_checked(op, args, nargs, rets, nrets, flags);
}

namespace {
// For a copy of the call that the layer has made, or for values of the layer's own.
[[gnu::noinline]] int32_t redispatch_copy(const RbCall* c, int layer, const RbValue* args,
                                          int32_t nargs, RbValue* rets, int32_t nrets) {
  CallPlan below;
  static_cast<RbCall&>(below) = *c;
  below.planned_args = args;
  below.uniform = facts_of(args, nargs).uniform;
  below.keys[0] &= (1ull << layer) - 1;
  return run_top<false>(below, args, nargs, rets, nrets);
}
}  // namespace

int32_t redispatch(const RbCall* c, int layer, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t nrets) {
  const CallPlan* const plan = thread_state().plan;
  if (__builtin_expect(plan != c || plan->planned_args != args, 0))
    return redispatch_copy(c, layer, args, nargs, rets, nrets);
  // The plan lies in a frame of this thread: the layers below use it without a copy.
  CallPlan& below = const_cast<CallPlan&>(*plan);
  const uint64_t keys = below.keys[0];
  below.keys[0] = keys & ((1ull << layer) - 1);
  const int32_t rc = run_top<false>(below, args, nargs, rets, nrets);
  below.keys[0] = keys;
  return rc;
}

int32_t redispatch_new(const RbCall* c, int layer, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets) {
  const ArgumentFacts facts = facts_of(args, nargs);
  const ThreadState& state = thread_state();
  CallPlan below;
  static_cast<RbCall&>(below) = *c;
  below.keys[0] = ((facts.keys | state.include) & ~state.exclude) & ((1ull << layer) - 1);
  if (!(below.keys[0] & kBackendMask)) below.keys[0] |= c->keys[0] & kBackendMask;
  below.level = facts.level;
  below.planned_args = args;
  below.uniform = facts.uniform;
  return run_top<false>(below, args, nargs, rets, nrets);
}

}  // namespace rabbet

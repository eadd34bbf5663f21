#include "call/dispatch.h"

#include <cstring>

#include "call/call_event.h"
#include "call/check_call.h"
#include "call/core_functions.h"
#include "call/run_backend.h"
#include "device/backends.h"
#include "device/streams.h"
#include "formula/formula.h"
#include "layer/layers.h"
#include "layer/transforms.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "thread/host_table.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

constexpr int kMaxArgs = 32;

struct Keys {
  uint64_t keys = 0;
  int32_t level = 0, device = 0;
};

inline void add_keys(Keys& k, const RbTensor* t) {
  if (!k.keys) k.device = t->device.id;
  k.keys |= keys_of(t);
  if (t->level > k.level) k.level = t->level;
}

inline Keys keys_of(const RbValue* args, int32_t nargs) {
  Keys k;
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) {
      add_keys(k, args[i].v.t);
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t j = 0; j < args[i].len; ++j) {
        if (args[i].v.ts[j]) add_keys(k, args[i].v.ts[j]);
      }
    }
  }
  return k;
}

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

// Run the topmost handler among the keys of `c`.
inline int32_t run_top(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                       int32_t nrets) {
  const Op* op = impl(c->op);
  const uint64_t keys = c->keys[0] & op->mask;
  if (__builtin_expect(keys > kBackendMask, 0)) {
    const int bit = 63 - __builtin_clzll(keys);
    const Handler& exact = op->table[bit];
    if (exact.fn) return exact.fn(exact.self, c, args, nargs, rets, nrets);
    const LayerEntry& layer = layer_entry(bit);
    if (layer.desc.fallback)
      return layer.desc.fallback(layer.desc.self, c, args, nargs, rets, nrets);
    RbCall below = *c;
    below.keys[0] &= (1ull << bit) - 1;
    return run_top(&below, args, nargs, rets, nrets);
  }
  if (__builtin_expect(c->level != 0, 0)) {
    return set_error(RB_E_INTERNAL,
                     op->name + ": a transform passed a tensor of its level on to the backend");
  }
  return run_backend(c, args, nargs, rets, nrets);
}

[[gnu::always_inline]] inline int32_t call_unseen(const Op* op, const RbValue* args, int32_t nargs,
                                                  RbValue* rets, int32_t nrets, uint32_t flags) {
  const Keys k = keys_of(args, nargs);
  const ThreadState& state = thread_state();
  RbCall c;
  c.struct_size = sizeof(RbCall);
  c.flags = flags;
  c.host = &kHost;
  c.op = handle(op);
  c.stream = nullptr;
  c.keys[0] = (k.keys | state.include) & ~state.exclude;
  c.keys[1] = 0;
  c.device_index = k.device;
  c.level = k.level;
  c.frame = nullptr;
  if (__builtin_expect(state.depth > k.level, 0) && concerns_transform(*op, &c.level))
    c.keys[0] |= uint64_t{1} << kTransformSlot;
  if (__builtin_expect(!(c.keys[0] & kBackendMask) || op->info.kind == RB_KIND_CREATION, 0)) {
    const int32_t rc = guarded([&] {
      int32_t index = 0;
      int backend = device_argument(*op, args, nargs, &index);
      if (backend < 0 && !(c.keys[0] & kBackendMask)) backend = default_backend();
      if (backend >= 0) {
        c.keys[0] = (c.keys[0] & ~kBackendMask) | 1ull << backend;
        c.device_index = index;
      }
    });
    if (rc != RB_OK) return rc;
  }
  if (__builtin_expect(state.has_streams, 0))
    c.stream = find_stream(state, __builtin_ctzll(c.keys[0]), c.device_index);
  return run_top(&c, args, nargs, rets, nrets);
}

[[gnu::noinline]] int32_t call_seen(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets,
                                    int32_t nrets, uint32_t flags) {
  CallEvent event(*op, args, nargs);
  return event.status = call_unseen(op, args, nargs, rets, nrets, flags);
}

inline int32_t call_wrapped(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets,
                            int32_t nrets, uint32_t flags) {
  if (__builtin_expect(read_kinds.load(std::memory_order_relaxed) != 0, 0))
    return call_seen(op, args, nargs, rets, nrets, flags);
  return call_unseen(op, args, nargs, rets, nrets, flags);
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

}  // namespace

int32_t call(const Op* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
             uint32_t flags) {
  if (__builtin_expect(nargs < op->info.nargs, 0))
    return call_with_defaults(op, args, nargs, rets, nrets, flags);
  bool has_dims = false;  // that are given
  for (uint64_t rest = op->dim_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    has_dims = has_dims || (i < nargs && args[i].tag != RB_NONE);
  }
  if (has_dims) {
    if (nargs > kMaxArgs) return set_error(RB_E_ARG, op->name + ": too many arguments");
    RbValue wrapped[kMaxArgs];
    std::memcpy(wrapped, args, nargs * sizeof(RbValue));
    DimScratch scratch;
    const int32_t rc = guarded([&] { wrap_dims(*op, wrapped, nargs, scratch); });
    if (rc != RB_OK) return rc;
    return call_wrapped(op, wrapped, nargs, rets, nrets, flags);
  }
  return call_wrapped(op, args, nargs, rets, nrets, flags);
}

int32_t redispatch(const RbCall* c, int layer, const RbValue* args, int32_t nargs, RbValue* rets,
                   int32_t nrets) {
  RbCall below = *c;
  below.keys[0] &= (1ull << layer) - 1;
  return run_top(&below, args, nargs, rets, nrets);
}

int32_t redispatch_new(const RbCall* c, int layer, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets) {
  const Keys k = keys_of(args, nargs);
  const ThreadState& state = thread_state();
  RbCall below = *c;
  below.keys[0] = ((k.keys | state.include) & ~state.exclude) & ((1ull << layer) - 1);
  if (!(below.keys[0] & kBackendMask)) below.keys[0] |= c->keys[0] & kBackendMask;
  below.level = k.level;
  return run_top(&below, args, nargs, rets, nrets);
}

}  // namespace rabbet

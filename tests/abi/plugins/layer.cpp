// Two layers: `old-generations` notes in a slot of every result how many calls made it, and reads
// what operators say of their arguments; `old-twice` is a transform whose tensors stand for
// doubled values.
#include <atomic>
#include <vector>

#include "rabbet/plugin.hpp"

#ifndef RB_ABI_NEEDED
#define RB_ABI_NEEDED RB_ABI_MINOR
#endif

namespace {

int32_t layer, twice, slot;
uint32_t slot_offset;
std::atomic<int> seen{0}, alive{0}, named{0};

struct Generation {
  int count;
};
void drop(void* p) {
  delete static_cast<Generation*>(p);
  --alive;
}
int generation(const RbTensor* t) {
  const void* p = *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(t) + slot_offset);
  return p ? static_cast<const Generation*>(p)->count : 0;
}

int32_t run(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
            int32_t nrets) {
  ++seen;
  const RbOpInfo* info = rb::host->op_info(call->op);
  int oldest = 0;
  for (int32_t i = 0; i < nargs; ++i) {
    const RbArgInfo& arg = *RB_ARG(info, i);
    if (arg.name && *arg.name && arg.type >= RB_A_TENSOR && arg.type <= RB_A_FLOATS) ++named;
    if (args[i].tag == RB_TENSOR && generation(args[i].v.t) > oldest)
      oldest = generation(args[i].v.t);
  }
  const int32_t rc = rb::host->redispatch(call, layer, args, nargs, rets, nrets);
  if (rc != RB_OK || (call->flags & RB_CALL_OUT)) return rc;
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR || generation(rets[i].v.t)) continue;
    rb::host->slot_set(rets[i].v.t, slot, new Generation{oldest + 1}, 1);
    ++alive;
  }
  return RB_OK;
}

// Takes apart the wrappers of its level, calls, and doubles what comes.
int32_t run_twice(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets) {
  return rb::guarded([&] {
    std::vector<RbValue> inner(args, args + nargs);
    for (RbValue& v : inner) {
      if (v.tag == RB_TENSOR && v.v.t->level == call->level)
        v.v.t = static_cast<const RbWrap*>(v.v.t->ext)->inner;
    }
    rb::check(rb::host->call(call->op, inner.data(), nargs, rets, nrets, call->flags));
    static const RbOp* const add = rb::host->find_op("add");
    for (int32_t i = 0; i < nrets; ++i) {
      const RbValue both[2] = {rets[i], rets[i]};
      RbValue sum{};
      rb::check(rb::host->call(add, both, 2, &sum, 1, 0));
      rb::host->value_release(&rets[i]);
      rets[i] = sum;
    }
  });
}

int32_t add_layer(const RbHost* host, RbTxn* txn, const char* name, uint32_t phase, RbFn fn,
                  int32_t* id) {
  RbLayer l{};
  l.struct_size = RB_SIZE(RbLayer, self);
  l.name = name;
  l.phase = phase;
  l.on_missing = RB_L_FALLBACK;
  l.fallback = fn;
  return host->add_layer(txn, &l, id);
}
int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  if (const int32_t rc = add_layer(host, txn, "old-generations", 150, run, &layer)) return rc;
  if (const int32_t rc = add_layer(host, txn, "old-twice", 450, run_twice, &twice)) return rc;
  return host->slot_new("generation", layer, drop, &slot, &slot_offset);
}

const RbPlugin kPlugin = {RB_SIZE(RbPlugin, retire),
                          RB_ABI_MAJOR,
                          RB_ABI_MINOR,
                          RB_ABI_NEEDED,
                          0,
                          0,
                          "old-layer",
                          "1.0",
                          init,
                          nullptr};

}  // namespace

extern "C" {
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &kPlugin; }
RB_EXPORT void watch(int32_t on) { rb::host->layer_mode(layer, on, -1); }
RB_EXPORT int32_t calls_seen(void) { return seen; }
RB_EXPORT int32_t arguments_named(void) { return named; }
RB_EXPORT int32_t notes_alive(void) { return alive; }
// Of full calls on a tensor of ones; 0 where something fails.
RB_EXPORT double sum_twice(void) {
  double result = 0;
  rb::guarded([&] {
    const int64_t n = 3;
    RbValue sizes{}, ones{}, sum{};
    sizes.tag = RB_INTS;
    sizes.len = 1;
    sizes.v.is = &n;
    rb::check(rb::host->call(rb::host->find_op("ones"), &sizes, 1, &ones, 1, 0));
    int32_t level;
    rb::check(rb::host->transform_push(twice, nullptr, 0, &level));
    RbTensor* wrapped;
    const RbTensor* t = ones.v.t;
    rb::check(rb::host->tensor_wrap(level, ones.v.t, nullptr, 0, t->ndim, t->shape, t->strides,
                                    &wrapped));
    RbValue arg{};
    arg.tag = RB_TENSOR;
    arg.v.t = wrapped;
    rb::check(rb::host->call(rb::host->find_op("sum"), &arg, 1, &sum, 1, 0));
    rb::host->release(wrapped);
    rb::check(rb::host->transform_pop(level));
    result = *static_cast<const float*>(sum.v.t->data);
    rb::host->value_release(&sum);
    rb::host->value_release(&ones);
  });
  return result;
}
}

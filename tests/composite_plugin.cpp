// The layer `parts`: composites that stand for the sum of two tensors. It has kernels for `add` and
// `unsqueeze` and, unlike the layer `parts_all`, no fallback. `parts_stub` makes stubs.
#include <cstring>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace {

const RbComposites* composites;
const RbTrace* trace;
int32_t parts_layer, all_layer, stub_layer, level_layer;
int32_t hook_calls, fallback_calls;
bool give_itself;

RbComposite get(const RbTensor* t) {
  RbComposite c{};
  c.struct_size = sizeof c;
  rb::check(composites->get(t, &c));
  return c;
}
bool is_of(const RbTensor* t, int32_t layer) {
  return t->flags & RB_T_COMPOSITE && get(t).layer == layer;
}
rb::Ref call(const char* op, const RbValue* args, int32_t n) {
  rb::Ref out;
  rb::check(rb::call1(rb::host->find_op(op), args, n, out));
  return out;
}
rb::Ref sum_of(const RbTensor* t) {
  const RbComposite c = get(t);
  const RbValue args[] = {rb::tensor_value(c.parts[0]), rb::tensor_value(c.parts[1]),
                          rb::int_value(1)};
  return call("add", args, rb::host->op_info(rb::host->find_op("add"))->nargs);
}

// add(composite, x): x goes into the first part, whose layer stays.
void add(const rb::Args& a) {
  const RbComposite c = get(&a.tensor(0));
  std::vector<RbValue> args(a.args, a.args + a.nargs);
  args[0] = rb::tensor_value(c.parts[0]);
  const rb::Ref first = call("add", args.data(), a.nargs);
  if (a.call->flags & RB_CALL_OUT) rb::fail(RB_E_NOTIMPL, "add: parts are not added in place");
  RbTensor* const made[] = {first.get(), c.parts[1]};
  RbComposite out = c;
  out.parts = made;
  out.base = nullptr;
  RbTensor* t = nullptr;
  rb::check(composites->compose(&out, &t));
  a.set_ret(0, t);
}

void all(const rb::Args& a) {
  ++fallback_calls;
  std::vector<RbValue> values(a.args, a.args + a.nargs);
  std::vector<rb::Ref> hold;
  for (RbValue& v : values) {
    if (v.tag != RB_TENSOR || !is_of(v.v.t, all_layer)) continue;
    hold.push_back(sum_of(v.v.t));
    v.v.t = hold.back().get();
  }
  rb::check(rb::host->call(a.call->op, values.data(), a.nargs, a.rets, a.nrets, a.call->flags));
}

// Every call gives stubs of what `infer` says.
void stubs(const rb::Args& a) {
  ++fallback_calls;
  int32_t backend = 0, device = 0;
  std::vector<RbValue> seen(a.nrets);
  rb::check(trace->infer(a.call->op, a.args, a.nargs, seen.data(), a.nrets, &backend, &device));
  for (int i = 0; i < a.nrets; ++i) {
    const rb::Ref shown(seen[i].v.t);
    RbTensor* t = nullptr;
    rb::check(trace->stub(stub_layer, backend, device, shown->dtype_id, shown->ndim, shown->shape,
                          shown->strides, &t));
    a.set_ret(i, t);
  }
}

int32_t values_of(void*, void* frame, RbTensor* t, const char* what, RbTensor** out) {
  return rb::guarded([&] {
    ++hook_calls;
    if (frame || !what) rb::fail(RB_E_INTERNAL, "no frame, and a reason, were expected");
    if (give_itself) {
      rb::host->retain(t);
      *out = t;
      return;
    }
    *out = sum_of(t).take();
  });
}

// The transform `parts_level`: calls on what its wrappers stand for; read, they are ten times that.
void unwrapped(const rb::Args& a) {
  std::vector<RbValue> values(a.args, a.args + a.nargs);
  for (RbValue& v : values) {
    if (v.tag == RB_TENSOR && v.v.t->level == a.call->level) v.v.t = get(v.v.t).parts[0];
  }
  rb::check(rb::host->call(a.call->op, values.data(), a.nargs, a.rets, a.nrets, a.call->flags));
}
int32_t tenfold(void* self, void* frame, RbTensor* t, const char*, RbTensor** out) {
  return rb::guarded([&] {
    if (self != &level_layer || frame != &level_layer)
      rb::fail(RB_E_INTERNAL, "another self or frame than was given");
    const RbValue args[] = {rb::tensor_value(get(t).parts[0]), rb::int_value(10)};
    *out = call("mul", args, 2).take();
  });
}

int32_t load(void*, const RbComposite* saved, RbTensor** out) {
  return rb::guarded([&] {
    if (saved->nparts != 2 || saved->nbytes != 4)
      rb::fail(RB_E_ARG, "parts: expected 2 parts and 4 bytes, got %u and %llu", saved->nparts,
               static_cast<unsigned long long>(saved->nbytes));
    rb::check(composites->compose(saved, out));
  });
}

int32_t add_layer(RbTxn* txn, const char* name, RbFn fallback, int32_t* id, uint32_t phase = 650) {
  RbLayer l{};
  l.struct_size = RB_SIZE(RbLayer, self);
  l.name = name;
  l.phase = phase;
  l.fallback = fallback;
  return rb::host->add_layer(txn, &l, id);
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  composites = static_cast<const RbComposites*>(host->get_ext(RB_COMPOSITE_EXT, 1));
  trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, 1));
  if (!composites || !trace || host->get_ext(RB_COMPOSITE_EXT, 2))
    return host->err_set(RB_E_PLUGIN, "the tables are not of version 1");
  const RbCompositeLayer own{sizeof own, 0, nullptr, nullptr, load, nullptr};
  const RbCompositeLayer plain{
      RB_SIZE(RbCompositeLayer, self), 0, "all", nullptr, nullptr, nullptr};
  static const rb::KernelSpec kernels[] = {{"add", rb::wrap<add>}};
  int32_t rc = add_layer(txn, "parts", nullptr, &parts_layer);
  if (!rc) rc = add_layer(txn, "parts_all", rb::wrap<all>, &all_layer);
  if (!rc) rc = add_layer(txn, "parts_stub", rb::wrap<stubs>, &stub_layer);
  if (!rc) rc = add_layer(txn, "parts_level", rb::wrap<unwrapped>, &level_layer, 460);
  if (!rc) rc = trace->data_hook(level_layer, tenfold, &level_layer);
  if (!rc) rc = composites->describe(parts_layer, &own);
  if (!rc) rc = composites->describe(all_layer, &plain);
  if (!rc) rc = trace->data_hook(all_layer, values_of, nullptr);
  return rc ? rc : rb::add_kernels(host, txn, "parts", kernels);
}

}  // namespace

extern "C" {
RB_EXPORT const RbPlugin* rabbet_plugin_v0() {
  static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire),
                                  RB_ABI_MAJOR,
                                  RB_ABI_MINOR,
                                  RB_ABI_NEEDED,
                                  0,
                                  0,
                                  "parts",
                                  "1.0",
                                  init,
                                  nullptr};
  return &plugin;
}
RB_EXPORT const RbComposites* composite_table() { return composites; }
RB_EXPORT const RbTrace* trace_table() { return trace; }
RB_EXPORT const RbHost* host_table() { return rb::host; }
RB_EXPORT int32_t layer_id(int32_t which) {
  return which == 0 ? parts_layer : which == 1 ? all_layer : stub_layer;
}
RB_EXPORT int32_t count_of(int32_t which) { return which ? fallback_calls : hook_calls; }
RB_EXPORT void set_give_itself(int32_t on) { give_itself = on; }
// A composite of two tensors; `base` may be null.
RB_EXPORT int32_t make(int32_t layer, RbTensor* a, RbTensor* b, RbTensor* base, RbTensor** out) {
  RbTensor* const list[] = {a, b};
  RbComposite c{};
  c.struct_size = sizeof c;
  c.layer = layer;
  c.backend = a->backend;
  c.device = a->device.id;
  c.dtype = a->dtype_id;
  c.ndim = a->ndim;
  c.shape = a->shape;
  c.nparts = 2;
  c.parts = list;
  c.blob = "sum";
  c.nbytes = 4;
  c.base = base;
  return composites->compose(&c, out);
}
RB_EXPORT int32_t level_enter(int32_t* level) {
  return rb::host->transform_push(level_layer, &level_layer, 0, level);
}
RB_EXPORT int32_t level_leave(int32_t level) { return rb::host->transform_pop(level); }
RB_EXPORT int32_t level_wrap(int32_t level, RbTensor* t, RbTensor** out) {
  return rb::host->tensor_wrap(level, t, nullptr, 0, t->ndim, t->shape, t->strides, out);
}
// Whether `get` says of a wrapper what it is made of.
RB_EXPORT int32_t level_told(const RbTensor* wrapper, const RbTensor* inner) {
  RbComposite c{};
  c.struct_size = sizeof c;
  return composites->get(wrapper, &c) == RB_OK && c.layer == level_layer && c.nparts == 1 &&
         c.parts[0] == inner && c.nbytes == 16;
}
// Every call of the thread comes to the layer of stubs.
RB_EXPORT void trace_all(int32_t on) { rb::host->layer_mode(stub_layer, on, -1); }
RB_EXPORT int32_t make_stub(const RbTensor* like, RbTensor** out) {
  return trace->stub(stub_layer, like->backend, like->device.id, like->dtype_id, like->ndim,
                     like->shape, nullptr, out);
}
}

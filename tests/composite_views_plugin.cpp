// Layers whose composites hold their values in part 0: `boxed` answers by its fallback, `boxed_few`
// has kernels for some operators and no fallback. `set_answer` says what view operators return, and
// `set_fault` what is wrong with other results.
#include <cstring>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace {

const RbComposites* composites;
int32_t boxed, few, hooked;
enum Answer { kShared, kBase, kCopy, kMixed, kPlainShared, kPlainCopy, kItself };
int32_t answer = kShared;
enum Fault { kNone, kNothing, kDtype, kShape, kDevice, kReplaced, kArgument, kUncounted, kSilent };
int32_t fault = kNone;
enum Values { kRight, kPart, kViewOfPart, kOwn, kOther };
int32_t hook_gives = kRight, load_gives = kRight;
int32_t calls = 0;

RbComposite get(const RbTensor* t) {
  RbComposite c{};
  c.struct_size = sizeof c;
  rb::check(composites->get(t, &c));
  return c;
}
bool is_box(const RbTensor* t) {
  if (!t || !(t->flags & RB_T_COMPOSITE)) return false;
  const int32_t layer = get(t).layer;
  return layer == boxed || layer == few;
}
rb::Ref call(const char* op, std::initializer_list<RbValue> args) {
  rb::Ref out;
  rb::check(rb::call1(rb::host->find_op(op), args.begin(), static_cast<int32_t>(args.size()), out));
  return out;
}
rb::Ref clone(RbTensor* t) { return call("clone", {rb::tensor_value(t)}); }
rb::Ref compose(int32_t layer, RbTensor* value, RbTensor* second, RbTensor* base) {
  RbTensor* const parts[] = {value, second};
  RbComposite c{};
  c.struct_size = sizeof c;
  c.layer = layer;
  c.backend = value->backend;
  c.device = value->device.id;
  c.dtype = value->dtype_id;
  c.ndim = value->ndim;
  c.shape = value->shape;
  c.strides = value->strides;
  c.nparts = second ? 2 : 1;
  c.parts = parts;
  c.base = base;
  rb::Ref out;
  rb::check(composites->compose(&c, out.out()));
  return out;
}

rb::Ref wrong(RbTensor* made) {
  const int64_t shape[] = {7};
  RbTensor* t = nullptr;
  if (fault == kDtype) {
    rb::check(rb::host->tensor_new(made->backend, 0, RB_I8, made->ndim, made->shape, nullptr, &t));
  } else if (fault == kShape) {
    rb::check(rb::host->tensor_new(made->backend, 0, made->dtype_id, 1, shape, nullptr, &t));
  } else {
    const int32_t meta = 0;
    rb::check(rb::host->tensor_new(meta, 0, made->dtype_id, made->ndim, made->shape, nullptr, &t));
  }
  return rb::Ref(t);
}

rb::Ref boxed_result(int32_t layer, RbTensor* made, bool is_view, RbTensor* base) {
  if (!is_view) return compose(layer, made, nullptr, nullptr);
  switch (answer) {
    case kBase:
      return compose(layer, made, nullptr, base);
    case kCopy:
      return compose(layer, clone(made).get(), nullptr, nullptr);
    case kMixed:
      return compose(layer, made, clone(made).get(), nullptr);
    case kPlainShared:
      return rb::Ref::share(made);
    case kPlainCopy:
      return clone(made);
    case kItself:
      return rb::Ref::share(base);
    default:
      return compose(layer, made, nullptr, nullptr);
  }
}

void handle(const rb::Args& a) {
  ++calls;
  if (fault == kSilent) throw rb::Stored{RB_E_STATE};
  const RbOpInfo* info = rb::host->op_info(a.call->op);
  const bool writes = a.call->flags & RB_CALL_OUT, is_view = info->flags & RB_OP_VIEW;
  int32_t layer = boxed;
  std::vector<RbValue> values(a.args, a.args + a.nargs), rets(a.nrets);
  std::vector<std::vector<RbTensor*>> lists(a.nargs);
  const auto inner = [&](RbTensor* t) {
    if (!is_box(t)) return t;
    layer = get(t).layer;
    return get(t).parts[0];
  };
  for (int32_t i = 0; i < a.nargs; ++i) {
    if (values[i].tag == RB_TENSOR) values[i].v.t = inner(values[i].v.t);
    if (values[i].tag != RB_TENSORS) continue;
    for (uint32_t k = 0; k < values[i].len; ++k) lists[i].push_back(inner(values[i].v.ts[k]));
    values[i].v.ts = lists[i].data();
  }
  for (int32_t i = 0; writes && i < a.nrets; ++i) rets[i] = rb::tensor_value(inner(a.rets[i].v.t));
  if (fault == kReplaced && writes) {
    a.rets[0] = rb::tensor_value(clone(rets[0].v.t).take());
    return;
  }
  if (fault == kUncounted && writes) {
    std::memset(rets[0].v.t->data, 0, rets[0].v.t->numel * sizeof(float));
    return;
  }
  rb::check(
      rb::host->call(a.call->op, values.data(), a.nargs, rets.data(), a.nrets, a.call->flags));
  if (writes) return;
  RbTensor* const base = a.args[0].tag == RB_TENSOR ? a.args[0].v.t : nullptr;
  for (int32_t i = 0; i < a.nrets; ++i) {
    if (rets[i].tag == RB_TENSORS) {
      RbTensor** made = nullptr;
      rb::check(rb::host->tensors_new(rets[i].len, &made));
      for (uint32_t k = 0; k < rets[i].len; ++k)
        made[k] = boxed_result(layer, rets[i].v.ts[k], is_view, base).take();
      a.rets[i] = rets[i];
      a.rets[i].v.ts = made;
      rb::host->value_release(&rets[i]);
      continue;
    }
    const rb::Ref made(rets[i].v.t);
    if (fault == kNothing) continue;
    if (fault == kArgument) {
      rb::host->retain(base);
      a.rets[i] = rb::tensor_value(base);
      continue;
    }
    const bool is_wrong = fault == kDtype || fault == kShape || fault == kDevice;
    rb::Ref given = is_wrong ? compose(layer, wrong(made.get()).get(), nullptr, nullptr)
                             : boxed_result(layer, made.get(), is_view, base);
    a.rets[i] = rb::tensor_value(given.take());
  }
}

int32_t values_of(void*, void*, RbTensor* t, const char*, RbTensor** out) {
  return rb::guarded([&] {
    RbTensor* part = get(t).parts[0];
    switch (hook_gives) {
      case kPart:
        *out = rb::Ref::share(part).take();
        break;
      case kViewOfPart:
        *out = call("view", {rb::tensor_value(part), rb::ints_value(t->shape, t->ndim)}).take();
        break;
      case kOwn:
        *out = compose(get(t).layer, clone(part).get(), nullptr, nullptr).take();
        break;
      case kOther:
        *out = compose(get(t).layer == boxed ? hooked : boxed, part, nullptr, nullptr).take();
        break;
      default:
        *out = clone(part).take();
    }
  });
}

int32_t load(void*, const RbComposite* saved, RbTensor** out) {
  return rb::guarded([&] {
    if (load_gives == kPart) {
      *out = rb::Ref::share(saved->parts[0]).take();
      return;
    }
    RbComposite other = *saved;
    const int64_t shape[] = {1, 1};
    if (load_gives == kOwn) other.ndim = 2, other.shape = shape;
    if (load_gives == kOther) other.dtype = RB_I8;
    rb::check(composites->compose(&other, out));
  });
}

int32_t add_layer(RbTxn* txn, const char* name, RbFn fallback, int32_t* id) {
  RbLayer l{};
  l.struct_size = RB_SIZE(RbLayer, self);
  l.name = name;
  l.phase = 650;
  l.fallback = fallback;
  int32_t rc = rb::host->add_layer(txn, &l, id);
  const RbCompositeLayer own{sizeof own, 0, nullptr, nullptr, load, nullptr};
  if (!rc) rc = composites->describe(*id, &own);
  const auto* trace = static_cast<const RbTrace*>(rb::host->get_ext(RB_TRACE_EXT, 1));
  return rc ? rc : trace->data_hook(*id, values_of, nullptr);
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  composites = static_cast<const RbComposites*>(host->get_ext(RB_COMPOSITE_EXT, 1));
  int32_t rc = add_layer(txn, "boxed", rb::wrap<handle>, &boxed);
  if (!rc) rc = add_layer(txn, "boxed_few", nullptr, &few);
  if (!rc) rc = add_layer(txn, "boxed_hook", nullptr, &hooked);
  static const rb::KernelSpec kernels[] = {{"select", rb::wrap<handle>},
                                           {"slice", rb::wrap<handle>},
                                           {"view", rb::wrap<handle>},
                                           {"expand", rb::wrap<handle>},
                                           {"permute", rb::wrap<handle>},
                                           {"transpose", rb::wrap<handle>},
                                           {"mul", rb::wrap<handle>},
                                           {"add", rb::wrap<handle>},
                                           {"sum", rb::wrap<handle>},
                                           {"t", rb::wrap<handle>},
                                           {"unsqueeze", rb::wrap<handle>},
                                           {"squeeze", rb::wrap<handle>},
                                           {"fill", rb::wrap<handle>},
                                           {"diagonal", rb::wrap<handle>},
                                           {"strided_view", rb::wrap<handle>},
                                           {"slice_scatter", rb::wrap<handle>},
                                           {"diagonal_scatter", rb::wrap<handle>},
                                           {"sum_to", rb::wrap<handle>},
                                           {"clone", rb::wrap<handle>},
                                           {"restrided", rb::wrap<handle>},
                                           {"unbind", rb::wrap<handle>},
                                           {"copy", rb::wrap<handle>},
                                           {"narrow", rb::wrap<handle>}};
  return rc ? rc : rb::add_kernels(host, txn, "boxed_few", kernels);
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
                                  "boxed",
                                  "1.0",
                                  init,
                                  nullptr};
  return &plugin;
}
RB_EXPORT int32_t layer_id(int32_t which) { return which == 0 ? boxed : which == 1 ? few : hooked; }
RB_EXPORT int32_t count_calls() { return calls; }
RB_EXPORT void set_answer(int32_t to) { answer = to; }
RB_EXPORT void set_fault(int32_t to) { fault = to; }
RB_EXPORT void set_hook(int32_t to) { hook_gives = to; }
RB_EXPORT void set_load(int32_t to) { load_gives = to; }
// A composite that shows a shape and a layout; what it shows has nothing to do with its part.
RB_EXPORT int32_t make_shown(RbTensor* part, int32_t ndim, const int64_t* shape, int32_t layout,
                             RbTensor** out) {
  RbTensor* const parts[] = {part};
  RbComposite c{};
  c.struct_size = sizeof c;
  c.layer = hooked;
  c.backend = part->backend;
  c.dtype = part->dtype_id;
  c.ndim = ndim;
  c.shape = shape;
  c.nparts = 1;
  c.parts = parts;
  c.layout = layout;
  return composites->compose(&c, out);
}
RB_EXPORT int32_t replace(RbTensor* t, RbTensor* part, RbTensor* second) {
  return rb::guarded([&] {
    RbTensor* const parts[] = {part, second};
    RbComposite c = get(t);
    c.parts = parts;
    c.nparts = second ? 2 : 1;
    rb::check(composites->replace(t, &c));
  });
}
// A composite of the layer; `second` and `base` may be null.
RB_EXPORT int32_t make(int32_t layer, RbTensor* a, RbTensor* second, RbTensor* base,
                       RbTensor** out) {
  return rb::guarded([&] { *out = compose(layer, a, second, base).take(); });
}
}

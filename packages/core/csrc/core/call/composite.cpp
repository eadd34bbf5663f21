#include "call/composite.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/kernel_arguments.h"
#include "call/plan.h"
#include "call/run_backend.h"
#include "device/backends.h"
#include "layer/transforms.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

bool is_composite_of(const RbTensor* t, int layer) {
  return t && t->flags & RB_T_COMPOSITE && body_of(t).layer == layer;
}

template <class Visit>
void each_tensor(const RbValue* args, int32_t nargs, const Visit& visit) {
  for (int32_t i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) visit(args[i].v.t);
    for (uint32_t j = 0; args[i].tag == RB_TENSORS && j < args[i].len; ++j) {
      if (args[i].v.ts[j]) visit(args[i].v.ts[j]);
    }
  }
}

// ---- what every composite can do, part by part

// `c`, of the same layer and blob, with other parts.
Tensor* with_parts(Composition c, const std::vector<TensorRef>& parts) {
  std::vector<RbTensor*> list;
  for (const TensorRef& part : parts) list.push_back(part.get());
  c.parts = list.data();
  return tensor_compose(c);
}

struct Request {
  const RbCall* call;
  const Op& op;
  const RbValue* args;
  int32_t nargs;
  RbValue* rets;
};

std::vector<TensorRef> call_on_parts(const Request& r, const Body& body) {
  std::vector<TensorRef> made;
  for (uint32_t i = 0; i < body.nparts; ++i) {
    if (!body.parts()[i]) {
      made.emplace_back();
      continue;
    }
    std::vector<RbValue> args(r.args, r.args + r.nargs);
    args[0] = value_tensor(body.parts()[i]);
    made.push_back(call1(&r.op, args.data(), r.nargs));
  }
  return made;
}

// A copy, or the same values elsewhere.
bool copy_parts(const Request& r) {
  const RbTensor* t = r.args[0].v.t;
  Composition c = composition(t);
  for (int32_t i = 1; i < r.nargs; ++i) {
    if (r.args[i].tag != RB_DEVICE) continue;
    c.backend = r.args[i].v.dev.backend;
    c.device = r.args[i].v.dev.index;
  }
  r.rets[0] = value_tensor(with_parts(c, call_on_parts(r, body_of(t))));
  return true;
}

// The same values under the same version counter.
bool share_parts(const Request& r) {
  const RbTensor* t = r.args[0].v.t;
  Composition c = composition(t);
  c.base = t;
  r.rets[0] = value_tensor(with_parts(c, call_on_parts(r, body_of(t))));
  return true;
}

bool fits_part(const RbTensor* to, const RbTensor* from) {
  if (!to || !from) return to == from;
  return to->dtype_id == from->dtype_id && to->ndim == from->ndim &&
         std::equal(to->shape, to->shape + to->ndim, from->shape);
}

// Another composite of the same kind is written to one.
bool write_parts(const Request& r) {
  RbTensor* to = r.args[0].v.t;
  const RbTensor* from = r.args[1].tag == RB_TENSOR ? r.args[1].v.t : nullptr;
  const int layer = body_of(to).layer;
  if (!(r.call->flags & RB_CALL_OUT) || r.rets[0].v.t != to || !is_composite_of(from, layer))
    return false;
  const Body &target = body_of(to), &source = body_of(from);
  if (target.nparts != source.nparts || target.nbytes != source.nbytes ||
      std::memcmp(target.blob(), source.blob(), target.nbytes) || !fits_part(to, from))
    return false;
  for (uint32_t i = 0; i < target.nparts; ++i) {
    if (!fits_part(target.parts()[i], source.parts()[i])) return false;
  }
  for (uint32_t i = 0; i < target.nparts; ++i) {
    if (!target.parts()[i]) continue;
    const RbValue args[2] = {value_tensor(target.parts()[i]), value_tensor(source.parts()[i])};
    RbValue ret = args[0];
    check(call(&r.op, args, 2, &ret, 1, RB_CALL_OUT));
  }
  bump_version(to);
  return true;
}

// Options speak of the whole: a memory format, say, orders dimensions that the parts need not have.
bool has_options(const Op& op, const RbValue* args, int32_t nargs) {
  for (int32_t i = 1; i < nargs; ++i) {
    const RbValue& usual = op.params[i].default_value;
    const bool as_usual =
        args[i].tag == usual.tag && (usual.tag == RB_NONE || args[i].v.i == usual.v.i);
    if (op.params[i].has_default && !as_usual) return true;
  }
  return false;
}

// What the record says of parts, where the first argument is a composite of the layer.
PartsRule rule_for(const Op& op, const RbValue* args, int32_t nargs, int layer) {
  if (nargs < 1 || args[0].tag != RB_TENSOR || !is_composite_of(args[0].v.t, layer) ||
      !body_of(args[0].v.t).nparts || has_options(op, args, nargs))
    return PartsRule::kNone;
  return op.parts_rule;
}

// False: the rule does not fit this call.
bool run_rule(PartsRule rule, const Request& r) {
  if (rule != PartsRule::kWrite && r.call->flags & RB_CALL_OUT) return false;
  switch (rule) {
    case PartsRule::kCopy:
      return copy_parts(r);
    case PartsRule::kShare:
      return share_parts(r);
    case PartsRule::kWrite:
      return write_parts(r);
    case PartsRule::kNone:
      break;
  }
  return false;
}

// Creation reads shape, dtype and device of its arguments, no values.
bool create_like(const Request& r, int layer) {
  int32_t like = -1, device = -1;
  for (int32_t i = 0; i < r.nargs; ++i) {
    if (r.args[i].tag == RB_TENSOR && is_composite_of(r.args[i].v.t, layer)) like = i;
    if (r.op.params[i].type == RB_A_DEVICE) device = i;
  }
  if (r.op.info.kind != RB_KIND_CREATION || r.call->flags & RB_CALL_OUT || like < 0 || device < 0)
    return false;
  const RbTensor* t = r.args[like].v.t;
  const TensorRef shown(tensor_new(kMeta, 0, t->dtype_id, t->ndim, t->shape, t->strides));
  std::vector<RbValue> args(r.args, r.args + r.nargs);
  args[like] = value_tensor(shown.get());
  if (args[device].tag == RB_NONE) {
    args[device].tag = RB_DEVICE;
    args[device].v.dev = {t->backend, t->device.id};
  }
  check(call(&r.op, args.data(), r.nargs, r.rets, 1));
  return true;
}

[[noreturn]] void fail_no_handler(const Op& op, const LayerEntry& layer) {
  fail(RB_E_NOTIMPL,
       "%s: the layer '%s' [%s] of a composite tensor has no kernel for this operator; add one "
       "(RbHost.add_kernel with op \"%s\" and backend \"%s\"), give the layer a fallback, or "
       "convert the tensor first",
       op.name.c_str(), layer.name.c_str(), layer.provider.c_str(), op.name.c_str(),
       layer.name.c_str());
}

// What stands in front of the fallback of a layer that has composites.
int32_t run_composite(void* self, const RbCall* c, const RbValue* args, int32_t nargs,
                      RbValue* rets, int32_t nrets) {
  const LayerEntry& layer = *static_cast<const LayerEntry*>(self);
  const Op& op = *impl(c->op);
  bool done = false;
  const int32_t rc = guarded([&] {
    const Request request{c, op, args, nargs, rets};
    done =
        run_rule(rule_for(op, args, nargs, layer.bit), request) || create_like(request, layer.bit);
  });
  if (rc != RB_OK || done) return rc;
  if (layer.own_fallback) {
    const WithoutDifferentiation below(layer.bit);
    return layer.own_fallback(layer.own_self, c, args, nargs, rets, nrets);
  }
  bool concerned = false;
  each_tensor(args, nargs, [&](RbTensor* t) { concerned |= is_composite_of(t, layer.bit); });
  if (!concerned) return redispatch(c, layer.bit, args, nargs, rets, nrets);
  return guarded([&] {
    if (!op.has_decomp()) fail_no_handler(op, layer);
    decompose(c, args, nargs, rets, nrets);
  });
}

}  // namespace

void fail_part_requires_grad(const char* what, const LayerEntry& layer, uint32_t i) {
  fail(RB_E_STATE,
       "%s: part %u of a composite tensor of the layer '%s' [%s] requires grad, but gradients do "
       "not reach the parts of a composite: detach() the part, and let the composite require grad",
       what, i, layer.name.c_str(), layer.provider.c_str());
}

void describe_composites(int bit, const RbCompositeLayer& what) {
  LayerEntry& layer = own_layer_entry(bit);
  if (layer.desc.flags & RB_L_VIEWS) {
    fail(RB_E_ARG,
         "describe: the layer '%s' was added with RB_L_VIEWS: core does not know its parts",
         layer.name.c_str());
  }
  if (bit == kTransformSlot || is_transform(layer.desc)) {
    fail(RB_E_ARG, "describe: '%s' is a transform: its tensors are wrappers (tensor_wrap)",
         layer.name.c_str());
  }
  if (layer.has_composites)
    fail(RB_E_STATE, "describe: the layer '%s' has described its composites", layer.name.c_str());
  const std::string name = what.name && *what.name ? what.name : layer.name;
  if (const LayerEntry* other = find_composites(name)) {
    fail(RB_E_PLUGIN, "describe: the layer '%s' of %s has composites named '%s' already",
         other->name.c_str(), other->provider.c_str(), name.c_str());
  }
  layer.composites = what;
  layer.composite_name = name;
  layer.has_composites = true;
  layer.own_fallback = layer.desc.fallback;
  layer.own_self = layer.desc.self;
  layer.desc.fallback = run_composite;
  layer.desc.self = &layer;
}

namespace {
// A composition whose parts have no history: aliases of those that have one, where nothing is
// recorded; else they are refused.
class WithoutGrad {
 public:
  WithoutGrad(const char* function, const LayerEntry& layer, const Composition& given)
      : what(given) {
    const uint64_t watching = differentiation_above(layer.bit);
    for (uint32_t i = 0; i < given.nparts; ++i) {
      RbTensor* part = given.parts[i];
      const uint64_t watched = part ? keys_of(part) & watching : 0;
      if (__builtin_expect(!watched, 1)) continue;
      if (watched & ~thread_state().exclude) fail_part_requires_grad(function, layer, i);
      if (parts_.empty()) parts_.assign(given.parts, given.parts + given.nparts);
      aliases_.emplace_back(tensor_alias(part));
      parts_[i] = aliases_.back().get();
    }
    if (!parts_.empty()) what.parts = parts_.data();
  }

  Composition what;

 private:
  std::vector<RbTensor*> parts_;
  std::vector<TensorRef> aliases_;
};
}  // namespace

Tensor* compose(const Composition& what) {
  const LayerEntry& layer = layer_entry(what.layer);
  if (what.nparts && !layer.has_composites && !layer.real) {
    fail(RB_E_STATE,
         "compose: the layer '%s' has not described its composites; call `describe` first",
         layer.name.c_str());
  }
  return tensor_compose(WithoutGrad("compose", layer, what).what);
}

namespace {
bool contains(const RbTensor* part, const RbTensor* t) {
  if (part == t) return true;
  if (!is_made_of_parts(part)) return false;
  const Composition c = composition(part);
  return std::any_of(c.parts, c.parts + c.nparts,
                     [&](const RbTensor* inner) { return inner && contains(inner, t); });
}
}  // namespace

void replace_parts(Tensor* t, const Composition& with) {
  const LayerEntry& layer = layer_entry(with.layer);
  check_current(t, "replace");
  const bool same = t->backend == with.backend && t->device.id == with.device &&
                    t->dtype_id == with.dtype && t->layout == with.layout && t->ndim == with.ndim &&
                    std::equal(t->shape, t->shape + t->ndim, with.shape);
  if (!same) {
    fail(RB_E_ARG,
         "replace: a composite of shape %s and dtype %s on %s keeps them, and its layout; got "
         "shape %s, dtype %s, %s and layout %d",
         shape_text(t->ndim, t->shape).c_str(), kDTypes[t->dtype_id].name,
         device_text(t->backend, t->device.id).c_str(), shape_text(with.ndim, with.shape).c_str(),
         kDTypes[with.dtype].name, device_text(with.backend, with.device).c_str(), with.layout);
  }
  if (t->flags & RB_T_READONLY) fail(RB_E_STATE, "replace: the composite is read-only");
  if (t->storage->del) {
    fail(RB_E_STATE,
         "replace: the composite has the storage of a plain tensor (its `base`), which would not "
         "change");
  }
  if (!with.nparts || !body_of(t).nparts) fail(RB_E_ARG, "replace: a stub has no parts");
  for (uint32_t i = 0; i < with.nparts; ++i) {
    if (with.parts[i] && contains(with.parts[i], t))
      fail(RB_E_ARG, "replace: part %u contains the composite", i);
  }
  replace_body(t, WithoutGrad("replace", layer, with).what);
}

Tensor* load_composite(const Composition& saved) {
  const LayerEntry& layer = layer_entry(saved.layer);
  if (!layer.composites.load) return compose(saved);
  RbComposite given{};
  given.struct_size = sizeof given;
  given.layer = saved.layer;
  given.backend = saved.backend;
  given.device = saved.device;
  given.dtype = saved.dtype;
  given.ndim = saved.ndim;
  given.nparts = saved.nparts;
  given.shape = saved.shape;
  given.parts = saved.parts;
  given.blob = saved.blob;
  given.nbytes = saved.nbytes;
  given.layout = saved.layout;
  RbTensor* made = nullptr;
  check(layer.composites.load(layer.composites.self, &given, &made));
  TensorRef loaded(made);
  if (!made) fail(RB_E_PLUGIN, "load: the layer '%s' returned no tensor", layer.name.c_str());
  const bool fits = is_composite_of(made, saved.layer) && made->dtype_id == saved.dtype &&
                    made->backend == saved.backend && made->device.id == saved.device &&
                    made->ndim == saved.ndim &&
                    std::equal(made->shape, made->shape + made->ndim, saved.shape);
  if (!fits) {
    fail(RB_E_PLUGIN,
         "load: the layer '%s' [%s] returned %s of shape %s and dtype %s on %s; a composite of the "
         "layer of shape %s and dtype %s on %s is due",
         layer.name.c_str(), layer.provider.c_str(),
         is_composite_of(made, saved.layer) ? "a composite" : "another kind of tensor",
         shape_text(made->ndim, made->shape).c_str(), kDTypes[made->dtype_id].name,
         device_text(made->backend, made->device.id).c_str(),
         shape_text(saved.ndim, saved.shape).c_str(), kDTypes[saved.dtype].name,
         device_text(saved.backend, saved.device).c_str());
  }
  return loaded.release_ownership();
}

const LayerEntry* find_composites(const std::string& name) {
  for (const LayerEntry* layer : layers_in_order()) {
    if (layer->has_composites && layer->composite_name == name) return layer;
  }
  return nullptr;
}

std::string composite_text(const RbTensor* t) {
  const LayerEntry& layer = layer_entry(body_of(t).layer);
  if (!layer.composites.text) return "";
  char text[1024] = "";
  check(layer.composites.text(layer.composites.self, t, text, sizeof text));
  text[sizeof text - 1] = 0;
  return text;
}

std::string composite_way(const LayerEntry& layer, const Op& op, const RbValue* args,
                          int32_t nargs) {
  if (rule_for(op, args, nargs, layer.bit) != PartsRule::kNone) return "core does it part by part";
  if (layer.own_fallback) return "the layer's fallback";
  return op.has_decomp() ? "the operator's decomposition" : "nothing: the call raises";
}

void set_data_hook(int bit, RbRealFn fn, void* self) {
  LayerEntry& layer = own_layer_entry(bit);
  layer.real = fn;
  layer.real_self = self;
}

int32_t refuse_composite(void*, const RbCall* c, const RbValue* args, int32_t nargs, RbValue*,
                         int32_t) {
  return guarded([&] {
    const RbTensor* found = nullptr;
    each_tensor(args, nargs, [&](RbTensor* t) {
      if (!found && t->flags & RB_T_COMPOSITE) found = t;
    });
    if (!found)
      fail(RB_E_INTERNAL, "%s: no composite among its arguments", impl(c->op)->name.c_str());
    fail_no_handler(*impl(c->op), layer_entry(body_of(found).layer));
  });
}

}  // namespace rabbet

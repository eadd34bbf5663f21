// The table behind rabbet/composite.h, and the checks of what plugins hand to it.
#include <string>

#include "boundary/host_checks.h"
#include "boundary/plugin.h"
#include "call/composite.h"
#include "layer/transforms.h"
#include "thread/error.h"

namespace rabbet {

namespace {

constexpr uint32_t kMaxParts = 1 << 16;
constexpr uint64_t kMaxBlob = uint64_t{1} << 30;

int32_t table_describe(int32_t layer, const RbCompositeLayer* what) {
  return guarded([&] {
    need(what, "describe: the description");
    constexpr uint32_t kLeast = RB_SIZE(RbCompositeLayer, self);
    if (what->struct_size < kLeast) fail_short("describe", what->struct_size, kLeast);
    check_owner("describe", layer);
    describe_composites(layer, whole(*what));
  });
}

// The description of a composite, whose pointers are borrowed.
Composition checked(const char* function, const RbComposite& given) {
  const auto name = [&](const char* what) { return std::string(function) + ": " + what; };
  constexpr uint32_t kLeast = RB_SIZE(RbComposite, nbytes);
  if (given.struct_size < kLeast) fail_short(function, given.struct_size, kLeast);
  const RbComposite c = whole(given);
  check_owner(function, c.layer);
  check_shown(function, c.backend, c.device, c.dtype, c.ndim, c.shape, c.strides);
  if (c.nparts) need(c.parts, name("the list of parts").c_str());
  if (c.nbytes) need(c.blob, name("the blob").c_str());
  if (c.nparts > kMaxParts || c.nbytes > kMaxBlob) {
    fail(RB_E_ARG, "%s: at most %u parts and a blob of %llu bytes, got %u and %llu", function,
         kMaxParts, static_cast<unsigned long long>(kMaxBlob), c.nparts,
         static_cast<unsigned long long>(c.nbytes));
  }
  if (c.layout < RB_STRIDED || c.layout > RB_JAGGED)
    fail(RB_E_ARG, "%s: %d is not a layout", function, c.layout);
  return {c.layer, c.backend, c.device, c.dtype,  c.ndim, c.shape, c.strides,
          c.parts, c.nparts,  c.blob,   c.nbytes, c.base, c.layout};
}

int32_t table_compose(const RbComposite* what, RbTensor** out) {
  return guarded([&] {
    need(out, "compose: where the tensor goes");
    need(what, "compose: the description");
    *out = compose(checked("compose", *what));
  });
}

int32_t table_replace(RbTensor* t, const RbComposite* with) {
  return guarded([&] {
    need(t, "replace: the tensor");
    need(with, "replace: the description");
    const Composition c = checked("replace", *with);
    if (!(t->flags & RB_T_COMPOSITE) || body_of(t).layer != c.layer) {
      fail(RB_E_TYPE, "replace: the tensor is no composite of the layer '%s'",
           layer_entry(c.layer).name.c_str());
    }
    replace_parts(impl(t), c);
  });
}

int32_t table_get(const RbTensor* t, RbComposite* out) {
  return guarded([&] {
    need(t, "get: the tensor");
    need(out, "get: where the description goes");
    const Composition c = composition(t);
    RbComposite full{};
    full.layer = c.layer;
    full.backend = c.backend;
    full.device = c.device;
    full.dtype = c.dtype;
    full.ndim = c.ndim;
    full.nparts = c.nparts;
    full.shape = c.shape;
    full.strides = c.strides;
    full.parts = c.parts;
    full.blob = c.blob;
    full.nbytes = c.nbytes;
    full.layout = c.layout;
    if (t->flags & RB_T_VIEW) full.base = impl(t)->view->parent;
    fill_struct("get", full, out, RB_SIZE(RbComposite, layer));
  });
}

const RbComposites kTable = {sizeof(RbComposites), 0,         table_describe,
                             table_compose,        table_get, table_replace};
[[maybe_unused]] const bool is_published =
    (publish(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION, &kTable), true);

}  // namespace
}  // namespace rabbet

#include "level.h"

#include "../common/levels.h"
#include "functionalize.h"

namespace functional {

namespace {

int32_t layer = 0;
RbFunctionalize table;

int32_t push(int32_t copies, int32_t* level) {
  return Levels<Frame>::push(layer, Frame{copies != 0}, RB_X_READABLE | RB_X_EVERY, level);
}

// What the level itself does is not part of the function.
template <class Body>
int32_t below(int32_t level, const Body& body) {
  struct Run {
    const Body* body;
    int32_t level;
  } run{&body, level};
  return rb::host->transform_below(
      level,
      [](void* ctx) {
        const Run& r = *static_cast<Run*>(ctx);
        return rb::guarded([&] { (*r.body)(Levels<Frame>::at(r.level, "functionalize")); });
      },
      &run);
}

int32_t wrap(int32_t level, RbTensor* t, RbTensor** out) {
  return below(level, [&](Frame& f) {
    if (t->level >= level)
      rb::fail(RB_E_ARG, "functionalize: a tensor of level %d cannot enter level %d", t->level,
               level);
    *out = Ref::share(adopt(f, t)).take();
  });
}

int32_t unwrap(int32_t level, RbTensor* t, RbTensor** value) {
  return below(level, [&](Frame& f) {
    if (t->level > level) {
      rb::fail(RB_E_STATE,
               "functionalize: a result belongs to a transform (level %d) that the thread has left",
               t->level);
    }
    RbTensor* there = f.mine(t) ? t : known(f, t);
    *value = Ref::share(there ? current(f, there) : t).take();
  });
}

int32_t visit_written(int32_t level, void (*visit)(void*, RbTensor*, RbTensor*), void* ctx) {
  return below(level, [&](Frame& f) {
    for (const Origin& o : f.origins) {
      if (cell_of(o.wrapper.get()).writes) visit(ctx, o.tensor.get(), current(f, o.wrapper.get()));
    }
  });
}

}  // namespace

int32_t add_level(const RbHost* host, RbTxn* txn, const RbLayer& desc) {
  if (int32_t rc = host->add_layer(txn, &desc, &layer)) return rc;
  table = RbFunctionalize{
      sizeof(RbFunctionalize), layer, push, Levels<Frame>::pop, wrap, unwrap, visit_written};
  return host->publish(RB_FUNCTIONALIZE_EXT, RB_FUNCTIONALIZE_VERSION, &table);
}

}  // namespace functional

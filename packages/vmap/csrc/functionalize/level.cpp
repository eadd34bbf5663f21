#include "level.h"

#include <algorithm>

#include "functionalize.h"

namespace functional {

namespace {

int32_t layer = 0;
RbFunctionalize table;

std::vector<std::unique_ptr<Frame>>& frames() {
  static thread_local std::vector<std::unique_ptr<Frame>> all;
  return all;
}
Frame& frame_of(int32_t level) {
  for (const auto& frame : frames()) {
    if (frame->level == level) return *frame;
  }
  rb::fail(RB_E_STATE, "functionalize: the thread is not inside level %d", level);
}

int32_t push(int32_t copies, int32_t* level) {
  return rb::guarded([&] {
    auto frame = std::make_unique<Frame>();
    frame->copies = copies != 0;
    rb::check(rb::host->transform_push(layer, frame.get(), RB_X_READABLE | RB_X_EVERY, level));
    frame->level = *level;
    frames().push_back(std::move(frame));
  });
}

int32_t pop(int32_t level) {
  const int32_t rc = rb::host->transform_pop(level);
  if (rc != RB_OK) return rc;
  auto& all = frames();
  all.erase(
      std::remove_if(all.begin(), all.end(), [&](const auto& f) { return f->level == level; }),
      all.end());
  return RB_OK;
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
        return rb::guarded([&] { (*r.body)(frame_of(r.level)); });
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
  table = RbFunctionalize{sizeof(RbFunctionalize), layer, push, pop, wrap, unwrap, visit_written};
  return host->publish(RB_FUNCTIONALIZE_EXT, RB_FUNCTIONALIZE_VERSION, &table);
}

}  // namespace functional

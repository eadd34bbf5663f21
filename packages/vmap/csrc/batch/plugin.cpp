// The layer, the steps common to all rules, and the table that the plugin publishes.
#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "../common/levels.h"
#include "../functionalize/level.h"
#include "batch.h"
#include "inner.h"

namespace batch {

int32_t layer = 0;
Operators ops;
int32_t (*warn)(const char* message) = nullptr;

namespace {

// ---- notes of how calls were batched, for tests and for the curious

std::atomic<bool> noting{false};
std::mutex notes_mutex;
std::map<std::string, int32_t>& notes() {
  static std::map<std::string, int32_t> all;
  return all;
}
void record_routes(int32_t on) {
  std::lock_guard<std::mutex> lock(notes_mutex);
  if (on) notes().clear();
  noting.store(on != 0);
}
void visit_routes(void (*visit)(void*, const char*, int32_t), void* ctx) {
  std::lock_guard<std::mutex> lock(notes_mutex);
  for (const auto& [op, routes] : notes()) visit(ctx, op.c_str(), routes);
}

int32_t route_of(Rule rule) {
  if (rule == loop) return RB_ROUTE_LOOP;
  return rule == decompose || rule == decompose_or_loop ? RB_ROUTE_DECOMP : RB_ROUTE_RULE;
}

// ---- destinations that are given

void check_destinations(const Call& c, bool batched) {
  for (int i = 0; i < c.nrets; ++i) {
    if (c.rets[i].tag != RB_TENSOR || c.mine(c.rets[i].v.t) || !batched) continue;
    rb::fail(RB_E_STATE,
             "%s: vmap: the tensor that is written is not batched, but an argument is, and it "
             "cannot hold the results of %lld examples; use %s without writing in place, or make "
             "the tensor batched first (for example with zeros_like of a batched one)",
             c.info.name, static_cast<long long>(c.size()), c.info.name);
  }
}

// A rule's own refusals and those of a loop speak of examples already.
void run_rule(Call& c, Rule rule) {
  try {
    rule(c);
  } catch (const rb::Stored& stored) {
    if (rule != loop && rule != decompose_or_loop && rule != random) c.explain(stored.code);
    throw;
  }
}

// Whether a layer sees calls on what the tensor stands for: it may keep an argument for a
// derivative.
bool watched(const Call& c, const RbTensor* t) {
  const RbTensor* inner = c.mine(t) ? Call::wrap_of(t).inner : t;
  return __builtin_popcountll(inner->keys[0]) + __builtin_popcountll(inner->keys[1]) > 1;
}

// Arguments that are destinations, and that a layer watches, as copies of their values before.
void copy_targets(const Call& c, Values& given) {
  for (int i = 0; i < c.nargs; ++i) {
    if (c.args[i].tag != RB_TENSOR || !watched(c, c.args[i].v.t)) continue;
    const bool written = std::any_of(c.rets, c.rets + c.nrets, [&](const RbValue& r) {
      return r.tag == RB_TENSOR && r.v.t == c.args[i].v.t;
    });
    if (written) given.set(i, call(ops.clone, {c.args[i]}));
  }
}

// Results of their own, then copied.
void run_into(Call& c, Rule rule, bool batched) {
  Values given(c);
  copy_targets(c, given);
  Owned owned(c.nrets);
  RbValue* const results = owned.values.data();
  RbCall plain = *c.c;
  plain.flags &= ~static_cast<uint32_t>(RB_CALL_OUT);
  Call fresh{&plain, c.info, given.v, c.nargs, results, c.nrets, c.frame};
  if (batched) {
    run_rule(fresh, rule);
  } else {
    rb::check(rb::host->call(c.c->op, given.v, c.nargs, results, c.nrets, 0));
  }
  for (int i = 0; i < c.nrets; ++i) {
    c.check_destination(i, results[i].v.t);
    const RbValue args[2] = {c.rets[i], results[i]};
    RbValue ret = c.rets[i];
    rb::check(rb::host->call(ops.copy, args, 2, &ret, 1, RB_CALL_OUT));
  }
}

void run_call(Call& c, Rule exact) {
  if (c.c->flags & RB_CALL_OUT) {
    const bool batched = c.any_mine();
    const Rule rule = exact ? exact : derived_rule(c);
    if (rule != random) check_destinations(c, batched);
    if (noting.load(std::memory_order_relaxed)) note_route(c.info, route_of(rule));
    if (!writes_directly(rule) || (!batched && rule == aligned)) return run_into(c, rule, batched);
    return run_rule(c, rule);
  }
  const Rule rule = exact ? exact : derived_rule(c);
  if (__builtin_expect(noting.load(std::memory_order_relaxed), 0))
    note_route(c.info, route_of(rule));
  run_rule(c, rule);
}

int32_t guarded_call(const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                     int32_t nrets, Rule exact) {
  const bool fresh = !(call->flags & RB_CALL_OUT);
  if (fresh) std::fill(rets, rets + nrets, none_value());
  const int32_t rc = rb::guarded([&] {
    Call c{call,  *rb::host->op_info(call->op),           args, nargs, rets,
           nrets, *static_cast<const Frame*>(call->frame)};
    run_call(c, exact);
  });
  if (rc != RB_OK && fresh) {
    for (int32_t i = 0; i < nrets; ++i) {
      rb::host->value_release(&rets[i]);
      rets[i] = none_value();
    }
  }
  return rc;
}

int32_t handle(void*, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
               int32_t nrets) {
  return guarded_call(call, args, nargs, rets, nrets, nullptr);
}

// ---- levels

Frame& frame_of(int32_t level) { return Levels<Frame>::at(level, "vmap"); }

int32_t push(int64_t size, int32_t randomness, int32_t strict, int32_t* level) {
  return Levels<Frame>::push(layer, Frame{size, randomness, strict, 0, 0}, RB_X_RANDOM, level);
}

int32_t wrap(int32_t level, RbTensor* t, int64_t dim, RbTensor** out) {
  return rb::guarded([&] {
    Frame& frame = frame_of(level);
    if (dim < 0 || dim >= t->ndim || t->shape[dim] != frame.size)
      rb::fail(RB_E_ARG, "vmap: dimension %lld does not hold %lld examples",
               static_cast<long long>(dim), static_cast<long long>(frame.size));
    const RbOpInfo info{};
    const Call c{nullptr, info, nullptr, 0, nullptr, 0, frame};
    *out = c.wrap(Ref::share(t), static_cast<int>(dim)).take();
    frame.serial = Call::wrap_of(*out).serial;
  });
}

int32_t unwrap(int32_t level, RbTensor* t, RbTensor** inner, int64_t* dim) {
  return rb::guarded([&] {
    const Frame& frame = frame_of(level);
    const bool mine = t->level == level;
    if (t->level > level || (mine && Call::wrap_of(t).serial != frame.serial)) {
      rb::fail(RB_E_STATE,
               "vmap: a result belongs to a transform (level %d) that the thread has left",
               t->level);
    }
    RbTensor* found = mine ? Call::wrap_of(t).inner : t;
    *dim = mine ? Call::wrap_of(t).bits : -1;
    *inner = Ref::share(found).take();
  });
}

int32_t level_info(int32_t level, int64_t* size, int32_t* randomness) {
  return rb::guarded([&] {
    const Frame& frame = frame_of(level);
    *size = frame.size;
    *randomness = frame.randomness;
  });
}

void set_warning(int32_t (*f)(const char*)) { warn = f; }

// Which of its ways a call of the thread's last level takes, see RbExplain.
int32_t explain_call(const RbOp* op, const RbValue* args, int32_t nargs, char* text,
                     uint32_t size) {
  const char* way = "a rule that follows from the record";
  if (const Frame* frame = Levels<Frame>::last()) {
    const RbCall call{};
    const RbOpInfo& info = *rb::host->op_info(op);
    const Call c{&call, info, args, nargs, nullptr, info.nrets, *frame};
    const int32_t rc = rb::guarded([&] {
      const Rule rule = derived_rule(c);
      if (rule == decompose) way = "the operators that it is made of, batched";
      if (rule == decompose_or_loop) way = "the operators that it is made of, else by example";
      if (rule == loop) way = "example by example";
    });
    if (rc != RB_OK) {
      rb::host->err_clear();
      way = "there is no way to batch it: the call raises";
    }
  }
  std::snprintf(text, size, "%s", way);
  return RB_EXPLAIN_ENDS;
}

RbVmap table;

void find_operators(const RbHost* h) {
  ops = Operators{h->find_op("view"),    h->find_op("reshape"),       h->find_op("expand"),
                  h->find_op("permute"), h->find_op("squeeze"),       h->find_op("select"),
                  h->find_op("stack"),   h->find_op("cast"),          h->find_op("copy"),
                  h->find_op("empty"),   h->find_op("arange"),        h->find_op("uniform"),
                  h->find_op("lt"),      h->find_op("add"),           h->find_op("mul"),
                  h->find_op("matmul"),  h->find_op("gather"),        h->find_op("scatter_add"),
                  h->find_op("slice"),   h->find_op("slice_scatter"), h->find_op("detach"),
                  h->find_op("index"),   h->find_op("transpose"),     h->find_op("roll"),
                  h->find_op("baddbmm"), h->find_op("nonzero"),       h->find_op("index_select"),
                  h->find_op("clone")};
}

int32_t init(const RbHost* h, RbTxn* txn) {
  rb::host = h;
  find_operators(h);
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = "vmap";
  desc.phase = 450;
  desc.on_missing = RB_L_FALLBACK;
  desc.fallback = handle;
  if (int32_t rc = h->add_layer(txn, &desc, &layer)) return rc;
  if (int32_t rc = add_exact_rules(h, txn)) return rc;
  table = RbVmap{sizeof(RbVmap), layer,       push,          Levels<Frame>::pop, wrap,
                 unwrap,         set_warning, record_routes, visit_routes,       level_info};
  static const RbExplain explain = {RB_SIZE(RbExplain, explain), 0, explain_call};
  if (int32_t rc = h->publish("vmap.explain", 1, &explain)) return rc;
  if (int32_t rc = h->publish(RB_VMAP_EXT, RB_VMAP_VERSION, &table)) return rc;
  return functional::add(h, txn);
}

const RbPlugin plugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "rabbet-vmap",
    RABBET_WHEEL_VERSION,      init,         nullptr};

}  // namespace

void note_route(const RbOpInfo& info, int32_t route) {
  std::lock_guard<std::mutex> lock(notes_mutex);
  notes()[info.name] |= route;
}

int32_t run_exact(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets) {
  return guarded_call(call, args, nargs, rets, nrets, *static_cast<const Rule*>(self));
}

}  // namespace batch

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &batch::plugin; }

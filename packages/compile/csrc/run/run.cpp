#include "run/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "run/stream.h"
#include "run/tiles.h"

namespace compile {

namespace {

constexpr int64_t kLeastShare = 32768;  // elements that are worth a thread

RbCall kernel_call(const RbOp* op) {
  RbCall c{};
  c.struct_size = sizeof c;
  c.host = host;
  c.op = op;
  c.keys[0] = uint64_t{1} << cpu;
  return c;
}

int arguments_of(const Node& node, const Shells& shells, RbValue* values) {
  for (int a = 0; a < node.nargs; ++a) {
    const Node::Argument& arg = node.args[a];
    values[a] = arg.value < 0 ? arg.literal : rb::tensor_value(shells.shell(arg.value));
  }
  return node.nargs;
}

// Memory of a value's elements, released at the end of scope.
using Bytes = std::unique_ptr<rb::Scratch<char>>;

// ---- in tiles

// Results of so many bytes will have left the cache before somebody reads them: their tiles are
// computed in scratch memory, and stored past the caches.
int64_t streamed_bytes() {
  static const int64_t bytes = [] {
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return 8 * int64_t{l2 > 0 ? l2 : 1 << 20};
  }();
  return bytes;
}

struct TileRun {
  const Recording& r;
  Plan& plan;
  const Tiles& tiles;
  const bool streams;
  std::atomic<int32_t> code{RB_OK};

  void operator()(int64_t begin, int64_t end) {
    auto shells = plan.take(r);
    shells->reserve(static_cast<uint64_t>(tiles.size()) * plan.largest_item);
    for (int64_t tile = begin; tile < end && code.load(std::memory_order_relaxed) == RB_OK; ++tile)
      one(*shells, tile);
    if (streams) stream_end();
    plan.give(std::move(shells));
  }

 private:
  void one(const Shells& shells, int64_t tile) {
    tiles.bind(r, plan, shells, tile);
    char* memory[kMostNodes];
    for (int i = 0; streams && i < plan.stored; ++i) {
      RbTensor* t = shells.shell(plan.stored_values[i]);
      memory[i] = static_cast<char*>(t->data);
      t->data = shells.slot(plan.slots + i);
    }
    RbValue args[kMostArguments];
    for (const int16_t i : plan.nodes) {
      const Node& node = r.node(i);
      const int n = arguments_of(node, shells, args);
      RbValue result = rb::tensor_value(shells.shell(node.result));
      const RbCall c = kernel_call(node.op);
      const int32_t rc = node.kernel.fn(node.kernel.self, &c, args, n, &result, 1);
      if (rc == RB_OK) continue;
      code.store(rc, std::memory_order_relaxed);
      return;
    }
    for (int i = 0; streams && i < plan.stored; ++i) {
      const RbTensor* t = shells.shell(plan.stored_values[i]);
      const int64_t bytes = t->numel * r.value(plan.stored_values[i]).itemsize;
      stream_copy(memory[i], static_cast<const char*>(t->data), bytes);
    }
  }
};

// False: a kernel has declined or failed. What the memory holds is undefined then.
bool run_tiles(const Recording& r, Plan& plan, const Tiles& tiles) {
  const bool streams = r.numel() * plan.largest_item >= streamed_bytes();
  TileRun body{r, plan, tiles, streams};
  const int64_t share = std::max<int64_t>(1, kLeastShare / std::max<int64_t>(1, tiles.size()));
  rb::parallel_for(tiles.count(), share, [&](int64_t begin, int64_t end) { body(begin, end); });
  if (body.code != RB_OK) host->err_clear();
  return body.code == RB_OK;
}

// ---- node by node, by ordinary calls

// Memory of results, by value, for those that are not written where they belong.
using Elsewhere = std::vector<Bytes>;

void run_nodes(const Recording& r, Plan& plan, bool stored_too, Elsewhere& at) {
  const Tiles whole(r.numel(), r.cols(), r.numel());
  Shells shells(r, plan.places, 0);  // all results lie in memory
  whole.bind(r, plan, shells, 0);
  at.resize(r.values());
  for (const int16_t i : plan.nodes) {
    const int v = r.node(i).result;
    if (plan.places[v].kind == Place::kMemory && !stored_too) continue;
    at[v] = std::make_unique<rb::Scratch<char>>(r.value(v).bytes);
    shells.shell(v)->data = at[v]->data();
  }
  RbValue args[kMostArguments];
  for (const int16_t i : plan.nodes) {
    const Node& node = r.node(i);
    const int n = arguments_of(node, shells, args);
    RbValue result = rb::tensor_value(shells.shell(node.result));
    rb::check(host->call(node.op, args, n, &result, 1, RB_CALL_OUT));
  }
}

// A copy of the memory that the run overwrites.
class Before {
 public:
  Before(const Recording& r, const Plan& plan) {
    for (const int16_t i : plan.nodes) {
      const Value& v = r.value(r.node(i).result);
      if (!is_stored(v) || v.made) continue;
      kept_.push_back({v, std::make_unique<rb::Scratch<char>>(v.bytes)});
      std::memcpy(kept_.back().second->data(), v.data, v.bytes);
    }
  }
  void restore() const {
    for (const auto& [v, bytes] : kept_) std::memcpy(v.data, bytes->data(), v.bytes);
  }

 private:
  std::vector<std::pair<Value, Bytes>> kept_;
};

void compare(const Recording& r, const Plan& plan, const Elsewhere& expected) {
  for (const int16_t i : plan.nodes) {
    const Node& node = r.node(i);
    const Value& v = r.value(node.result);
    if (!is_stored(v) || !std::memcmp(v.data, expected[node.result]->data(), v.bytes)) continue;
    rb::fail(RB_E_INTERNAL,
             "compile: the fused result of %s differs from that of an eager call (found by "
             "RABBET_COMPILE=check)",
             node.text().c_str());
  }
}

}  // namespace

Ran run(const Recording& r) {
  Ran ran;
  const std::shared_ptr<Plan> plan = plan_of(r);
  if (!plan) return ran;
  ran.nodes = static_cast<int>(plan->nodes.size());
  ran.stored = plan->stored;
  Elsewhere temporary;
  if ((ran.nodes == 1 && !settings.check) || plan->declines) {
    ran.declined = plan->declines;
    run_nodes(r, *plan, false, temporary);
    return ran;
  }
  Elsewhere expected;
  if (settings.check) run_nodes(r, *plan, true, expected);
  const Tiles tiles(r.numel(), r.cols(), settings.tile);
  ran.tiles = tiles.count();
  std::unique_ptr<Before> before;
  if (plan->overwrites && !plan->proven) before = std::make_unique<Before>(r, *plan);
  if (run_tiles(r, *plan, tiles)) {
    plan->proven = true;
    if (settings.check) compare(r, *plan, expected);
    return ran;
  }
  if (plan->overwrites && !before)
    rb::fail(RB_E_INTERNAL, "compile: a kernel of %s declined a call that it has taken before",
             r.node(plan->nodes[0]).text().c_str());
  if (before) before->restore();
  plan->declines = ran.declined = true;
  ran.tiles = 0;
  run_nodes(r, *plan, false, temporary);
  return ran;
}

}  // namespace compile

#include "region/region.h"

#include <chrono>
#include <cstring>

namespace compile {

namespace {

constexpr size_t kMostLines = 10000;

// Whether the thread is inside this file with the lock held: calls that it makes run at once.
__thread bool inside __attribute__((tls_model("initial-exec"))) = false;

// The line of the program where reports want it, else empty.
std::string current_line() {
  if (!settings.report && !settings.check) return {};
  const char* line = trace->source_get();
  return line ? line : "";
}

// The line is looked up first: that can wait for Python's lock, whose holder may wait for this one.
class Lock {
 public:
  explicit Lock(std::mutex& mutex) : line(current_line()), lock_(mutex) { inside = true; }
  ~Lock() { inside = false; }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  const std::string line;

 private:
  std::lock_guard<std::mutex> lock_;
};

inline bool is_large(const RbValue& v, int64_t least) {
  return v.tag == RB_TENSOR && v.v.t->numel * v.v.t->dtype.bits >= 8 * least;
}

// Whether the call, or calls that it is made of, could be deferred: one of the CPU that no layer or
// level below this one waits for.
bool is_plain(const RbCall& c) {
  return cpu >= 0 && !c.level && !c.stream &&
         (c.keys[0] & ((uint64_t{1} << layer) - 1)) == uint64_t{1} << cpu;
}

// Run the operator's decomposition so that the layer sees its calls. Those above have seen the
// call, and would see its parts a second time.
int32_t decompose(const RbCall& c, const RbValue* args, int32_t nargs, RbValue* rets,
                  int32_t nrets) {
  const rb::ThreadGuard guard;
  RbThread now = guard.saved();
  now.exclude |= ~((uint64_t{2} << layer) - 1);
  host->thread_set(&now);
  return host->decompose(&c, args, nargs, rets, nrets);
}

}  // namespace

Region& Region::instance_ = *new Region;

bool Region::defer(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                   RbValue* rets, int32_t* rc) {
  const Lock lock(mutex_);
  // A thread that begins takes the lock before it does anything: it finds all results written.
  if (trace->threads() != 1) return false;
  *rc = RB_OK;
  bool recorded = false;
  const int32_t failed = rb::guarded([&] {
    auto outcome = recording_.record(c, info, args, nargs, rets, lock.line);
    if (outcome == Recording::Outcome::kConflict) {
      rb::check(run(info.name, lock.line));
      outcome = recording_.record(c, info, args, nargs, rets, lock.line);
    }
    recorded = outcome == Recording::Outcome::kRecorded;
  });
  pending_.store(!recording_.is_empty(), std::memory_order_release);
  if (failed) {
    *rc = failed;
    return true;
  }
  totals_.recorded += recorded;
  return recorded;
}

bool Region::concerns(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                      const RbValue* rets, int32_t nrets) const {
  // Views share memory, in which later calls find what is deferred.
  if (info.flags & RB_OP_VIEW) return false;
  // Operators of others may know memory that is no argument.
  if (std::strstr(info.name, "::")) return true;
  const auto meets = [&](const RbTensor* t, bool writes) {
    if (!t) return false;
    if (t->flags & (RB_T_WRAPPER | RB_T_COMPOSITE)) return true;
    return writes ? recording_.uses(t) : recording_.writes(t);
  };
  for (int32_t i = 0; i < nargs; ++i) {
    const bool mutated = info.mutated_args >> i & 1;
    if (args[i].tag == RB_OBJECT) return true;
    if (args[i].tag == RB_TENSOR && meets(args[i].v.t, mutated)) return true;
    if (args[i].tag != RB_TENSORS) continue;
    for (uint32_t k = 0; k < args[i].len; ++k) {
      if (meets(args[i].v.ts[k], mutated)) return true;
    }
  }
  for (int32_t i = 0; c.flags & RB_CALL_OUT && i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR) return true;
    const RbTensor* t = rets[i].v.t;
    if (t->flags & (RB_T_WRAPPER | RB_T_COMPOSITE) || recording_.uses_memory_of(t)) return true;
  }
  return false;
}

int32_t Region::make_way(const RbCall& c, const RbOpInfo& info, const RbValue* args, int32_t nargs,
                         const RbValue* rets, int32_t nrets) {
  const Lock lock(mutex_);
  if (recording_.is_empty() || !concerns(c, info, args, nargs, rets, nrets)) return RB_OK;
  return run(info.name, lock.line);
}

int32_t Region::ready(const RbTensor* t, const char* what) {
  if (inside || !is_pending()) return RB_OK;
  const Lock lock(mutex_);
  return recording_.is_empty() || !recording_.uses(t) ? RB_OK : run(what, lock.line);
}

int32_t Region::flush(const char* reason) {
  if (inside || !is_pending()) return RB_OK;
  const Lock lock(mutex_);
  return recording_.is_empty() ? RB_OK : run(reason, lock.line);
}

int32_t Region::run(const std::string& reason, const std::string& source) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Ran ran;
  const int32_t rc = rb::guarded([&] {
    const OnlyBackends off;
    recording_.drop_dead();
    ran = compile::run(recording_);
  });
  ++totals_.flushes;
  totals_.dropped += recording_.nodes() - ran.nodes;
  totals_.unstored += ran.nodes - ran.stored;
  totals_.tiled += ran.tiles > 0;
  totals_.declined += ran.declined;
  if (settings.report && lines_.size() < kMostLines) {
    Line line{reason, source, {}, recording_.numel(), ran, 0};
    for (int i = 0; i < recording_.nodes(); ++i)
      line.ops.emplace_back(host->op_info(recording_.node(i).op)->name);
    line.microseconds = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    lines_.push_back(std::move(line));
  }
  const std::string first = rc == RB_OK ? "" : recording_.node(0).text();
  recording_.clear();
  pending_.store(false, std::memory_order_release);
  if (rc == RB_OK) return RB_OK;
  const RbError* error = host->err_get();
  const std::string said = error && error->message ? error->message : "no message";
  return host->err_set(
      rc, (said + "\n  in calls from " + first + " on, which a compiled region ran at " + reason)
              .c_str());
}

Totals Region::totals() {
  const Lock lock(mutex_);
  return totals_;
}
std::vector<Line> Region::lines() {
  const Lock lock(mutex_);
  return lines_;
}
void Region::clear() {
  const Lock lock(mutex_);
  totals_ = {};
  lines_.clear();
}

int32_t handle_call(void*, const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  // Most calls are small, and nothing waits.
  const int64_t least = settings.least_bytes.load(std::memory_order_relaxed);
  bool large = false;
  for (int32_t i = 0; i < nargs; ++i) large = large || is_large(args[i], least);
  Region& region = Region::get();
  if (!(large || region.is_pending()) || inside)
    return host->redispatch(c, layer, args, nargs, rets, nrets);
  const RbOpInfo& info = *host->op_info(c->op);
  if (large && is_plain(*c)) {
    int32_t rc = RB_OK;
    if (nrets == 1 && (info.kind == RB_KIND_ELEMENTWISE || info.kind == RB_KIND_COMPOSITE) &&
        region.defer(*c, info, args, nargs, rets, &rc))
      return rc;
    // A transform level may change how the parts draw random numbers.
    if (!(c->flags & RB_CALL_OUT) && trace->is_composed(c->op, cpu) && rb::thread_get().depth == 0)
      return decompose(*c, args, nargs, rets, nrets);
  }
  if (region.is_pending()) {
    if (const int32_t rc = region.make_way(*c, info, args, nargs, rets, nrets)) return rc;
  }
  return host->redispatch(c, layer, args, nargs, rets, nrets);
}

}  // namespace compile

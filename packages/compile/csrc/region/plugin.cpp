// The plugin's entry, and the table that it publishes.
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "rabbet/compile.h"
#include "region/region.h"

namespace compile {

const RbTrace* trace = nullptr;
int32_t layer = 0;
int32_t cpu = -1;
Settings settings;

namespace {

int32_t is_on() { return rb::thread_get().include >> layer & 1; }

int32_t use_backend(int32_t backend) {
  if (backend < 1 || backend > 15)
    return rb::set_error(RB_E_ARG, "compile: there is no backend %d", backend);
  static const RbDeferral deferral = {
      RB_SIZE(RbDeferral, thread_begins), 0, nullptr,
      [](void*, const RbTensor* t, const char* what) { return Region::get().ready(t, what); },
      [](void*) { Region::get().flush("another thread"); }};
  if (const int32_t rc = trace->defer(layer, &deferral)) return rc;
  cpu = backend;
  return RB_OK;
}

int32_t set_on(int32_t on, int32_t* before) {
  const int32_t was = is_on();
  if (before) *before = was;
  if (on) return host->layer_mode(layer, 1, -1);
  const int32_t rc = Region::get().flush("the end of a region");
  host->layer_mode(layer, 0, -1);
  return rc;
}

int32_t flush(const char* reason) { return Region::get().flush(reason ? reason : "flush"); }

// The setting called `name`, handed to `use`; RB_E_ARG where there is none.
template <class Use>
int32_t with_setting(const char* name, Use&& use) {
  if (name && !std::strcmp(name, "least_bytes")) return use(settings.least_bytes, 0);
  if (name && !std::strcmp(name, "tile")) return use(settings.tile, 1);
  if (name && !std::strcmp(name, "check")) return use(settings.check, 0);
  if (name && !std::strcmp(name, "report")) return use(settings.report, 0);
  return rb::set_error(RB_E_ARG, "compile: there is no setting '%s'", name ? name : "(null)");
}

int32_t set(const char* name, int64_t value) {
  return with_setting(name, [&](auto& setting, int64_t least) -> int32_t {
    if (value < least) {
      return rb::set_error(RB_E_ARG, "compile: expected '%s' to be at least %lld, got %lld", name,
                           static_cast<long long>(least), static_cast<long long>(value));
    }
    setting.store(value);
    return RB_OK;
  });
}
int32_t get(const char* name, int64_t* value) {
  return with_setting(name, [&](auto& setting, int64_t) -> int32_t {
    *value = setting.load();
    return RB_OK;
  });
}

int32_t totals(RbCompileTotals* out) {
  const Totals t = Region::get().totals();
  RbCompileTotals full{};
  full.struct_size = std::min<uint32_t>(out->struct_size, sizeof full);
  full.recorded = t.recorded;
  full.flushes = t.flushes;
  full.dropped = t.dropped;
  full.unstored = t.unstored;
  full.tiled = t.tiled;
  full.declined = t.declined;
  {
    const std::lock_guard lock(Region::get().mutex());
    full.plans = plan_count();
  }
  std::memcpy(out, &full, full.struct_size);
  return RB_OK;
}

int32_t lines(void (*each)(void*, const RbCompileLine*), void* ctx) {
  return rb::guarded([&] {
    for (const Line& line : Region::get().lines()) {
      std::vector<const char*> ops;
      for (const std::string& op : line.ops) ops.push_back(op.c_str());
      const RbCompileLine seen = {sizeof seen,         0,
                                  line.reason.c_str(), line.source.c_str(),
                                  ops.data(),          static_cast<int32_t>(ops.size()),
                                  line.ran.nodes,      line.ran.stored,
                                  line.ran.declined,   line.numel,
                                  line.ran.tiles,      line.microseconds};
      each(ctx, &seen);
    }
  });
}

void clear() {
  Region::get().clear();
  const std::lock_guard lock(Region::get().mutex());
  forget_plans();
}

RbCompile table;

int32_t explain_call(const RbOp* op, const RbValue*, int32_t, char* text, uint32_t size) {
  const RbOpInfo* info = host->op_info(op);
  RbPointwise kernel{RB_SIZE(RbPointwise, checks), 0, nullptr, nullptr, 0, 0};
  if (info && cpu >= 0 && trace->pointwise_kernel(op, cpu, RB_F32, &kernel) == RB_OK) {
    std::snprintf(text, size, "may run later, fused with calls of the same size");
    return RB_EXPLAIN_ACTS;
  }
  std::snprintf(text, size,
                "runs at once; deferred calls whose memory it reads or writes run first");
  return RB_EXPLAIN_PASSES;
}

int32_t init(const RbHost* h, RbTxn* txn) {
  rb::host = h;
  trace = static_cast<const RbTrace*>(h->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (!trace || !RB_HAS(trace, is_composed)) {
    return h->err_set(
        RB_E_PLUGIN, "rabbet-compile needs a newer rabbet-core: pip install --upgrade rabbet-core");
  }
  static const char* const before[] = {nullptr};
  static const char* const after[] = {"autograd", "autocast", nullptr};
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, thread_free);
  desc.name = "compile";
  desc.phase = 790;
  desc.on_missing = RB_L_FALLBACK;
  desc.before = before;
  desc.after = after;
  desc.fallback = handle_call;
  if (const int32_t rc = host->add_layer(txn, &desc, &layer)) return rc;
  // A child finds the lock free, and what is deferred whole.
  pthread_atfork([] { Region::get().mutex().lock(); }, [] { Region::get().mutex().unlock(); },
                 [] { Region::get().mutex().unlock(); });
  table = RbCompile{
      sizeof(RbCompile), layer, is_on, use_backend, set_on, flush, set, get, totals, lines, clear};
  static const RbExplain explain = {RB_SIZE(RbExplain, explain), 0, explain_call};
  if (const int32_t rc = host->publish("compile.explain", 1, &explain)) return rc;
  return host->publish(RB_COMPILE_EXT, RB_COMPILE_VERSION, &table);
}

const RbPlugin plugin = {
    RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
    "rabbet-compile",          RABBET_WHEEL_VERSION, init,         nullptr};

}  // namespace
}  // namespace compile

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &compile::plugin; }

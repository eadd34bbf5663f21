// The table behind rabbet/trace.h, and the checks of what plugins hand to it.
#include <algorithm>
#include <cstring>

#include "boundary/host_checks.h"
#include "boundary/plugin.h"
#include "call/check_call.h"
#include "call/composite.h"
#include "call/dry_run.h"
#include "call/uniform.h"
#include "device/backends.h"
#include "device/generator.h"
#include "formula/formula.h"
#include "layer/layers.h"
#include "tensor/tensor.h"
#include "thread/deferral.h"
#include "thread/error.h"
#include "thread/events.h"
#include "thread/source.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

// Throw unless a plugin has added the layer.
void check_plugin_layer(const char* what, int32_t layer) {
  check_layer_id(what, layer);
  if (layer == kTransformSlot || layer == kCompositeSlot)
    fail(RB_E_ARG, "%s: '%s' is core's own", what, layer_entry(layer).name.c_str());
}

int32_t table_infer(const RbOp* op, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets, int32_t* backend, int32_t* device) {
  return guarded([&] {
    need(backend, "infer: where the backend goes");
    need(device, "infer: where the device goes");
    Converted converted;
    check(check_call(impl(op), args, nargs, rets, nrets, 0, converted));
    const CallDevice where = dry_run(*impl(op), args, nargs, rets, nrets);
    *backend = where.backend;
    *device = where.device;
  });
}

int32_t table_check(const RbOp* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                    int32_t nrets, uint32_t flags) {
  return guarded([&] {
    Converted converted;
    check(check_call(impl(op), args, nargs, rets, nrets, flags, converted));
    check_runs(*impl(op), args, nargs, flags & RB_CALL_OUT ? rets : nullptr, nrets);
  });
}

int32_t table_stub(int32_t layer, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                   const int64_t* shape, const int64_t* strides, RbTensor** out) {
  return guarded([&] {
    need(out, "stub: where the tensor goes");
    check_owner("stub", layer);
    check_geometry("stub", backend, device, dtype, ndim, shape, strides, false);
    *out = compose(
        {layer, backend, device, dtype, ndim, shape, strides, nullptr, 0, nullptr, 0, nullptr});
  });
}

int32_t table_data_hook(int32_t layer, RbRealFn fn, void* self) {
  return guarded([&] {
    check_plugin_layer("data_hook", layer);
    set_data_hook(layer, fn, self);
  });
}

const char* table_source_get() {
  const char* found = nullptr;
  guarded([&] { found = call_source(); });
  return found;
}
void table_source_set(const char* text) {
  guarded([&] { set_call_source(text); });
}

int32_t table_events_open(uint32_t kinds, RbEvents** out) {
  return guarded([&] {
    need(out, "events_open: where the reader goes");
    *out = open_events(kinds);
  });
}
int32_t table_events_read(RbEvents* reader, void* out, uint32_t size, uint32_t max, uint32_t* count,
                          uint64_t* lost) {
  return guarded([&] {
    RbEvents& open = need_open(reader, "events_read");
    need(count, "events_read: where the number of events goes");
    if (max) need(out, "events_read: where the events go");
    if (size < RB_SIZE(RbEvent, op))
      fail(RB_E_ARG, "events_read: elements of %u bytes cannot hold an event", size);
    uint64_t missed = 0;
    *count = read_events(open, out, size, max, &missed);
    if (lost) *lost = missed;
  });
}
int32_t table_events_close(RbEvents* reader) {
  return guarded([&] { close_events(need_open(reader, "events_close")); });
}

int32_t table_observe(uint32_t kinds, RbObserveFn fn, void* self) {
  return guarded([&] {
    need(fn, "observe: the function");
    observe(kinds, fn, self);
  });
}
int32_t table_emit(const RbObserved* event) {
  return guarded([&] {
    need(event, "emit: the event");
    if (event->struct_size < RB_SIZE(RbObserved, id))
      fail(RB_E_ARG, "emit: %u bytes cannot hold an event", event->struct_size);
    constexpr uint32_t kEmitted =
        RB_EVENT_RANGE_BEGIN | RB_EVENT_RANGE_END | RB_EVENT_NODE | RB_EVENT_LAUNCH;
    if (!(event->kind & kEmitted) || (event->kind & (event->kind - 1)))
      fail(RB_E_ARG, "emit: expected an event of a range, a node or a launch, got kind %u",
           event->kind);
    if (event->kind == RB_EVENT_RANGE_BEGIN) need(event->text, "emit: the name of a range");
    if (event->kind == RB_EVENT_LAUNCH) need(event->text, "emit: the name of a launch");
    notify(*event);
  });
}

void table_thread_bytes(int64_t* host, int64_t* devices) {
  const LiveCounts& live = *thread_state().live;
  *host = *devices = 0;
  for (int b = kMeta + 1, n = backend_count(); b < n; ++b)
    *(has_host_memory(b) ? host : devices) += live.of[b].bytes.load(std::memory_order_relaxed);
}

int32_t table_defer(int32_t layer, const RbDeferral* how) {
  return guarded([&] {
    check_plugin_layer("defer", layer);
    RbDeferral full{};
    if (how) {
      std::memcpy(&full, how, std::min<size_t>(how->struct_size, sizeof full));
      need(reinterpret_cast<const void*>(full.ready), "defer: the function `ready`");
    }
    set_deferral(uint64_t{1} << layer, how ? &full : nullptr);
  });
}
int32_t table_read_gate(int32_t layer, RbReadFn fn, void* self) {
  return guarded([&] {
    check_plugin_layer("read_gate", layer);
    set_read_gate(uint64_t{1} << layer, fn, self);
  });
}
int32_t table_generator_gate(int32_t layer, RbGeneratorFn fn, void* self) {
  return guarded([&] {
    check_plugin_layer("generator_gate", layer);
    set_generator_gate(layer, fn, self);
  });
}
int32_t table_ready(const RbTensor* t, const char* what) {
  return guarded([&] {
    need(t, "ready: the tensor");
    make_ready(t, what ? what : "ready");
  });
}
int32_t table_memory_get(const RbTensor* t, RbMemory* out) {
  return guarded([&] {
    need(t, "memory_get: the tensor");
    need(out, "memory_get: where the answer goes");
    Storage* const own = impl(t)->storage;
    const Storage* const s = owner_of(own);
    RbMemory full{};
    full.struct_size = std::min<uint32_t>(out->struct_size, sizeof full);
    full.flags = s->exposed ? +RB_MEMORY_EXPOSED : 0u;
    full.tensors = s->refs.load(std::memory_order_acquire);
    // One with a version counter of its own has one reference for all its tensors.
    if (own != s) full.tensors += own->refs.load(std::memory_order_acquire) - 1;
    full.data = s->data;
    full.nbytes = s->nbytes;
    std::memcpy(out, &full, full.struct_size);
  });
}
// Whether the kernel computes each element alone where the tensors that the record casts have the
// floating dtype.
bool is_pointwise(const Op& op, const Handler& handler, int32_t dtype) {
  if (!handler.fn || op.retired || op.mutates || formula_is_off(handler)) return false;
  if (handler.uniform_dtypes >> dtype & 1) return true;
  constexpr uint64_t kFloats = 1u << RB_F16 | 1u << RB_BF16 | 1u << RB_F32 | 1u << RB_F64;
  return op.info.kind == RB_KIND_ELEMENTWISE && !(handler.flags & ~RB_K_MOVES) &&
         op.info.nrets == 1 && !op.returns_list && (handler.dtype_mask & kFloats) >> dtype & 1;
}
int32_t table_pointwise_kernel(const RbOp* handle, int32_t backend, int32_t dtype,
                               RbPointwise* out) {
  if (!handle || !out || backend <= kMeta || backend >= kBackendBits || dtype < 0 ||
      dtype >= RB_DTYPE_COUNT || out->struct_size < RB_SIZE(RbPointwise, checks))
    return RB_E_NOTIMPL;
  const Op& op = *impl(handle);
  const Handler& handler = op.table[backend];
  if (!is_pointwise(op, handler, dtype)) return RB_E_NOTIMPL;
  out->fn = handler.fn;
  out->self = handler.self;
  out->all = is_formula(handler) || op.info.kind != RB_KIND_ELEMENTWISE;
  out->checks = op.has_checks();
  return RB_OK;
}
int32_t table_is_composed(const RbOp* handle, int32_t backend) {
  if (!handle || backend <= kMeta || backend >= kBackendBits) return 0;
  const Op& op = *impl(handle);
  return !op.retired && !op.table[backend].fn && !op.core_fn && !op.mutates && op.has_decomp() &&
         !op.rules[kDecompRule].fn && !is_loaded_decomp(op);
}

static_assert(sizeof observed_kinds == sizeof(uint32_t));
const RbTrace kTable = {sizeof(RbTrace),
                        0,
                        table_infer,
                        table_stub,
                        table_data_hook,
                        table_source_get,
                        table_source_set,
                        table_events_open,
                        table_events_read,
                        table_events_close,
                        table_observe,
                        table_emit,
                        reinterpret_cast<const uint32_t*>(&observed_kinds),
                        table_thread_bytes,
                        table_defer,
                        table_ready,
                        table_memory_get,
                        using_threads,
                        table_pointwise_kernel,
                        table_is_composed,
                        table_read_gate,
                        table_check,
                        table_generator_gate};
[[maybe_unused]] const bool is_published = (publish(RB_TRACE_EXT, RB_TRACE_VERSION, &kTable), true);

}  // namespace
}  // namespace rabbet

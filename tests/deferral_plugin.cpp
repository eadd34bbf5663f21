// Two layers that could defer calls, and what core is asked to do for them (tests/test_deferral.py).
#include <cstring>
#include <string>

#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace {

const RbTrace* trace;
int32_t layers[2];
std::string asked;  // what is about to read
bool fails = false;
int begun = 0;

int32_t ready(void*, const RbTensor*, const char* what) {
  asked += std::string(what) + ";";
  return fails ? rb::host->err_set(RB_E_STATE, "the kernels failed") : RB_OK;
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  for (int i = 0; i < 2; ++i) {
    RbLayer desc{};
    desc.struct_size = sizeof desc;
    desc.name = i ? "later" : "much-later";
    desc.phase = 780;
    if (const int32_t rc = host->add_layer(txn, &desc, &layers[i])) return rc;
  }
  return RB_OK;
}

const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
                         "deferral-plugin",         "1.0",        init,         nullptr};

}  // namespace

extern "C" {
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }

RB_EXPORT int32_t defer(int32_t layer, int32_t how) {
  RbDeferral d{};
  d.struct_size = sizeof d;
  if (how == 2) d.ready = ready;
  d.thread_begins = [](void*) { ++begun; };
  return trace->defer(layer < 2 ? layers[layer] : layer, how ? &d : nullptr);
}
RB_EXPORT void fail(int32_t now) { fails = now; }
RB_EXPORT const char* take_asked() {
  static std::string last;
  last.swap(asked);
  asked.clear();
  return last.c_str();
}
RB_EXPORT int32_t threads_begun() { return begun; }
RB_EXPORT int32_t threads() { return trace->threads(); }
RB_EXPORT int32_t make_ready(const RbTensor* t) { return trace->ready(t, nullptr); }

// Tensors of the memory; negative where it is exposed; 0: the struct has other ends than the memory.
RB_EXPORT int32_t memory(const RbTensor* t, int64_t nbytes) {
  RbMemory m{};
  m.struct_size = sizeof m;
  if (trace->memory_get(t, &m) != RB_OK || m.struct_size != sizeof m) return 0;
  RbMemory shorter{};
  shorter.struct_size = RB_SIZE(RbMemory, tensors);
  if (trace->memory_get(t, &shorter) != RB_OK || shorter.tensors != m.tensors || shorter.data) return 0;
  if (m.nbytes != static_cast<uint64_t>(nbytes) || m.data > t->data) return 0;
  return m.flags & RB_MEMORY_EXPOSED ? -m.tensors : m.tensors;
}
RB_EXPORT int32_t memory_of_nothing() { return trace->memory_get(nullptr, nullptr); }

// 1 or 2 (all tensors have the dtype): there is a kernel for each element.
RB_EXPORT int32_t pointwise(const char* op, int32_t backend, int32_t dtype) {
  RbPointwise found{};
  found.struct_size = sizeof found;
  const RbOp* handle = op ? rb::host->find_op(op) : nullptr;
  return trace->pointwise_kernel(handle, backend, dtype, &found) == RB_OK ? 1 + found.all : 0;
}
// The kernel on a part of two vectors.
RB_EXPORT int32_t run_pointwise(const char* op, RbTensor* x, RbTensor* out) {
  RbPointwise found{};
  found.struct_size = sizeof found;
  const RbOp* handle = rb::host->find_op(op);
  if (trace->pointwise_kernel(handle, x->backend, x->dtype_id, &found) != RB_OK) return RB_E_NOTIMPL;
  RbCall c{};
  c.struct_size = sizeof c;
  c.host = rb::host;
  c.op = handle;
  c.keys[0] = 1ull << x->backend;
  const RbValue arg = rb::tensor_value(x);
  RbValue ret = rb::tensor_value(out);
  return found.fn(found.self, &c, &arg, 1, &ret, 1);
}
RB_EXPORT int32_t composed(const char* op, int32_t backend) {
  return trace->is_composed(op ? rb::host->find_op(op) : nullptr, backend);
}
}

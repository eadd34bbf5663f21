// The table of functions that core hands to plugins.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "dispatch.h"
#include "error.h"
#include "formula.h"
#include "infer.h"
#include "run_backend.h"
#include "runtime.h"
#include "thread_state.h"
#include "transforms.h"

namespace rabbet {

namespace {
int slot_layers[kSlots];
std::string slot_names[kSlots];
std::atomic<int> slots_used{0};
}  // namespace

int slot_new(const char* name, int layer, void (*del)(void*)) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  const int slot = slots_used.load();
  if (slot == kSlots)
    fail(RB_E_PLUGIN, "slot '%s': all %d per-tensor slots are taken", name, kSlots);
  slot_deleters[slot] = del;
  slot_layers[slot] = layer;
  slot_names[slot] = name;
  slots_used.store(slot + 1);
  return slot;
}

std::vector<SlotEntry> slot_entries() {
  std::vector<SlotEntry> entries;
  for (int slot = 0; slot < slots_used.load(); ++slot)
    entries.push_back({slot_names[slot], slot_layers[slot], tensors_with_slot(slot)});
  return entries;
}

namespace {

Tensor* view_root(const Tensor* t) {
  Tensor* root = t->view ? t->view->parent : nullptr;
  while (root && root->view) root = root->view->parent;
  return root;
}

TensorRef replay(const Tensor* t, Tensor* root) {
  std::vector<const ViewRecord*> chain;  // innermost first
  for (const Tensor* at = t; at->view; at = at->view->parent) chain.push_back(at->view);
  TensorRef current = TensorRef::share(root);
  for (auto step = chain.rbegin(); step != chain.rend(); ++step) {
    std::vector<RbValue> args((*step)->args, (*step)->args + (*step)->nargs);
    args[0] = value_tensor(current.get());
    current = call1((*step)->op, args.data(), static_cast<int32_t>(args.size()));
  }
  return current;
}

int32_t host_txn_begin(const char* plugin, RbTxn** out) {
  *out = new RbTxn;
  (*out)->provider = plugin ? plugin : "?";
  return RB_OK;
}
void host_txn_abort(RbTxn* txn) {
  for (int bit : txn->layers) drop_layer(bit);
  drop_backends(txn->backends.size());
  delete txn;
}
int32_t host_txn_commit(RbTxn* txn) {
  const int32_t rc = guarded([&] { txn_commit(*txn); });
  if (rc != RB_OK) {
    host_txn_abort(txn);
    return rc;
  }
  delete txn;
  return RB_OK;
}
int32_t host_add_ops(RbTxn* txn, const char* records) {
  return guarded([&] { txn_add_ops(*txn, records, txn->provider); });
}
int32_t host_add_kernel(RbTxn* txn, const RbKernel* kernel) {
  return guarded([&] {
    if (kernel->struct_size < RB_SIZE(RbKernel, self) || !kernel->op || !kernel->backend ||
        !kernel->fn) {
      fail(RB_E_PLUGIN, "%s: add_kernel: the struct is too short or op, backend or fn is null",
           txn->provider.c_str());
    }
    RbKernel full{};
    std::memcpy(&full, kernel, std::min<size_t>(kernel->struct_size, sizeof full));
    txn->kernels.emplace_back(full, kernel->backend);
    txn->names.emplace_back(kernel->op);
    txn->kernels.back().first.op = txn->names.back().c_str();
  });
}
int32_t host_add_layer(RbTxn* txn, const RbLayer* layer, int32_t* id) {
  return guarded([&] {
    if (layer->struct_size < RB_SIZE(RbLayer, self) || !layer->name) {
      fail(RB_E_PLUGIN, "%s: add_layer: the struct is too short or its name is null",
           txn->provider.c_str());
    }
    *id = stage_layer(*layer, txn->provider);
    txn->layers.push_back(*id);
  });
}
int32_t host_add_backend(RbTxn* txn, const RbBackend* backend, int32_t* id) {
  return guarded([&] {
    if (backend->struct_size < RB_SIZE(RbBackend, allocator) || !backend->name ||
        !backend->allocator || !backend->allocator->alloc || !backend->allocator->free) {
      fail(RB_E_PLUGIN,
           "%s: add_backend: the struct is too short, or its name or allocator is null",
           txn->provider.c_str());
    }
    *id = register_backend(*backend, txn->provider);
    txn->backends.push_back(*id);
  });
}

const RbOp* host_find_op(const char* name) { return handle(find_op(name)); }
const RbOpInfo* host_op_info(const RbOp* op) { return op_info(*impl(op)); }
int32_t host_call(const RbOp* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
                  uint32_t flags) {
  return call(impl(op), args, nargs, rets, nrets, flags);
}
int32_t host_decompose(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                       int32_t nrets) {
  return guarded([&] { decompose(c, args, nargs, rets, nrets); });
}
int32_t host_vjp(const RbOp* op, uint64_t wanted, const RbValue* args, int32_t nargs,
                 const RbValue* outs, int32_t nouts, const RbValue* grads, RbValue* results) {
  return guarded([&] { run_vjp(*impl(op), wanted, args, nargs, outs, nouts, grads, results); });
}
int32_t host_jvp(const RbOp* op, const RbValue* args, int32_t nargs, const RbValue* outs,
                 int32_t nouts, const RbValue* tangents, RbValue* results) {
  return guarded([&] {
    if (impl(op)->jvps.empty() && !impl(op)->rules[kJvpRule].fn)
      fail(RB_E_NOTIMPL, "%s: its record has no jvp", impl(op)->name.c_str());
    run_jvp(*impl(op), args, nargs, outs, nouts, tangents, results);
  });
}

void host_retain(RbTensor* t) { retain(t); }
void host_release(RbTensor* t) { release(t); }
int32_t host_tensor_new(int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                        const int64_t* shape, const int64_t* strides, RbTensor** out) {
  return guarded([&] { *out = tensor_new(backend, device, dtype, ndim, shape, strides); });
}
int32_t host_tensor_adopt(void* data, int32_t backend, int32_t device, int32_t dtype, int32_t ndim,
                          const int64_t* shape, const int64_t* strides, uint32_t flags, void* ctx,
                          void (*del)(void*), RbTensor** out) {
  return guarded([&] {
    *out = tensor_adopt(data, backend, device, dtype, ndim, shape, strides, flags, ctx, del);
  });
}
int32_t host_tensor_alias(RbTensor* t, RbTensor** out) {
  return guarded([&] { *out = tensor_alias(t); });
}
RbTensor** host_tensors_new(uint32_t n) { return tensors_new(n); }
void host_value_release(RbValue* v) { value_release(v); }

int32_t host_slot_new(const char* name, int32_t layer, void (*del)(void*), int32_t* slot,
                      uint32_t* offset) {
  return guarded([&] {
    *slot = slot_new(name, layer, del);
    // Tensor is no standard-layout class, for which offsetof would be defined.
    alignas(Tensor) static char place[sizeof(Tensor)];
    auto* slots = reinterpret_cast<char*>(&reinterpret_cast<Tensor*>(place)->slots[*slot]);
    *offset = static_cast<uint32_t>(slots - place);
  });
}
void host_slot_set(RbTensor* t, int32_t slot, void* p, int32_t on) {
  void*& place = impl(t)->slots[slot];
  const int more = (p != nullptr) - (place != nullptr);
  if (more) bump(thread_state().live->slots[slot], more);
  place = p;
  impl(t)->has_slots = 1;
  const uint64_t key = 1ull << slot_layers[slot];
  t->keys[0] = on ? t->keys[0] | key : t->keys[0] & ~key;
}

uint32_t host_version_get(const RbTensor* t) {
  return impl(t)->storage->version.load(std::memory_order_relaxed);
}
void host_version_bump(RbTensor* t) {
  impl(t)->storage->version.fetch_add(1, std::memory_order_relaxed);
}
int32_t host_same_storage(const RbTensor* a, const RbTensor* b) {
  return impl(a)->storage == impl(b)->storage;
}
int32_t host_use_count(const RbTensor* t) { return impl(t)->refs.load(std::memory_order_acquire); }
RbTensor* host_view_parent(const RbTensor* t) {
  return impl(t)->view ? impl(t)->view->parent : nullptr;
}
int32_t host_view_replay(const RbTensor* t, RbTensor* root, RbTensor** out) {
  return guarded([&] {
    const Tensor* original = view_root(impl(t));
    if (!original) fail(RB_E_STATE, "view_replay: the tensor is not a view");
    *out = replay(impl(t), impl(root)).release_ownership();
  });
}

void host_tls_get(RbTls* tls) {
  const ThreadState& state = thread_state();
  *tls = RbTls{state.include, state.exclude, state.depth, state.tensor_flags};
}
void host_tls_set(const RbTls* tls) {
  ThreadState& state = thread_state();
  state.include = tls->include;
  state.exclude = tls->exclude;
  state.tensor_flags = tls->tensor_flags;
}
void set_bit(uint64_t& word, int bit, int32_t to) {
  if (to == 1) word |= 1ull << bit;
  if (to == 0) word &= ~(1ull << bit);
}
void host_layer_mode(int32_t layer, int32_t include, int32_t exclude) {
  ThreadState& state = thread_state();
  set_bit(state.include, layer, include);
  set_bit(state.exclude, layer, exclude);
}

int32_t host_err_set(int32_t code, const char* message) {
  return set_error(code, message ? message : "");
}
int32_t host_err_foreign(const char* tag, void* object, void (*del)(void*)) {
  set_error(RB_E_FOREIGN, tag);
  ThreadState& state = thread_state();
  state.error.foreign = object;
  state.error.foreign_tag = state.message.c_str();
  state.foreign_del = del;
  return RB_E_FOREIGN;
}
const RbError* host_err_get() { return &thread_state().error; }
void host_err_clear() { set_error(RB_OK, ""); }

int32_t host_rng_reserve(RbGenerator* generator, int32_t backend, int32_t device, uint64_t counters,
                         RbRngSlice* out) {
  return guarded([&] {
    *out = reserve(generator ? *generator : default_generator(backend, device), counters);
  });
}
void host_parallel_for(int64_t n, int64_t grain, void (*f)(int64_t, int64_t, void*), void* ctx) {
  parallel_for(n, grain, f, ctx);
}
int32_t host_num_threads() { return num_threads(); }
void* host_block_alloc(uint64_t nbytes) {
  try {
    return block_alloc(nbytes);
  } catch (const Error&) {
    return nullptr;
  }
}
void host_block_free(void* p, uint64_t nbytes) { block_free(p, nbytes); }
void host_log(int32_t level, const char* message) {
  static const char* const names[] = {"debug", "info", "warning", "error"};
  if (level >= 2) std::fprintf(stderr, "rabbet: %s: %s\n", names[level > 3 ? 3 : level], message);
}
int32_t host_publish(const char* name, uint32_t version, const void* table) {
  return guarded([&] { publish(name, version, table); });
}
const void* host_get_ext(const char* name, uint32_t min_version) {
  return published(name, min_version);
}

int32_t host_transform_push(int32_t layer, void* frame, uint32_t flags, int32_t* level) {
  return guarded([&] { *level = transform_push(layer, frame, flags); });
}
int32_t host_transform_pop(int32_t level) {
  return guarded([&] { transform_pop(level); });
}
int32_t host_tensor_wrap(int32_t level, RbTensor* inner, RbTensor* second, int64_t bits,
                         int32_t ndim, const int64_t* shape, const int64_t* strides,
                         RbTensor** out) {
  return guarded([&] { *out = tensor_wrap(level, inner, second, bits, ndim, shape, strides); });
}

int32_t host_transform_below(int32_t level, int32_t (*body)(void*), void* ctx) {
  int32_t status = RB_OK;
  const int32_t rc = guarded([&] { status = transform_below(level, body, ctx); });
  return rc != RB_OK ? rc : status;
}
int32_t host_tensor_wrap_along(int32_t level, RbTensor* inner, int64_t dim, RbTensor** out) {
  TensorRef owned(inner);
  return guarded([&] { *out = tensor_wrap_along(level, std::move(owned), dim); });
}

}  // namespace

const RbHost kHost = {
    sizeof(RbHost),       RB_ABI_MAJOR,
    RB_ABI_MINOR,         RABBET_VERSION,
    host_txn_begin,       host_txn_commit,
    host_txn_abort,       host_add_ops,
    host_add_kernel,      host_add_layer,
    host_add_backend,     host_find_op,
    host_op_info,         host_call,
    redispatch,           redispatch_new,
    host_decompose,       host_vjp,
    host_retain,          host_release,
    host_tensor_new,      host_tensor_adopt,
    host_tensor_alias,    host_tensors_new,
    host_value_release,   host_slot_new,
    host_slot_set,        host_version_get,
    host_version_bump,    host_same_storage,
    host_use_count,       host_view_parent,
    host_view_replay,     host_tls_get,
    host_tls_set,         host_layer_mode,
    host_err_set,         host_err_foreign,
    host_err_get,         host_err_clear,
    host_rng_reserve,     host_parallel_for,
    host_num_threads,     host_block_alloc,
    host_block_free,      host_log,
    host_publish,         host_get_ext,
    host_transform_push,  host_transform_pop,
    host_tensor_wrap,     host_jvp,
    host_transform_below, host_tensor_wrap_along,
};

}  // namespace rabbet

// The table of functions that core hands to plugins.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "boundary/host_checks.h"
#include "boundary/host_streams.h"
#include "boundary/host_tensors.h"
#include "boundary/plugin.h"
#include "boundary/registry.h"
#include "boundary/slots.h"
#include "call/check_call.h"
#include "call/dispatch.h"
#include "call/formulas.h"
#include "call/run_backend.h"
#include "device/backends.h"
#include "formula/formula.h"
#include "layer/layers.h"
#include "layer/saved_thread.h"
#include "layer/transforms.h"
#include "rules/infer.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "thread/error.h"
#include "thread/host_table.h"
#include "thread/pool.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

int32_t host_txn_begin(const char* plugin, RbTxn** out) {
  return guarded([&] {
    need(out, "txn_begin: where the transaction goes");
    *out = new RbTxn;
    (*out)->provider = plugin ? plugin : "?";
    (*out)->minor = built_minor((*out)->provider);
  });
}
void abort(RbTxn& txn) {
  undo(txn);
  delete &txn;
}
int32_t host_txn_abort(RbTxn* txn) {
  return guarded([&] { abort(need_own(txn, "txn_abort")); });
}
int32_t host_txn_commit(RbTxn* txn) {
  return guarded([&] {
    RbTxn& open = need_own(txn, "txn_commit");
    try {
      txn_commit(open);
    } catch (...) {
      abort(open);
      throw;
    }
    delete &open;
  });
}
int32_t host_add_ops(RbTxn* txn, const char* records) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_ops");
    txn_add_ops(open, need(records, "add_ops: the text of the records"), open.provider);
  });
}
int32_t host_add_kernel(RbTxn* txn, const RbKernel* kernel) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_kernel");
    check_kernel_struct(open, kernel);
    stage_kernel(open, *kernel);
  });
}
int32_t host_add_rule(RbTxn* txn, const RbRule* rule) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_rule");
    check_rule_struct(open, rule);
    stage_rule(open, *rule);
  });
}
int32_t host_add_formula_kernel(RbTxn* txn, const RbFormulaKernel* kernel) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_formula_kernel");
    check_formula_kernel_struct(open, kernel);
    stage_formula_kernel(open, *kernel);
  });
}
int32_t host_add_layer(RbTxn* txn, const RbLayer* layer, int32_t* id) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_layer");
    check_layer_struct(open, layer);
    need(id, "add_layer: where the layer's id goes");
    *id = stage_layer(*layer, open.provider);
    open.layers.push_back(*id);
  });
}
int32_t host_add_backend(RbTxn* txn, const RbBackend* backend, int32_t* id) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_backend");
    check_backend_struct(open, backend);
    const int made = register_backend(*backend, open.provider);
    open.backends.push_back(made);
    if (id) *id = made;
  });
}

int32_t host_add_dtype(RbTxn* txn, const RbDTypeInfo* info, int32_t* dtype) {
  return guarded([&] {
    RbTxn& open = need_open(txn, "add_dtype");
    check_dtype_struct(open, info);
    need(dtype, "add_dtype: where the dtype's id goes");
    const RbDTypeInfo full = whole(*info);
    const int before = dtype_count();
    *dtype = add_dtype(full);
    if (*dtype >= before) open.dtypes.push_back(*dtype);
  });
}
int32_t host_dtype_info(int32_t dtype, RbDTypeInfo* out) {
  return guarded([&] {
    need(out, "dtype_info: where the description goes");
    if (!is_dtype(dtype)) fail(RB_E_ARG, "dtype_info: %d is not the id of a dtype", dtype);
    fill_struct("dtype_info", static_cast<const RbDTypeInfo&>(dtype_info(dtype)), out,
                RB_SIZE(RbDTypeInfo, kind));
  });
}
int32_t host_find_dtype(const char* name, int32_t* dtype) {
  return guarded([&] {
    need(name, "find_dtype: the name");
    need(dtype, "find_dtype: where the dtype's id goes");
    const int found = dtype_by_name(name);
    if (found < 0) fail(RB_E_ARG, "find_dtype: there is no dtype '%s'", name);
    *dtype = found;
  });
}

const RbOp* host_find_op(const char* name) { return name ? handle(find_op(name)) : nullptr; }
const RbOpInfo* host_op_info(const RbOp* op) { return op ? op_info(*impl(op)) : nullptr; }
// Calls of plugins inside each other. The stack of a thread has room for several times as many.
constexpr int32_t kMaxNestedCalls = 256;
// The lines behind the message name the kernels that run.
[[gnu::cold]] int32_t refuse_nested(const Op& op) {
  return set_error(RB_E_STATE, op.name + ": " + std::to_string(kMaxNestedCalls) +
                                   " calls that plugins make run inside each other: does a kernel "
                                   "call its own operator? (A layer's handler must use "
                                   "redispatch: host->call comes back to the layer.)");
}
int32_t host_call(const RbOp* op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets,
                  uint32_t flags) {
  Converted converted;
  if (const int32_t rc = check_call(impl(op), args, nargs, rets, nrets, flags, converted))
    return rc;
  int32_t& depth = thread_state().plugin_calls;
  if (__builtin_expect(depth >= kMaxNestedCalls, 0)) return refuse_nested(*impl(op));
  ++depth;
  std::optional<DestinationLayers> layers;
  if (flags & RB_CALL_OUT) layers.emplace(rets, nrets);
  const int32_t rc = call(impl(op), args, nargs, rets, nrets, flags);
  --depth;
  return rc;
}

// That the arrays have an entry for each argument and result.
const Op& need_counts(const char* what, const RbOp* op, const RbValue* args, int32_t nargs,
                      const RbValue* outs, int32_t nouts) {
  if (!op) fail(RB_E_ARG, "%s: the operator is null", what);
  const Op& of = *impl(op);
  if (nargs != of.info.nargs || nouts != of.info.nrets || (nargs && !args) || (nouts && !outs)) {
    fail(RB_E_ARG, "%s of %s: expected %d arguments and %d results, got %d and %d", what,
         of.name.c_str(), of.info.nargs, of.info.nrets, args ? nargs : 0, outs ? nouts : 0);
  }
  return of;
}
// The ways down from a layer, which has to be one: its bit says what lies below.
[[gnu::always_inline]] inline bool is_below(const RbCall* c, int32_t layer, const RbValue* args,
                                            int32_t nargs, const RbValue* rets, int32_t nrets) {
  if (!c || !c->op || layer < kBackendBits || layer >= kKeyBits) return false;
  const RbOpInfo& info = impl(c->op)->info;
  return nargs == info.nargs && nrets == info.nrets && (args || !nargs) && (rets || !nrets);
}
[[gnu::noinline]] int32_t check_below(const char* what, const RbCall* c, int32_t layer,
                                      const RbValue* args, int32_t nargs, const RbValue* rets,
                                      int32_t nrets) {
  return guarded([&] {
    need(c, (std::string(what) + ": the call").c_str());
    check_layer_id(what, layer);
    need_counts(what, c->op, args, nargs, rets, nrets);
  });
}
[[gnu::noinline]] int32_t refuse_layer(int32_t layer) {
  return set_error(RB_E_ARG, "redispatch: layer " + std::to_string(layer) +
                                 " is not the one that handles the call");
}
[[gnu::noinline]] int32_t redispatch_checked(const RbCall* c, int32_t layer, const RbValue* args,
                                             int32_t nargs, RbValue* rets, int32_t nrets) {
  if (!is_below(c, layer, args, nargs, rets, nrets)) {
    if (int32_t rc = check_below("redispatch", c, layer, args, nargs, rets, nrets)) return rc;
  }
  if (!(c->keys[0] >> layer) && c->keys[0] >> kBackendBits) return refuse_layer(layer);
  return redispatch(c, layer, args, nargs, rets, nrets);
}
int32_t host_redispatch(const RbCall* c, int32_t layer, const RbValue* args, int32_t nargs,
                        RbValue* rets, int32_t nrets) {
  // Some layer has to drop out, or the call would come back for ever.
  if (__builtin_expect(is_below(c, layer, args, nargs, rets, nrets) && c->keys[0] >> layer, 1))
    return redispatch(c, layer, args, nargs, rets, nrets);
  return redispatch_checked(c, layer, args, nargs, rets, nrets);
}
int32_t host_redispatch_new(const RbCall* c, int32_t layer, const RbValue* args, int32_t nargs,
                            RbValue* rets, int32_t nrets) {
  if (__builtin_expect(!is_below(c, layer, args, nargs, rets, nrets), 0)) {
    if (int32_t rc = check_below("redispatch_new", c, layer, args, nargs, rets, nrets)) return rc;
  }
  return redispatch_new(c, layer, args, nargs, rets, nrets);
}
// `c` is the call, whose arguments and results are these.
void decompose_checked(const char* what, const RbCall* c, const RbValue* args, int32_t nargs,
                       RbValue* rets, int32_t nrets) {
  const RbOp* op = need(c, (std::string(what) + ": the call").c_str())->op;
  Converted converted;
  check(check_call(impl(op), args, nargs, rets, nrets, c->flags, converted));
  for (int32_t i = nargs; i < impl(op)->info.nargs; ++i) {
    if (!impl(op)->params[i].has_default) check(missing_argument(*impl(op), i));
  }
  // A layer's dims are counted from the start and in range; a stranger's may be neither.
  RbValue wrapped[RB_MAX_ARGS];
  DimScratch scratch;
  if (impl(op)->dim_args) {
    std::copy(args, args + nargs, wrapped);
    wrap_dims(*impl(op), wrapped, nargs, scratch);
    args = wrapped;
  }
  decompose(c, args, nargs, rets, nrets);
}
int32_t host_decompose(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                       int32_t nrets) {
  return guarded([&] { decompose_checked("decompose", c, args, nargs, rets, nrets); });
}
// While it lives, calls of the thread pass by a layer and those above it.
class Below {
 public:
  explicit Below(int32_t layer) : before_(thread_state().exclude) {
    thread_state().exclude |= ~uint64_t{0} << layer;
  }
  ~Below() { thread_state().exclude = before_; }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  uint64_t before_;
};
int32_t host_decompose_below(const RbCall* c, int32_t layer, const RbValue* args, int32_t nargs,
                             RbValue* rets, int32_t nrets) {
  return guarded([&] {
    check_layer_id("decompose_below", layer);
    const Below below(layer);
    decompose_checked("decompose_below", c, args, nargs, rets, nrets);
  });
}

int32_t host_vjp(const RbOp* op, uint64_t wanted, const RbValue* args, int32_t nargs,
                 const RbValue* outs, int32_t nouts, const RbValue* grads, RbValue* results) {
  return guarded([&] {
    const Op& of = need_counts("vjp", op, args, nargs, outs, nouts);
    need(grads, "vjp: where the gradients are");
    need(results, "vjp: where the results go");
    check_derivative("vjp", of, args, outs);
    for (int32_t i = 0; i < nouts; ++i) {
      if (__builtin_expect(!is_moved(grads[i]), 0))
        fail_moved("vjp", of, "gradient of result " + std::to_string(i), grads[i]);
    }
    run_vjp(of, wanted, args, nargs, outs, nouts, grads, results);
  });
}
int32_t host_jvp(const RbOp* op, const RbValue* args, int32_t nargs, const RbValue* outs,
                 int32_t nouts, const RbValue* tangents, RbValue* results) {
  return guarded([&] {
    const Op& of = need_counts("jvp", op, args, nargs, outs, nouts);
    if (of.jvps.empty() && !of.rules[kJvpRule].fn)
      fail(RB_E_NOTIMPL, "%s: its record has no jvp", of.name.c_str());
    need(tangents, "jvp: where the tangents are");
    need(results, "jvp: where the results go");
    check_derivative("jvp", of, args, outs);
    for (int32_t i = 0; i < nargs; ++i) {
      if (__builtin_expect(!is_moved(tangents[i]), 0))
        fail_moved("jvp", of, "tangent of '" + of.params[i].name_text + "'", tangents[i]);
    }
    run_jvp(of, args, nargs, outs, nouts, tangents, results);
  });
}

void host_log(int32_t level, const char* message) {
  static const char* const names[] = {"debug", "info", "warning", "error"};
  if (level >= 2 && message)
    std::fprintf(stderr, "rabbet: %s: %s\n", names[level > 3 ? 3 : level], message);
}

int32_t host_thread_get(RbThread* out) {
  const ThreadState& state = thread_state();
  const RbThread now = {sizeof now,    state.tensor_flags, state.include,
                        state.exclude, state.depth,        0};
  if (__builtin_expect(out && out->struct_size >= sizeof now, 1)) {
    const uint32_t size = out->struct_size;
    *out = now;
    out->struct_size = size;
    return RB_OK;
  }
  return guarded([&] {
    need(out, "thread_get: where the state goes");
    fill_struct("thread_get", now, out, RB_SIZE(RbThread, exclude));
  });
}
int32_t host_thread_set(const RbThread* thread) {
  if (!thread || thread->struct_size < RB_SIZE(RbThread, exclude)) {
    return set_error(
        RB_E_ARG, thread ? "thread_set: the struct is too short" : "thread_set: the state is null");
  }
  // Which backend a call is for follows from its tensors alone.
  constexpr uint64_t kBackends = (uint64_t{1} << kBackendBits) - 1;
  if (thread->include & kBackends || thread->tensor_flags & ~uint32_t{RB_T_INFERENCE})
    return set_error(RB_E_ARG, "thread_set: the state is none that thread_get gives");
  ThreadState& state = thread_state();
  state.include = thread->include;
  state.exclude = thread->exclude & ~(kBackends | uint64_t{1} << kCompositeSlot);
  state.tensor_flags = thread->tensor_flags;
  return RB_OK;
}
int32_t host_tls_save(RbTls** out) {
  return guarded([&] {
    need(out, "tls_save: where the state goes");
    *out = tls_save();
  });
}
int32_t host_tls_restore(const RbTls* saved) {
  return guarded([&] { tls_restore(*need(saved, "tls_restore: the state")); });
}
void host_tls_free(RbTls* saved) { tls_free(saved); }
void set_bit(uint64_t& word, int bit, int32_t to) {
  if (to == 1) word |= 1ull << bit;
  if (to == 0) word &= ~(1ull << bit);
}
int32_t host_layer_mode(int32_t layer, int32_t include, int32_t exclude) {
  if (__builtin_expect(layer <= kCompositeSlot || layer >= kKeyBits, 0))
    return set_error(RB_E_ARG, "layer_mode: " + std::to_string(layer) + " is not a layer");
  ThreadState& state = thread_state();
  set_bit(state.include, layer, include);
  set_bit(state.exclude, layer, exclude);
  return RB_OK;
}

int32_t host_err_set(int32_t code, const char* message) {
  return set_error(code, message ? message : "");
}
int32_t host_err_foreign(const char* tag, void* object, void (*del)(void*)) {
  set_error(RB_E_FOREIGN, tag ? tag : "");
  ThreadState& state = thread_state();
  state.error.foreign = object;
  state.error.foreign_tag = state.message.c_str();
  state.foreign_del = del;
  return RB_E_FOREIGN;
}
const RbError* host_err_get() { return &thread_state().error; }
void host_err_clear() { set_error(RB_OK, ""); }

int32_t host_parallel_for(int64_t n, int64_t grain, void (*f)(int64_t, int64_t, void*), void* ctx) {
  if (!f) return set_error(RB_E_ARG, "parallel_for: the function is null");
  return parallel_for(n, grain, f, ctx);
}
int32_t host_num_threads() { return num_threads(); }
constexpr uint64_t kLargestRequest = uint64_t{1} << 62;  // rounded up it is still a number
void* host_block_alloc(uint64_t nbytes) {
  if (nbytes > kLargestRequest) return nullptr;
  try {
    return block_alloc(nbytes);
  } catch (const Error&) {
    return nullptr;
  }
}
void host_block_free(void* p, uint64_t nbytes) {
  if (p) block_free(p, nbytes);
}
int32_t host_publish(const char* name, uint32_t version, const void* table) {
  return guarded([&] { publish(need(name, "publish: the name"), version, table); });
}
const void* host_get_ext(const char* name, uint32_t min_version) {
  return name ? published(name, min_version) : nullptr;
}

int32_t host_transform_push(int32_t layer, void* frame, uint32_t flags, int32_t* level) {
  return guarded([&] {
    need(level, "transform_push: where the level goes");
    *level = transform_push(layer, frame, flags);
  });
}
int32_t host_transform_pop(int32_t level) {
  return guarded([&] { transform_pop(level); });
}
int32_t host_transform_below(int32_t level, int32_t (*body)(void*), void* ctx) {
  int32_t status = RB_OK;
  const int32_t rc = guarded(
      [&] { status = transform_below(level, need(body, "transform_below: the function"), ctx); });
  return rc != RB_OK ? rc : status;
}
}  // namespace

RbHost kHost = {
    sizeof(RbHost),
    RB_ABI_MAJOR,
    RB_ABI_MINOR,
    RABBET_VERSION,
    host_txn_begin,
    host_txn_commit,
    host_txn_abort,
    host_add_ops,
    host_add_kernel,
    host_add_rule,
    host_add_formula_kernel,
    host_add_layer,
    host_add_backend,
    host_add_dtype,
    host_dtype_info,
    host_find_dtype,
    kDTypeKinds,
    host_find_op,
    host_op_info,
    host_call,
    host_redispatch,
    host_redispatch_new,
    host_decompose,
    host_vjp,
    host_jvp,
    host_retain,
    host_release,
    host_tensor_new,
    host_tensor_adopt,
    host_tensor_alias,
    host_tensors_new,
    host_value_release,
    host_slot_new,
    host_slot_set,
    host_version_get,
    host_version_bump,
    host_same_storage,
    host_use_count,
    host_view_parent,
    host_view_replay,
    host_thread_get,
    host_thread_set,
    host_layer_mode,
    host_tls_save,
    host_tls_restore,
    host_tls_free,
    host_err_set,
    host_err_foreign,
    host_err_get,
    host_err_clear,
    host_rng_reserve,
    host_parallel_for,
    host_num_threads,
    host_block_alloc,
    host_block_free,
    host_log,
    host_publish,
    host_get_ext,
    host_transform_push,
    host_transform_pop,
    host_transform_below,
    host_tensor_wrap,
    host_tensor_wrap_along,
    host_stream_get,
    host_stream_set,
    host_stream_wait,
    host_record_stream,
    host_find_backend,
    host_backend_name,
    host_device_count,
    host_stream_new,
    host_stream_sync,
    host_event_new,
    host_event_free,
    host_event_record,
    host_event_wait,
    host_event_query,
    host_wait,
    host_generator_at,
    host_generator_free,
    host_generator_state,
    host_generator_set,
    host_decompose_below,
};

}  // namespace rabbet

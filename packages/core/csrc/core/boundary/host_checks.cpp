#include "boundary/host_checks.h"

#include <cstdlib>
#include <mutex>
#include <set>

#include "device/backends.h"
#include "layer/layers.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "thread/error.h"

namespace {

struct OpenTxns {
  std::mutex mutex;
  std::set<const RbTxn*> all;
};
OpenTxns& open_txns() {
  static OpenTxns* instance = new OpenTxns;
  return *instance;
}

}  // namespace

RbTxn::RbTxn() {
  std::lock_guard<std::mutex> lock(open_txns().mutex);
  open_txns().all.insert(this);
}
RbTxn::~RbTxn() {
  std::lock_guard<std::mutex> lock(open_txns().mutex);
  open_txns().all.erase(this);
}

namespace rabbet {

void fail_short(const char* what, uint32_t size, uint32_t least) {
  fail(RB_E_ARG, "%s: the struct_size is %u, expected at least %u", what, size, least);
}

void fail_null(const char* what) { fail(RB_E_ARG, "%s is null", what); }

RbTxn& need_open(RbTxn* txn, const char* what) {
  std::lock_guard<std::mutex> lock(open_txns().mutex);
  if (open_txns().all.count(txn)) return *txn;
  fail(RB_E_STATE, "%s: the transaction is not open: it was committed or aborted, or never begun",
       what);
}

RbTxn& need_own(RbTxn* txn, const char* what) {
  RbTxn& open = need_open(txn, what);
  if (open.of_init)
    fail(RB_E_STATE, "%s: core commits the transaction of `init` when that returns RB_OK", what);
  return open;
}

// ---- structs

namespace {

[[noreturn]] void refuse(const RbTxn& txn, const char* what, const char* why) {
  fail(RB_E_PLUGIN, "%s: %s: %s", txn.provider.c_str(), what, why);
}

bool empty(const char* text) { return !text || !*text; }

}  // namespace

void check_kernel_struct(const RbTxn& txn, const RbKernel* kernel) {
  need(kernel, "add_kernel: the kernel");
  if (kernel->struct_size < RB_SIZE(RbKernel, self) || empty(kernel->op) ||
      empty(kernel->backend) || !kernel->fn)
    refuse(txn, "add_kernel", "the struct is too short or op, backend or fn is null");
}

void check_rule_struct(const RbTxn& txn, const RbRule* rule) {
  need(rule, "add_rule: the rule");
  if (rule->struct_size < RB_SIZE(RbRule, self) || empty(rule->op) || !rule->fn)
    refuse(txn, "add_rule", "the struct is too short or op or fn is null");
  if (rule->rule < 0 || rule->rule >= kRuleSlots)
    refuse(txn, "add_rule", ("rule " + std::to_string(rule->rule) + " is no RB_RULE_*").c_str());
  if (rule->flags & RB_RULE_READS && rule->struct_size < RB_SIZE(RbRule, reads_rets))
    refuse(txn, "add_rule", "the struct is too short for reads_args and reads_rets");
}

void check_formula_kernel_struct(const RbTxn& txn, const RbFormulaKernel* kernel) {
  need(kernel, "add_formula_kernel: the kernel");
  if (kernel->struct_size < RB_SIZE(RbFormulaKernel, self) || empty(kernel->op) ||
      empty(kernel->backend) || empty(kernel->formula) || !kernel->fn)
    refuse(txn, "add_formula_kernel",
           "the struct is too short or op, backend, formula or fn is null");
  if (kernel->argument < -1 || kernel->argument >= RB_MAX_ARGS)
    refuse(txn, "add_formula_kernel",
           ("argument " + std::to_string(kernel->argument) + " is neither -1 nor one").c_str());
}

void check_dtype_struct(const RbTxn& txn, const RbDTypeInfo* info) {
  need(info, "add_dtype: the description");
  if (info->struct_size < RB_SIZE(RbDTypeInfo, encode) || empty(info->name))
    refuse(txn, "add_dtype", "the struct is too short or its name is null");
}

void check_layer_struct(const RbTxn& txn, const RbLayer* layer) {
  need(layer, "add_layer: the layer");
  if (layer->struct_size < RB_SIZE(RbLayer, self) || empty(layer->name))
    refuse(txn, "add_layer", "the struct is too short or its name is null");
  const RbLayer full = whole(*layer);
  const int given = !!full.thread_save + !!full.thread_restore + !!full.thread_free;
  if (given % 3)
    refuse(txn, "add_layer", "of thread_save, thread_restore and thread_free some are null");
}

namespace {
void check_streams_struct(const RbTxn& txn, const RbBackend& backend) {
  if (backend.flags & RB_B_HOST_MEMORY)
    refuse(txn, "add_backend", "a backend of host memory has no streams");
  const RbStreams& s = *backend.streams;
  if (s.struct_size < RB_SIZE(RbStreams, event_query) || !s.create || !s.sync || !s.query ||
      !s.event_create || !s.event_destroy || !s.event_record || !s.event_wait || !s.event_sync ||
      !s.event_query)
    refuse(txn, "add_backend",
           "the struct of streams is too short, or one of its functions is null");
}
}  // namespace

void check_backend_struct(const RbTxn& txn, const RbBackend* backend) {
  need(backend, "add_backend: the backend");
  if (backend->struct_size < RB_SIZE(RbBackend, allocator) || empty(backend->name) ||
      !backend->allocator)
    refuse(txn, "add_backend", "the struct is too short, or its name or allocator is null");
  for (const char* c = backend->name; *c; ++c) {
    if (*c == ':' || *c <= ' ') refuse(txn, "add_backend", "the name holds a space or ':'");
  }
  const RbAllocator& allocator = *backend->allocator;
  if (allocator.struct_size < RB_SIZE(RbAllocator, free) || !allocator.alloc || !allocator.free)
    refuse(txn, "add_backend", "the allocator's struct is too short, or its alloc or free is null");
  if (backend->devices && backend->devices->struct_size < RB_SIZE(RbDevices, sync))
    refuse(txn, "add_backend", "the struct of devices is too short");
  if (RB_HAS(backend, streams)) check_streams_struct(txn, *backend);
}

void check_backend_id(const char* what, int32_t backend) {
  if (backend < 0 || backend >= backend_count())
    fail(RB_E_ARG, "%s: %d is not the id of a backend", what, backend);
}

void check_layer_id(const char* what, int32_t layer) {
  if (layer < kBackendBits || layer >= kKeyBits || layer_entry(layer).bit != layer)
    fail(RB_E_ARG, "%s: %d is not the id of a registered layer", what, layer);
}

// ---- tensors

void check_owner(const char* what, int32_t layer) {
  check_layer_id(what, layer);
  if (layer == kTransformSlot || layer == kCompositeSlot || is_transform(layer_entry(layer).desc)) {
    fail(RB_E_ARG,
         "%s: '%s' is no layer that tensors carry; a transform makes its tensors with tensor_wrap",
         what, layer_entry(layer).name.c_str());
  }
}

namespace {
void check_device_dtype_rank(const char* what, int backend, int device, int dtype, int ndim,
                             const int64_t* shape) {
  check_backend_id(what, backend);
  check_device(backend, device);
  if (!is_dtype(dtype)) fail(RB_E_ARG, "%s: %d is not the id of a dtype", what, dtype);
  if (ndim < 0 || ndim > kMaxDims)
    fail(RB_E_ARG, "%s: a tensor has at most %d dimensions, got %d", what, kMaxDims, ndim);
  if (ndim && !shape) fail(RB_E_ARG, "%s: the shape is null", what);
}

void check_strides(const char* what, int ndim, const int64_t* shape, const int64_t* strides) {
  // Sums and differences of such offsets, in bytes, do not overflow.
  constexpr int64_t kFar = int64_t{1} << 58;
  int64_t reach = 0, step = 0;
  for (int i = 0; i < ndim; ++i) {
    const bool fits = !__builtin_mul_overflow(shape[i] ? shape[i] - 1 : 1, strides[i], &step) &&
                      step >= -kFar && step <= kFar;
    if (fits) reach += std::abs(step);
    if (!fits || reach > kFar) fail(RB_E_ARG, "%s: the strides reach too far", what);
  }
}
}  // namespace

void check_shown(const char* what, int backend, int device, int dtype, int ndim,
                 const int64_t* shape, const int64_t* strides) {
  check_device_dtype_rank(what, backend, device, dtype, ndim, shape);
  count_shown(ndim, shape);
  if (strides) check_strides(what, ndim, shape, strides);
}

void check_geometry(const char* what, int backend, int device, int dtype, int ndim,
                    const int64_t* shape, const int64_t* strides, bool dense) {
  check_device_dtype_rank(what, backend, device, dtype, ndim, shape);
  const int64_t numel = count_elements(ndim, shape);
  if (!strides) return;
  check_strides(what, ndim, shape, strides);
  if (!dense || !numel) return;
  int64_t reach = 0;
  for (int i = 0; i < ndim; ++i) {
    reach += (shape[i] - 1) * strides[i];
    if (strides[i] < 0 || reach >= numel) {
      fail(RB_E_ARG, "%s: the strides reach outside of the %lld elements that the shape has", what,
           static_cast<long long>(numel));
    }
  }
}

}  // namespace rabbet

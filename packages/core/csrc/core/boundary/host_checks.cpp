#include "boundary/host_checks.h"

#include <cstdlib>
#include <mutex>
#include <set>

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

void check_layer_struct(const RbTxn& txn, const RbLayer* layer) {
  need(layer, "add_layer: the layer");
  if (layer->struct_size < RB_SIZE(RbLayer, self) || empty(layer->name))
    refuse(txn, "add_layer", "the struct is too short or its name is null");
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

void check_layer_id(const char* what, int32_t layer) {
  if (layer < kBackendBits || layer >= kKeyBits || layer_entry(layer).bit != layer)
    fail(RB_E_ARG, "%s: %d is not the id of a registered layer", what, layer);
}

// ---- tensors

void check_geometry(const char* what, int backend, int device, int dtype, int ndim,
                    const int64_t* shape, const int64_t* strides, bool dense) {
  if (backend < 0 || backend >= backend_count())
    fail(RB_E_ARG, "%s: %d is not the id of a backend", what, backend);
  check_device(backend, device);
  if (dtype < 0 || dtype >= RB_DTYPE_COUNT)
    fail(RB_E_ARG, "%s: %d is not the id of a dtype", what, dtype);
  if (ndim < 0 || ndim > kMaxDims)
    fail(RB_E_ARG, "%s: a tensor has at most %d dimensions, got %d", what, kMaxDims, ndim);
  if (ndim && !shape) fail(RB_E_ARG, "%s: the shape is null", what);
  const int64_t numel = count_elements(ndim, shape);
  if (!strides) return;
  // Sums and differences of such offsets, in bytes, do not overflow.
  constexpr int64_t kFar = int64_t{1} << 58;
  int64_t reach = 0, step = 0;
  for (int i = 0; i < ndim; ++i) {
    const bool fits = !__builtin_mul_overflow(shape[i] ? shape[i] - 1 : 1, strides[i], &step) &&
                      step >= -kFar && step <= kFar;
    if (fits) reach += std::abs(step);
    if (!fits || reach > kFar) fail(RB_E_ARG, "%s: the strides reach too far", what);
  }
  if (!dense || !numel) return;
  reach = 0;
  for (int i = 0; i < ndim; ++i) {
    reach += (shape[i] - 1) * strides[i];
    if (strides[i] < 0 || reach >= numel) {
      fail(RB_E_ARG, "%s: the strides reach outside of the %lld elements that the shape has", what,
           static_cast<long long>(numel));
    }
  }
}

// ---- calls

namespace {

constexpr uint32_t bit(int tag) { return 1u << tag; }
constexpr uint32_t kNumber = bit(RB_BOOL) | bit(RB_INT) | bit(RB_FLOAT) | bit(RB_COMPLEX);
constexpr uint32_t kInts = bit(RB_INTS) | bit(RB_INT) | bit(RB_BOOL);

// The tags that core and kernels can read where the record says the type RB_A_*.
constexpr uint32_t kReadable[] = {
    bit(RB_TENSOR),                // tensor
    bit(RB_TENSORS),               // tensors
    kNumber,                       // scalar
    bit(RB_INT) | bit(RB_BOOL),    // int
    kNumber,                       // float
    bit(RB_BOOL) | bit(RB_INT),    // bool
    bit(RB_STR),                   // str
    bit(RB_DTYPE),                 // dtype
    bit(RB_DEVICE),                // device
    bit(RB_GENERATOR),             // generator
    bit(RB_INT) | bit(RB_BOOL),    // dim
    bit(RB_INT) | bit(RB_BOOL),    // newdim
    kInts,                         // dims
    kInts,                         // perm
    kInts,                         // size
    kInts,                         // bsize
    kInts,                         // ints
    bit(RB_FLOATS) | bit(RB_INTS)  // floats
};
static_assert(sizeof kReadable / sizeof *kReadable == RB_A_FLOATS + 1);

inline bool fits(const Op& op, int i, const RbValue& v) {
  const RbArgInfo& arg = op.arg_infos[i];
  if (__builtin_expect(v.tag == RB_TENSOR, 1)) return arg.type == RB_A_TENSOR && v.v.t;
  if (v.tag == RB_NONE) return (arg.flags & RB_ARG_OPTIONAL) || op.params[i].has_default;
  if (v.tag > RB_OBJECT || !(kReadable[arg.type] >> v.tag & 1))
    return arg.type == RB_A_TENSOR && v.tag <= RB_OBJECT && (kNumber >> v.tag & 1) &&
           op.takes_numbers();
  switch (v.tag) {
    case RB_TENSORS:
      if (v.len && !v.v.ts) return false;
      for (uint32_t k = 0; k < v.len; ++k) {
        if (!v.v.ts[k] && !op.params[i].optional_items) return false;
      }
      return true;
    case RB_INTS:
    case RB_FLOATS:
      return !v.len || v.v.p;
    case RB_COMPLEX:
    case RB_STR:
      return v.v.p;
    case RB_DTYPE:
      return v.v.i >= 0 && v.v.i < RB_DTYPE_COUNT;
    case RB_DEVICE:
      return v.v.dev.backend >= 0 && v.v.dev.backend < backend_count();
    default:
      return true;
  }
}

// Whether the value can stand for the tensor in a derivative's formula.
inline bool stands_for_tensor(const RbValue& v) {
  switch (v.tag) {
    case RB_NONE:
      return true;
    case RB_TENSOR:
    case RB_META:
      return v.v.p;
    case RB_TENSORS:
      return !v.len || v.v.p;
    default:
      return false;
  }
}
inline bool fits_derivative(const Op& op, int i, const RbValue& v) {
  if (v.tag == RB_META) return op.arg_infos[i].type == RB_A_TENSOR && v.v.p;
  return v.tag == RB_NONE || fits(op, i, v);
}

const char* tag_name(uint32_t tag) {
  static const char* const names[] = {
      "None",    "a bool",   "an int",  "a float", "a complex number", "a dtype",     "a device",
      "a str",   "a tensor", "tensors", "ints",    "floats",           "a generator", "an RbMeta",
      "RB_ZERO", "an object"};
  return tag <= RB_OBJECT ? names[tag] : "a value of unknown tag";
}

std::string text(const RbValue& v) {
  if (v.tag == RB_DTYPE) return "a dtype of id " + std::to_string(v.v.i);
  if (v.tag == RB_DEVICE) return "a device of backend " + std::to_string(v.v.dev.backend);
  return tag_name(v.tag) + std::string(v.tag == RB_TENSOR && !v.v.t ? " (null)" : "");
}

}  // namespace

int32_t check_call(const Op* op, const RbValue* args, int32_t nargs, const RbValue* rets,
                   int32_t nrets, uint32_t flags) {
  if (__builtin_expect(!op, 0)) return set_error(RB_E_ARG, "call: the operator is null");
  if (__builtin_expect(nargs < 0 || nargs > op->info.nargs || (nargs && !args), 0)) {
    return set_error(RB_E_ARG, op->name + ": expected " + std::to_string(op->info.nargs) +
                                   " arguments, got " + std::to_string(nargs) +
                                   (args ? "" : " at a null pointer"));
  }
  if (__builtin_expect(nrets != op->info.nrets || (nrets && !rets), 0)) {
    return set_error(RB_E_ARG, op->name + ": it has " + std::to_string(op->info.nrets) +
                                   " results, but there is room for " +
                                   std::to_string(rets ? nrets : 0));
  }
  for (int32_t i = 0; i < nargs; ++i) {
    if (__builtin_expect(fits(*op, i, args[i]), 1)) continue;
    return set_error(RB_E_TYPE, op->name + ": the argument '" + op->params[i].name_text +
                                    "' cannot be " + text(args[i]));
  }
  if (flags & RB_CALL_OUT) {
    for (int32_t i = 0; i < nrets; ++i) {
      if (rets[i].tag != RB_TENSOR || !rets[i].v.t)
        return set_error(RB_E_TYPE, op->name + ": a destination is no tensor");
    }
  }
  return RB_OK;
}

int32_t missing_argument(const Op& op, int32_t i) {
  return set_error(RB_E_TYPE,
                   op.name + ": the argument '" + op.params[i].name_text + "' is missing");
}

void check_derivative(const char* what, const Op& op, const RbValue* args, const RbValue* outs) {
  for (int32_t i = 0; i < op.info.nargs; ++i) {
    if (__builtin_expect(fits_derivative(op, i, args[i]), 1)) continue;
    fail(RB_E_TYPE, "%s of %s: the argument '%s' cannot be %s", what, op.name.c_str(),
         op.params[i].name, text(args[i]).c_str());
  }
  for (int32_t i = 0; i < op.info.nrets; ++i) {
    if (__builtin_expect(stands_for_tensor(outs[i]), 1)) continue;
    fail(RB_E_TYPE, "%s of %s: result %d cannot be %s", what, op.name.c_str(), i,
         text(outs[i]).c_str());
  }
}

bool is_moved(const RbValue& v) { return (v.tag == RB_TENSOR && v.v.t) || v.tag == RB_ZERO; }

void fail_moved(const char* what, const Op& op, const std::string& which, const RbValue& v) {
  fail(RB_E_TYPE, "%s of %s: the %s cannot be %s", what, op.name.c_str(), which.c_str(),
       text(v).c_str());
}

}  // namespace rabbet

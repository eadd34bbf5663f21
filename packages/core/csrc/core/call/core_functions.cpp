#include "call/core_functions.h"

#include <algorithm>
#include <cstring>

#include "call/added_dtypes.h"
#include "call/decomp_functions.h"
#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/fallback.h"
#include "call/kernel_arguments.h"
#include "device/backends.h"
#include "device/capture.h"
#include "device/deleters.h"
#include "device/streams.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "tensor/memory_format.h"
#include "tensor/overlap.h"
#include "thread/error.h"
#include "thread/settings.h"
#include "thread/source.h"

namespace rabbet {

const Op* copy_op() {
  static const Op* const copy = find_op("copy");
  return copy;
}

void tell_of_sync(int backend, int device, const char* what) {
  const SyncMode mode = sync_mode();
  if (__builtin_expect(mode == SyncMode::kDefault, 1)) return;
  const char* line = call_source();
  const std::string text = "called a synchronizing operation of " + device_text(backend, device) +
                           ": " + what + " waits for it" +
                           (line ? std::string("; at ") + line : std::string());
  if (mode == SyncMode::kError) fail(RB_E_STATE, "%s", text.c_str());
  check(warn_user(text.c_str()));
}

namespace {

void run_empty(const Op& op, int backend, int device, const RbValue* args, int nargs,
               RbValue* rets) {
  Inferred inferred;
  infer(op, args, nargs, inferred);
  const TensorSpec& spec = inferred.rets[0];
  int64_t space[kMaxDims];
  rets[0] = value_tensor(tensor_new(backend, device, spec.dtype, spec.ndim, spec.shape,
                                    inherited_strides(op, false, args, nargs, spec, 0, space)));
}

void run_to_device(const Op&, int, int, const RbValue* args, int, RbValue* rets) {
  const auto target = args[1].v.dev;
  rets[0] = value_tensor(on_device(args[0].v.t, target.backend, target.index).release_ownership());
}

void run_contiguous_clone(const Op& op, int, int, const RbValue* args, int, RbValue* rets) {
  const RbTensor* src = args[0].v.t;
  int64_t strides[kMaxDims];
  const MemoryFormat format = numbered_format(args[1].v.i, src->ndim, op.name.c_str());
  format_strides(format, src->ndim, src->shape, strides);
  TensorRef out(
      tensor_new(src->backend, src->device.id, src->dtype_id, src->ndim, src->shape, strides));
  if (src->backend != kMeta) copy_tensor(src, out.get());
  rets[0] = value_tensor(out.release_ownership());
}

struct CoreOp {
  const char* name;
  decltype(Op::core_fn) fn;
};
const CoreOp kCoreOps[] = {{"empty", run_empty},
                           {"empty_like", run_empty},
                           {"to_device", run_to_device},
                           {"contiguous_clone", run_contiguous_clone}};

// Within one backend the `copy` kernel serves; it casts and takes any strides.
void copy_by_kernel(const RbTensor* src, RbTensor* dst) {
  const RbValue args[2] = {value_tensor(dst), value_tensor(const_cast<RbTensor*>(src))};
  RbValue ret = value_tensor(dst);
  check(call(copy_op(), args, 2, &ret, 1, RB_CALL_OUT));
}

TensorRef row_major(const RbTensor* t) {
  if (t->flags & RB_T_CONTIGUOUS) return TensorRef::share(const_cast<RbTensor*>(t));
  static const Op* const clone = find_op("clone");
  TensorRef out(tensor_new(t->backend, t->device.id, t->dtype_id, t->ndim, t->shape, nullptr));
  const RbValue arg = value_tensor(const_cast<RbTensor*>(t));
  RbValue ret = value_tensor(out.get());
  check(call(clone, &arg, 1, &ret, 1, RB_CALL_OUT));
  return out;
}

bool is_pinned_for(int backend, const RbTensor* t) {
  const Block* block = block_of(impl(t));
  if (!block) return false;
  const Heap& heap = heap_of_block(block);
  return heap.kind == MemoryKind::kPinned && heap.backend == backend;
}

bool device_copy(int backend, const RbTensor* src, const RbTensor* dst) {
  const RbDevices* devices = backend_entry(backend).desc.devices;
  if (!devices || !devices->copy) return false;
  const int device = dst->backend == backend ? dst->device.id : src->device.id;
  check_device(backend, device);
  const RbTensor* host = src->backend == dst->backend ? nullptr
                         : src->backend == backend    ? dst
                                                      : src;
  const bool nonblocking = host && thread_state().nonblocking && is_pinned_for(backend, host);
  if (host) check_not_capturing(backend, device, "a copy between the device and the host");
  if (host && !nonblocking) tell_of_sync(backend, device, "a copy between the device and the host");
  void* stream = current_stream(thread_state(), backend, device);
  check_backend_code(backend, "copy",
                     [&] { return devices->copy(devices->self, src, dst, stream, nonblocking); });
  if (nonblocking) {
    auto* block = const_cast<Block*>(block_of(impl(host)));
    heap_of_block(block).record_stream(block, {device, stream});
  } else if (host) {
    run_due_deleters();
  }
  return true;
}

// Row-major blocks of one dtype on different devices.
void copy_block(const RbTensor* from, const RbTensor* to) {
  const uint64_t nbytes = static_cast<uint64_t>(from->numel) * kDTypes[from->dtype_id].itemsize;
  const bool from_host = has_host_memory(from->backend), to_host = has_host_memory(to->backend);
  if (from_host && to_host) {
    std::memcpy(to->data, from->data, nbytes);
    return;
  }
  // A backend copies within itself, and to and from host memory.
  if (from->backend != to->backend && !from_host && !to_host) {
    const int cpu = default_backend();
    TensorRef between(tensor_new(cpu, 0, from->dtype_id, from->ndim, from->shape, nullptr));
    copy_block(from, between.get());
    return copy_block(between.get(), to);
  }
  if (!device_copy(to->backend, from, to) && !device_copy(from->backend, from, to)) {
    fail(RB_E_DEVICE, "no way to copy from %s to %s: neither backend offers `copy`",
         backend_name(from->backend), backend_name(to->backend));
  }
}

// The memory of a tensor without gaps as a row-major block.
TensorRef as_block(const RbTensor* t) {
  if (t->flags & RB_T_CONTIGUOUS) return TensorRef::share(const_cast<RbTensor*>(t));
  static const Op* const as_strided = find_op("as_strided");
  const int64_t size = t->numel, stride = 1;
  const RbValue args[3] = {value_tensor(const_cast<RbTensor*>(t)), value_ints(&size, 1),
                           value_ints(&stride, 1)};
  return call1(as_strided, args, 3);
}

// Whether both have one dtype and lie in memory in the same way. Shapes are equal.
bool same_layout(const RbTensor* a, const RbTensor* b) {
  if (a->dtype_id != b->dtype_id) return false;
  return (a->flags & b->flags & RB_T_CONTIGUOUS) ||
         std::equal(a->strides, a->strides + a->ndim, b->strides);
}

}  // namespace

void core_attach(Op& op) {
  for (const CoreOp& entry : kCoreOps) {
    if (op.name == entry.name) op.core_fn = entry.fn;
  }
  attach_decomp(op);
}

void copy_tensor(const RbTensor* src, RbTensor* dst) {
  if (is_added(src->dtype_id) || is_added(dst->dtype_id)) return copy_converted(src, dst);
  if (src->backend == dst->backend && src->device.id == dst->device.id)
    return copy_by_kernel(src, dst);
  if (src->backend == kMeta) fail(RB_E_NOTIMPL, "Cannot copy out of meta tensor; no data!");
  // Devices copy blocks of one dtype that lie in one order; casts and other orders are made on the
  // source's side, or on the other where the source's device has no kernels.
  static const Op* const clone = find_op("clone");
  const bool as_it_lies =
      is_dense(src) && (same_layout(src, dst) || !clone->table[src->backend].fn);
  TensorRef from = as_it_lies ? TensorRef::share(const_cast<RbTensor*>(src)) : row_major(src);
  if (!as_it_lies && from->dtype_id != dst->dtype_id) {
    TensorRef cast(
        tensor_new(src->backend, src->device.id, dst->dtype_id, src->ndim, src->shape, nullptr));
    copy_by_kernel(from.get(), cast.get());
    from = cast;
  }
  TensorRef to = TensorRef::share(dst);
  if (!same_layout(from.get(), dst)) {
    to = TensorRef(tensor_new(dst->backend, dst->device.id, from->dtype_id, from->ndim, from->shape,
                              from->strides));
  }
  copy_block(as_block(from.get()).get(), as_block(to.get()).get());
  if (to.get() != dst) copy_by_kernel(to.get(), dst);
}

namespace {
// Whether a copy of `t` that need not wait is one in pinned memory of the host.
bool goes_to_pinned(const RbTensor* t, int backend) {
  return backend == default_backend() && t->backend != kMeta && !has_host_memory(t->backend) &&
         (t->flags & RB_T_CONTIGUOUS) && device_table(t->backend).pinned;
}
}  // namespace

TensorRef on_device(const RbTensor* t, int backend, int device) {
  if (thread_state().nonblocking && goes_to_pinned(t, backend)) {
    TensorRef out(
        tensor_in(MemoryKind::kPinned, t->backend, t->device.id, t->dtype_id, t->ndim, t->shape));
    copy_tensor(t, out.get());
    return out;
  }
  int64_t strides[kMaxDims];
  TensorRef out(tensor_new(backend, device, t->dtype_id, t->ndim, t->shape,
                           preserved_strides(t, strides) ? strides : nullptr));
  if (backend != kMeta) copy_tensor(t, out.get());
  return out;
}

const Op& cast_op() {
  static const Op* const op = find_op("cast");
  return *op;
}

TensorRef call_cast(RbTensor* t, int dtype) {
  RbValue args[2] = {value_tensor(t), value_none()};
  args[1].tag = RB_DTYPE;
  args[1].v.i = dtype;
  return call1(&cast_op(), args, 2);
}

}  // namespace rabbet

#include "call/dry_run.h"

#include <algorithm>
#include <vector>

#include "call/check_call.h"
#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/fallback.h"
#include "call/kernel_arguments.h"
#include "call/mixed_devices.h"
#include "device/backends.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

// Nothing sees what is not a real call.
class NoLayers {
 public:
  NoLayers() : include_(state_.include), exclude_(state_.exclude), depth_(state_.depth) {
    state_.include = 0;
    state_.exclude = ~(kBackendMask | uint64_t{1} << kCompositeSlot);
    state_.depth = 0;
  }
  ~NoLayers() {
    state_.include = include_;
    state_.exclude = exclude_;
    state_.depth = depth_;
  }
  NoLayers(const NoLayers&) = delete;
  NoLayers& operator=(const NoLayers&) = delete;

 private:
  ThreadState& state_ = thread_state();
  uint64_t include_, exclude_;
  int32_t depth_;
};

// The arguments with tensors of their geometry on `meta` in place of tensors.
class Twins {
 public:
  Twins(const Op& op, const RbValue* args, int32_t nargs) : values(args, args + nargs) {
    for (int32_t i = nargs; i < op.info.nargs; ++i) {
      if (!op.params[i].has_default) check(missing_argument(op, i));
      values.push_back(op.params[i].default_value);
    }
    nargs = op.info.nargs;
    lists_.resize(nargs);
    for (int32_t i = 0; i < nargs; ++i) {
      RbValue& v = values[i];
      if (v.tag == RB_TENSOR) {
        v.v.t = twin(v.v.t);
      } else if (v.tag == RB_TENSORS) {
        for (uint32_t k = 0; k < v.len; ++k)
          lists_[i].push_back(v.v.ts[k] ? twin(v.v.ts[k]) : nullptr);
        v.v.ts = lists_[i].data();
      } else if (op.params[i].type == RB_A_DEVICE) {
        if (v.tag == RB_DEVICE) named_ = {v.v.dev.backend, v.v.dev.index};
        device_at_ = i;
      }
    }
  }

  /// Let what the call makes be on `meta` too; returns where it would be.
  CallDevice place(const Op& op) {
    if (device_at_ >= 0) {
      values[device_at_].tag = RB_DEVICE;
      values[device_at_].v.dev = {kMeta, 0};
    } else if (first_.backend < 0) {
      fail(RB_E_NOTIMPL, "infer: %s has neither a tensor nor a device among its arguments",
           op.name.c_str());
    }
    if (named_.backend >= 0) return named_;
    return first_.backend >= 0 ? first_ : CallDevice{default_backend(), 0};
  }

  std::vector<RbValue> values;

 private:
  RbTensor* twin(const RbTensor* t) {
    if (first_.backend < 0) first_ = {t->backend, t->device.id};
    made_.emplace_back(t->flags & RB_T_COMPOSITE
                           ? tensor_shown(t->dtype_id, t->ndim, t->shape, t->strides)
                           : tensor_new(kMeta, 0, t->dtype_id, t->ndim, t->shape, t->strides));
    return made_.back().get();
  }

  std::vector<TensorRef> made_;
  std::vector<std::vector<RbTensor*>> lists_;
  CallDevice first_{-1, 0}, named_{-1, 0};
  int32_t device_at_ = -1;
};

}  // namespace

CallDevice dry_run(const Op& op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets) {
  Twins twins(op, args, nargs);
  const CallDevice where = twins.place(op);
  const NoLayers below;
  check(call(&op, twins.values.data(), static_cast<int32_t>(twins.values.size()), rets, nrets));
  return where;
}

namespace {

// The results of the call on `meta`, or nothing where only running it says what they are. Throws
// what is wrong with the arguments.
bool find_results(const Op& op, const RbValue* args, int32_t nargs, Results& results,
                  CallDevice& where) {
  const bool data_decides =
      op.shape_rule == ShapeRule::kData || op.shape_rule == ShapeRule::kKernel;
  const int32_t rc =
      guarded([&] { where = dry_run(op, args, nargs, results.values, op.info.nrets); });
  if (rc == RB_OK) return true;
  if (rc == RB_E_NOTIMPL && (data_decides || op.has_decomp())) return false;
  rethrow(rc);
}

// Whether something runs the operator on the backend whatever the dtype is.
bool runs_all_dtypes(const Op& op, int backend) {
  return op.core_fn || op.has_decomp() || op.rules[kDecompRule].fn || op.is_view() ||
         falls_back(backend) || backend == kMeta;
}

void check_kernel(const Op& op, int backend, const RbValue* args, int32_t nargs) {
  if (runs_all_dtypes(op, backend)) return;
  const Handler& handler = op.table[backend];
  if (!handler.fn) fail_no_kernel(op, backend);
  if (handler.flags & RB_K_ALLOCATES) return;  // it says itself what it takes
  Inferred inferred;
  infer(op, args, nargs, inferred);
  const int compute = compute_dtype(op, args, nargs, inferred);
  if (!(handler.dtype_mask >> compute & 1) && !is_added(compute))
    fail_dtype(op, handler, backend, compute);
}

void check_destinations(const Op& op, const RbValue* args, int32_t nargs, const RbValue* rets,
                        const Results& results, CallDevice where) {
  for (int32_t i = 0; i < results.n; ++i) {
    const RbTensor* target = rets[i].v.t;
    const RbTensor* made = results.values[i].tag == RB_TENSOR ? results.values[i].v.t : nullptr;
    if (!made) {
      check_protection(op, target, "the destination");
      continue;
    }
    TensorSpec spec;
    spec.dtype = made->dtype_id;
    spec.ndim = made->ndim;
    std::copy(made->shape, made->shape + made->ndim, spec.shape);
    check_destination(op, target, spec, where.backend, where.device, args, nargs);
    if (same_shape(target, spec)) {
      check_writable(op, target, "the destination");
    } else {  // it is given the shape
      check_protection(op, target, "the destination");
    }
    if (op.info.kind == RB_KIND_ELEMENTWISE) check_overlap(op, target, args, nargs);
  }
}

}  // namespace

void check_runs(const Op& op, const RbValue* args, int32_t nargs, const RbValue* rets,
                int32_t nrets) {
  RbValue all[RB_MAX_ARGS];
  std::copy(args, args + nargs, all);
  for (int32_t i = nargs; i < op.info.nargs; ++i) {
    if (!op.params[i].has_default) check(missing_argument(op, i));
    all[i] = op.params[i].default_value;
  }
  Results results(nrets);
  CallDevice where{kMeta, 0};
  const bool known = find_results(op, all, op.info.nargs, results, where);
  DimScratch scratch;
  if (op.dim_args) wrap_dims(op, all, op.info.nargs, scratch);
  if (op.mutates) check_mutated(op, all, op.info.nargs);
  if (known) check_kernel(op, where.backend, all, op.info.nargs);
  if (rets && known) check_destinations(op, all, op.info.nargs, rets, results, where);
}

}  // namespace rabbet

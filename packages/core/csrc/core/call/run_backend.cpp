#include "call/run_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "call/accumulate.h"
#include "call/added_dtypes.h"
#include "call/check_results.h"
#include "call/core_functions.h"
#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/fallback.h"
#include "call/formula_kernels.h"
#include "call/formulas.h"
#include "call/kernel_arguments.h"
#include "call/mixed_devices.h"
#include "call/uniform.h"
#include "device/backends.h"
#include "device/capture.h"
#include "formula/formula.h"
#include "formula/formula_kernel.h"
#include "rules/checks.h"
#include "rules/infer.h"
#include "rules/plain_shape.h"
#include "rules/rule_functions.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor/overlap.h"
#include "tensor/promotion.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

namespace {

void check_alive(const Op& op) {
  if (!op.retired) return;
  fail(RB_E_STATE,
       "%s: this operator was taken back, or another definition has replaced it (it was registered "
       "by %s)",
       op.name.c_str(), op.provider.c_str());
}

inline bool can_decompose(const Op& op) { return op.has_decomp() || op.rules[kDecompRule].fn; }

// Whether RB_E_NOTIMPL of the kernel means that it leaves the call to the decomposition, or to the
// CPU.
inline bool can_decline(const Op& op, const Handler& handler, int backend) {
  return is_formula(handler) || can_decompose(op) || falls_back(backend);
}

inline bool is_elementwise(const Op& op, const Handler& handler) {
  return op.info.kind == RB_KIND_ELEMENTWISE || is_formula(handler);
}

// ---- the ways to a result

constexpr int kLongestChain = 16;  // of views of views

// A view at the end of a long chain becomes a view of the chain's first tensor: others need not be
// kept, and what asks how it was made need not go through them all.
[[gnu::noinline]] void shorten_chain(Tensor* view) {
  if (is_made_of_parts(view)) return;
  static const Op* const strided_view = find_op("strided_view");
  Tensor* first = view;
  for (int links = view->view->depth; links; --links) first = first->view->parent;
  if (is_made_of_parts(first) || !same_memory(first, view)) return;
  const int64_t bytes = static_cast<char*>(view->data) - static_cast<char*>(first->data);
  const RbValue args[6] = {value_tensor(first),
                           value_ints(view->shape, view->ndim),
                           value_ints(view->strides, view->ndim),
                           value_int(bytes / kDTypes[view->dtype_id].itemsize),
                           value_ints(first->shape, first->ndim),
                           value_ints(first->strides, first->ndim)};
  const TensorRef hold = TensorRef::share(first);
  replace_view_record(view, strided_view, args, 6);
}

void make_views(const RbCall* c, const Op& op, const RbValue* args, int nargs, RbValue* rets) {
  if (op.has_checks()) check_arguments(op, args, nargs);
  if (c->flags & RB_CALL_OUT)
    fail(RB_E_ARG, "%s: a view has no in-place or out= form", op.name.c_str());
  Tensor* view = make_view(op, args, nargs);
  rets[0] = value_tensor(view);
  if (op.detached) return;
  set_view_record(view, &op, args, nargs);
  if (__builtin_expect(view->view->depth > kLongestChain, 0)) shorten_chain(view);
}

// Whether the kernel takes row-major tensors only, for its results too: where the record says how
// those lie, kernels see to it.
inline bool wants_row_major(const Op& op, const Handler& handler) {
  return handler.flags & RB_K_CONTIGUOUS && op.layout_rule == LayoutRule::kRowMajor;
}

// Destinations that hold part of the results: those that cannot be written directly are made.
int32_t run_into(const RbCall* c, const Op& op, const Handler& handler, int backend,
                 const Inferred& inferred, const RbValue* args, const RbValue* values, int nargs,
                 RbValue* rets, int32_t nrets) {
  RbValue dests[kMaxRets];
  TensorRef fresh[kMaxRets];
  for (int32_t i = 0; i < nrets; ++i) {
    const TensorSpec& spec = inferred.rets[i];
    RbTensor* target = rets[i].v.t;
    const bool elementwise = is_elementwise(op, handler);
    int64_t space[kMaxDims];
    const auto strides = [&] {
      return inherited_strides(op, elementwise, args, nargs, spec, i, space);
    };
    prepare_destination(
        op, target, spec, backend, c->device_index, args, nargs,
        resized_as_result(op, elementwise) && !same_shape(target, spec) ? strides() : nullptr);
    check_device(backend, target->device.id);
    if (elementwise) check_overlap(op, target, args, nargs);
    const bool row_major = wants_row_major(op, handler);
    if (target->dtype_id == spec.dtype && !hazard(op, elementwise, target, values, nargs) &&
        (!row_major || target->flags & RB_T_CONTIGUOUS)) {
      dests[i] = value_tensor(target);
      continue;
    }
    fresh[i] = TensorRef(tensor_new(backend, c->device_index, spec.dtype, spec.ndim, spec.shape,
                                    row_major ? nullptr : strides()));
    dests[i] = value_tensor(fresh[i].get());
  }
  const int32_t rc = run_handler(op, handler, backend, c, values, nargs, dests, nrets);
  if (rc != RB_OK) return rc;
  for (int32_t i = 0; i < nrets; ++i) {
    if (fresh[i]) {
      copy_tensor(fresh[i].get(), rets[i].v.t);
    } else {
      bump_version(rets[i].v.t);
    }
  }
  return RB_OK;
}

struct Fresh {
  RbValue values[kMaxRets];
  int n = 0;
  ~Fresh() {
    for (int i = 0; i < n; ++i) release(values[i].v.t);
  }
};

// Row-major results, moved to where elementwise results lie.
[[gnu::noinline]] int32_t run_row_major(const RbCall* c, const Op& op, const Handler& handler,
                                        int backend, const Inferred& inferred, const RbValue* args,
                                        const RbValue* values, int nargs, RbValue* rets,
                                        int32_t nrets) {
  Fresh fresh;
  const auto made = [&](int i, const int64_t* strides) {
    const TensorSpec& spec = inferred.rets[i];
    return tensor_new(backend, c->device_index, spec.dtype, spec.ndim, spec.shape, strides);
  };
  for (; fresh.n < nrets; ++fresh.n) fresh.values[fresh.n] = value_tensor(made(fresh.n, nullptr));
  const int32_t rc = run_handler(op, handler, backend, c, values, nargs, fresh.values, nrets);
  if (rc != RB_OK) return rc;
  const bool elementwise = is_elementwise(op, handler);
  for (int32_t i = 0; i < nrets; ++i) {
    int64_t space[kMaxDims];
    const int64_t* strides =
        inherited_strides(op, elementwise, args, nargs, inferred.rets[i], i, space);
    if (!strides) continue;
    TensorRef laid(made(i, strides));
    copy_tensor(fresh.values[i].v.t, laid.get());
    release(fresh.values[i].v.t);
    fresh.values[i] = value_tensor(laid.release_ownership());
  }
  std::copy(fresh.values, fresh.values + nrets, rets);
  fresh.n = 0;
  return RB_OK;
}

// New results.
int32_t run_fresh(const RbCall* c, const Op& op, const Handler& handler, int backend,
                  const Inferred& inferred, const RbValue* args, const RbValue* values, int nargs,
                  RbValue* rets, int32_t nrets) {
  if (__builtin_expect(wants_row_major(op, handler), 0))
    return run_row_major(c, op, handler, backend, inferred, args, values, nargs, rets, nrets);
  Fresh fresh;
  for (; fresh.n < nrets; ++fresh.n) {
    const TensorSpec& spec = inferred.rets[fresh.n];
    int64_t space[kMaxDims];
    fresh.values[fresh.n] = value_tensor(tensor_new(
        backend, c->device_index, spec.dtype, spec.ndim, spec.shape,
        inherited_strides(op, is_elementwise(op, handler), args, nargs, spec, fresh.n, space)));
  }
  const int32_t rc = run_handler(op, handler, backend, c, values, nargs, fresh.values, nrets);
  if (rc != RB_OK) return rc;
  for (int32_t i = 0; i < nrets; ++i) rets[i] = fresh.values[i];
  fresh.n = 0;
  return RB_OK;
}

// False: the kernel has declined, and nothing has been done.
bool run_kernel(const RbCall* c, const Op& op, const Handler& handler, int backend,
                const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  Inferred inferred;
  const bool formula = is_formula(handler);
  if (formula && !formula_kernels.load(std::memory_order_relaxed)) return false;
  if (formula && op.info.kind == RB_KIND_COMPOSITE) {
    if (nrets != 1 || !infer_plain(op, args, nargs, inferred) ||
        !(handler.dtype_mask >> inferred.rets[0].dtype & 1))
      return false;
  } else {
    infer(op, args, nargs, inferred);
    const int compute = compute_dtype(op, args, nargs, inferred);
    if (!(handler.dtype_mask >> compute & 1)) {
      if (can_decline(op, handler, backend)) {
        set_error(RB_OK, "");  // the message is one of an earlier call
        return false;
      }
      if (is_added(compute)) {
        run_into_added_dtype(c, op, compute, args, nargs, rets, nrets);
        return true;
      }
      fail_dtype(op, handler, backend, compute);
    }
    // What is computed by a formula has the dtype that it computes in, or says whether something
    // holds.
    const int result = inferred.rets[0].dtype;
    if (formula && result != compute && result != RB_BOOL8) return false;
  }
  if (op.mutates) check_mutated(op, args, nargs);

  const auto run = (c->flags & RB_CALL_OUT) ? run_into : run_fresh;
  int32_t rc;
  if (__builtin_expect(fits_kernel(op, handler, inferred.compute, args, nargs), 1)) {
    rc = run(c, op, handler, backend, inferred, args, args, nargs, rets, nrets);
  } else {
    Arguments a(args, nargs);
    prepare(op, handler, inferred.compute, a, nargs);
    rc = run(c, op, handler, backend, inferred, args, a.values, nargs, rets, nrets);
  }
  if (rc == RB_E_NOTIMPL && can_decline(op, handler, backend)) return false;
  check_kernel_result(op, backend, handler, rc);
  if (op.mutates) bump_mutated(op, args, nargs);
  return true;
}

// That the results are what the record says, on the device of the arguments; `whose()` names the
// function. Releases them before it throws.
template <class Whose>
void check_results(const Op& op, Whose&& whose, const RbValue* args, int nargs, RbValue* results,
                   int32_t nrets) {
  const RbTensor* first = op.first_tensor >= 0 && args[op.first_tensor].tag == RB_TENSOR
                              ? args[op.first_tensor].v.t
                              : nullptr;
  try {
    Inferred inferred;
    const bool said = says_results(op);
    if (said) infer(op, args, nargs, inferred);
    for (int32_t i = 0; i < nrets; ++i) {
      if (results[i].tag != RB_TENSOR) continue;
      const RbTensor& got = *results[i].v.t;
      if (first && !takes_device(op)) check_result_device(op, whose, i, got, *first);
      if (said) check_result(op, whose, i, got, inferred.rets[i]);
    }
  } catch (...) {
    for (int32_t i = 0; i < nrets; ++i) value_release(&results[i]);
    throw;
  }
}

// False: the kernel has declined, and nothing has been done.
bool run_allocating(const RbCall* c, const Op& op, const Handler& handler, int backend,
                    const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  Arguments a(args, nargs);
  prepare(op, handler, -1, a, nargs);
  if (op.mutates) check_mutated(op, args, nargs);
  RbValue results[kMaxRets];
  for (int32_t i = 0; i < nrets; ++i) results[i] = value_none();
  RbCall plain = *c;
  plain.flags &= ~static_cast<uint32_t>(RB_CALL_OUT);
  const int32_t rc = run_handler(op, handler, backend, &plain, a.values, nargs, results, nrets);
  if (rc == RB_E_NOTIMPL && can_decline(op, handler, backend)) return false;
  check_kernel_result(op, backend, handler, rc);
  check_given(op, handler.provider, results, nrets);
  if (op.mutates) bump_mutated(op, args, nargs);
  if (handler.flags & (RB_K_NEEDS_GIL | kCheckedFlag))
    check_results(
        op,
        [&] {
          return std::string("the kernel for '") + backend_name(backend) + "' [" +
                 (handler.provider ? handler.provider : "?") + "]";
        },
        args, nargs, results, nrets);
  if (c->flags & RB_CALL_OUT) {
    write_back(op, results, nrets, rets, args, nargs);
  } else {
    std::copy(results, results + nrets, rets);
  }
  return true;
}

void run_meta(const RbCall* c, const Op& op, const RbValue* args, int nargs, RbValue* rets,
              int32_t nrets) {
  if (op.shape_rule == ShapeRule::kData) {
    fail(RB_E_NOTIMPL,
         "%s: the result's shape depends on the data, which a meta tensor does not have",
         op.name.c_str());
  }
  Inferred inferred;
  infer(op, args, nargs, inferred);
  for (int32_t i = 0; i < nrets; ++i) {
    const TensorSpec& spec = inferred.rets[i];
    const bool elementwise = op.info.kind == RB_KIND_ELEMENTWISE;
    int64_t space[kMaxDims];
    const int64_t* strides = inherited_strides(op, elementwise, args, nargs, spec, i, space);
    if (c->flags & RB_CALL_OUT) {
      prepare_destination(op, rets[i].v.t, spec, kMeta, 0, args, nargs,
                          resized_as_result(op, elementwise) ? strides : nullptr);
      bump_version(rets[i].v.t);
    } else {
      rets[i] = value_tensor(tensor_new(kMeta, 0, spec.dtype, spec.ndim, spec.shape, strides));
    }
  }
}

void run_core_function(const RbCall* c, const Op& op, int backend, const RbValue* args, int nargs,
                       RbValue* rets, int32_t nrets) {
  if (!(c->flags & RB_CALL_OUT)) return op.core_fn(op, backend, c->device_index, args, nargs, rets);
  RbValue results[kMaxRets];
  op.core_fn(op, backend, c->device_index, args, nargs, results);
  write_back(op, results, nrets, rets, args, nargs);
}

void run_general(const RbCall* c, const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c->op);
  const uint64_t backends = c->keys[0] & kBackendMask;
  if (nargs > kMaxArgs || nrets > kMaxRets)
    fail(RB_E_ARG, "%s: too many arguments", op.name.c_str());
  if (is_mixed(backends, args, nargs)) {
    return run_mixed(c, backends, args, nargs, rets, nrets);
  }
  check_alive(op);
  const int backend = __builtin_ctzll(backends);
  const Handler& handler = op.table[backend];
  // A function that an operator is made of may draw random numbers, as the levels around it say.
  const bool made_of_others =
      !handler.fn && op.has_decomp() && (op.rules[kDecompRule].fn || is_loaded_decomp(op));
  const LayersOff layers_off(made_of_others ? uint64_t{1} << kTransformSlot : 0);
  const bool on_meta = backend == kMeta && !handler.fn &&
                       (op.info.kind != RB_KIND_COMPOSITE || op.rules[kShapeRule].fn);
  if (!handler.fn && !on_meta && !op.core_fn) {
    if (can_decompose(op)) return decompose(c, args, nargs, rets, nrets);
    if (falls_back(backend)) return run_on_cpu(c, op, backend, "", args, nargs, rets, nrets);
    fail_no_kernel(op, backend);
  }
  if (op.has_checks()) check_arguments(op, args, nargs);
  if (op.core_fn) return run_core_function(c, op, backend, args, nargs, rets, nrets);
  if (on_meta) return run_meta(c, op, args, nargs, rets, nrets);
  const int added = find_added_dtype(c, args, nargs, rets, nrets);
  if (added >= 0 && !(handler.dtype_mask >> added & 1))
    return run_added_dtype(c, op, handler, args, nargs, rets, nrets);
  if (__builtin_expect(handler.flags & RB_K_NO_CAPTURE, 0)) {
    const std::string kernel = op.name + ": its kernel";
    check_not_capturing(backend, c->device_index, kernel.c_str());
    tell_of_sync(backend, c->device_index, kernel.c_str());
  }
  const bool allocates = handler.flags & RB_K_ALLOCATES;
  if (allocates && op.shape_rule == ShapeRule::kCore) validate(op, args, nargs);
  const bool done = allocates ? run_allocating(c, op, handler, backend, args, nargs, rets, nrets)
                              : run_kernel(c, op, handler, backend, args, nargs, rets, nrets);
  if (done) return;
  const bool decomposes = can_decompose(op);
  const std::string why = decomposes ? std::string() : thread_state().message;
  set_error(RB_OK, "");
  if (decomposes) return decompose(c, args, nargs, rets, nrets);
  run_on_cpu(c, op, backend, why, args, nargs, rets, nrets);
}

inline bool has_one_backend(const CallPlan& c) {
  const uint64_t backends = c.keys[0] & kBackendMask;
  return !(backends & (backends - 1));
}

// ---- calls that need a new result and the kernel

// Handle a kernel that did not return RB_OK and left no result.
[[gnu::cold]] int32_t finish_alone(const CallPlan& c, const Op& op, int backend, int32_t rc,
                                   const RbValue* args, int32_t nargs, RbValue* rets) {
  const Handler& handler = op.table[backend];
  if (rc == RB_E_NOTIMPL && can_decline(op, handler, backend))
    return guarded([&] { run_general(&c, args, nargs, rets, 1); });
  return guarded([&] { check_kernel_result(op, backend, handler, rc); });
}

// Whether the kernel takes the arguments unchanged, so that only the shape of the result must be
// inferred; `dtype` is then the dtype of the result.
inline bool find_direct_dtype(const CallPlan& c, const Op& op, const Handler& handler,
                              const RbValue* args, int& dtype) {
  const uint32_t needed = handler.flags & RB_K_CONTIGUOUS ? RB_T_CONTIGUOUS : 0;
  const RbTensor* first = c.uniform;  // if set, the arguments need no look
  for (uint64_t rest = first ? 0 : op.tensor_args; rest; rest &= rest - 1) {
    const RbValue& v = args[__builtin_ctzll(rest)];
    if (v.tag == RB_NONE) continue;
    if (v.tag != RB_TENSOR) return false;
    const RbTensor* t = v.v.t;
    if ((t->flags & needed) != needed) return false;
    if (!first) first = t;
    if (t->dtype_id != first->dtype_id || t->device.id != first->device.id) return false;
  }
  const bool asked = op.dtype_arg >= 0 && args[op.dtype_arg].tag == RB_DTYPE;
  uint32_t accepted = op.accepted;
  if (first) {
    dtype = first->dtype_id;
    if (asked) return false;
    accepted &= ~uint32_t{1u << kBool | 1u << kInt};
  } else if (asked) {
    dtype = static_cast<int>(args[op.dtype_arg].v.i);
  } else if (op.dtype_rule == DTypeRule::kDefault) {
    dtype = default_dtype();
  } else {
    return false;
  }
  return handler.dtype_mask >> dtype & 1 && accepted >> kDTypes[dtype].category & 1;
}

// A call of an operator whose kernel is_direct.
[[gnu::noinline]] int32_t run_direct(const CallPlan& c, const RbValue* args, int32_t nargs,
                                     RbValue* rets, int32_t) {
  const Op& op = *impl(c.op);
  const int backend = __builtin_ctzll(c.keys[0] & kBackendMask);
  const Handler& handler = op.table[backend];
  int dtype;
  if (!find_direct_dtype(c, op, handler, args, dtype) || op.rules[kShapeRule].fn || !handler.fn)
    return guarded([&] { run_general(&c, args, nargs, rets, 1); });
  try {
    Inferred inferred;
    plain_shape(op, args, nargs, inferred);
    const TensorSpec& spec = inferred.rets[0];
    rets[0] =
        value_tensor(tensor_new(backend, c.device_index, dtype, spec.ndim, spec.shape, nullptr));
  } catch (...) {
    return store_current_exception();
  }
  int32_t rc;
  {
    const LayersOff layers_off;
    rc = run_handler(op, handler, backend, &c, args, nargs, rets, 1);
  }
  if (__builtin_expect(rc != RB_OK, 0)) {
    value_release(&rets[0]);
    return finish_alone(c, op, backend, rc, args, nargs, rets);
  }
  return RB_OK;
}

// ---- uniform calls into a destination

// Whether the kernel may write straight to the destination: one of the result's dtype and shape
// that no argument shares memory with, or that is one of them.
inline bool may_write_alone(const CallPlan& c, const Op& op, const RbValue* args, int nargs,
                            const RbValue* rets) {
  const RbTensor* like = c.uniform;
  if (!like || !(c.flags & RB_CALL_OUT) || op.dtype_rule == DTypeRule::kBoolean) return false;
  const Handler& handler = op.table[like->backend];
  if (!handler.fn || !(handler.uniform_dtypes >> like->dtype_id & 1) || formula_is_off(handler))
    return false;
  const RbTensor* target = rets[0].v.t;
  const uint32_t harmless = RB_T_VIEW | thread_state().tensor_flags;
  if (!is_known_device(like->backend, like->device.id) ||
      (target->flags & ~harmless) != RB_T_CONTIGUOUS)
    return false;
  if (target != like && (target->backend != like->backend || !same_kind_and_shape(target, like)))
    return false;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR && args[i].v.t->data != target->data &&
        same_memory(args[i].v.t, target)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int32_t store_kernel_error(const Op& op, const Handler& handler, int backend) noexcept {
  return store_thrown(op.name + ": the kernel for " + backend_name(backend) + " [" +
                      (handler.provider ? handler.provider : "?") + "]");
}

void check_kernel_result(const Op& op, int backend, const Handler& handler, int32_t rc) {
  if (__builtin_expect(rc == RB_OK, 1)) return;
  if (rc == RB_E_DEVICE) guarded([&] { poll_errors(backend); });
  const std::string what =
      std::string(backend_name(backend)) + " [" + (handler.provider ? handler.provider : "?") + "]";
  if (rc == RB_E_NOTIMPL && thread_state().message.empty())
    set_error(rc, op.name + ": the kernel for " + what +
                      " declined the call, and the operator has no decomposition");
  explain(rc, op.name + ": the kernel for " + what);
  add_error_frame("while running " + op.name + " on " + what);
  rethrow(rc);
}

uint64_t uniform_dtypes(const Op& op, const Handler& handler) {
  if (handler.flags & ~(kFormulaFlag | RB_K_MOVES)) return 0;
  const bool elementwise =
      op.info.kind == RB_KIND_ELEMENTWISE && op.dtype_rule != DTypeRule::kGeneral;
  if (op.info.nrets != 1 || op.returns_list || op.has_checks() ||
      !(elementwise || is_formula(handler)))
    return 0;
  uint64_t floating = 0;
  for (int dtype = 0; dtype < RB_DTYPE_COUNT; ++dtype)
    floating |= uint64_t{is_floating(dtype)} << dtype;
  // One that always computes in float64 casts what has another dtype.
  const int only = dtype_by_name(op.compute_text.c_str());
  if (only >= 0) floating &= uint64_t{1} << only;
  return handler.dtype_mask & floating;
}

bool is_direct(const Op& op, const Handler& handler) {
  return !(handler.flags & ~(RB_K_CONTIGUOUS | RB_K_MOVES | RB_K_CONVERTS)) && op.info.nrets == 1 &&
         !op.returns_list && !op.has_checks() && !op.core_fn && !op.by_formula && !op.mutates &&
         !op.factor_args && !op.is_view() && op.info.kind != RB_KIND_ELEMENTWISE &&
         op.layout_rule == LayoutRule::kRowMajor && has_plain_shape(op) &&
         op.dtype_rule != DTypeRule::kGeneral && op.dtype_rule != DTypeRule::kBoolean &&
         (op.dtype_rule != DTypeRule::kDefault || !op.tensor_args);
}

int32_t store_uniform_error(const CallPlan& c) noexcept {
  const int backend = c.uniform->backend;
  return store_kernel_error(*impl(c.op), impl(c.op)->table[backend], backend);
}

int32_t finish_uniform(const CallPlan& c, int32_t rc, const RbValue* args, int32_t nargs,
                       RbValue* rets) {
  return finish_alone(c, *impl(c.op), c.uniform->backend, rc, args, nargs, rets);
}

namespace {
// Calls that are neither views nor direct.
[[gnu::noinline]] int32_t run_others(const CallPlan& c, const RbValue* args, int32_t nargs,
                                     RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c.op);
  const bool one_backend = has_one_backend(c);
  if (one_backend && nrets == 1 && may_write_alone(c, op, args, nargs, rets)) {
    const Handler& handler = op.table[c.uniform->backend];
    int32_t rc;
    try {
      rc = handler.fn(handler.self, &c, args, nargs, rets, 1);
    } catch (...) {
      rc = store_uniform_error(c);
    }
    if (__builtin_expect(rc != RB_OK, 0)) return finish_uniform(c, rc, args, nargs, rets);
    bump_version(rets[0].v.t);
    return RB_OK;
  }
  return guarded([&] { run_general(&c, args, nargs, rets, nrets); });
}

[[gnu::noinline]] int32_t run_view(const CallPlan& c, const RbValue* args, int32_t nargs,
                                   RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c.op);
  if (!has_one_backend(c) || !op.is_view_primitive())
    return run_others(c, args, nargs, rets, nrets);
  return guarded([&] { make_views(&c, op, args, nargs, rets); });
}
}  // namespace

int32_t run_backend(const CallPlan& c, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const Op& op = *impl(c.op);
  if (op.is_view()) return run_view(c, args, nargs, rets, nrets);
  const int backend = __builtin_ctzll(c.keys[0] & kBackendMask);
  if (op.table[backend].flags & kDirectFlag && has_one_backend(c) && !(c.flags & RB_CALL_OUT))
    return run_direct(c, args, nargs, rets, nrets);
  return run_others(c, args, nargs, rets, nrets);
}

namespace {

// Numbers of an operator that computes in integers, without their fractions.
void make_whole(const Op& op, RbValue* values, int nargs, int dtype) {
  for (int i = 0; i < nargs; ++i) {
    if (op.params[i].type != RB_A_SCALAR || values[i].tag != RB_FLOAT) continue;
    check_number_fits(op.base.c_str(), op.params[i].name, values[i], dtype);
    values[i] = value_int(static_cast<int64_t>(values[i].v.f));
  }
}

// Whether the record says of the results what can be known before they are there.
bool foretells(const Op& op) {
  return op.info.kind != RB_KIND_COMPOSITE && !op.dtype_text.empty() && !op.is_view() &&
         !op.returns_list && says_results(op);
}

// The dtypes that the record says. Where a formula comes to a number alone, it says nothing of the
// tensors.
void fit_results(const Op& op, const Inferred& inferred, RbValue* rets, int32_t nrets) {
  for (int32_t i = 0; i < nrets; ++i) {
    if (rets[i].tag != RB_TENSOR) continue;
    const TensorSpec& spec = inferred.rets[i];
    const bool formula = op.info.kind == RB_KIND_ELEMENTWISE && !op.rules[kDecompRule].fn;
    if (formula && !same_shape(rets[i].v.t, spec)) {
      const TensorRef made(std::exchange(rets[i], value_none()).v.t);
      fail(RB_E_PLUGIN, "%s: the formula gave shape %s, the record says %s", op.name.c_str(),
           shape_text(made->ndim, made->shape).c_str(), shape_text(spec.ndim, spec.shape).c_str());
    }
    if (rets[i].v.t->dtype_id == spec.dtype || op.rules[kDecompRule].fn) continue;
    const TensorRef wide(std::exchange(rets[i], value_none()).v.t);
    rets[i] = value_tensor(call_cast(wide.get(), spec.dtype).release_ownership());
  }
}

// The decomposition in the accumulation dtype, where the record asks for that.
void run_accumulating(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  if (op.accumulate == AccumulateRule::kNever || !has_narrow(args, nargs))
    return run_decomp(op, args, nargs, rets, nrets);
  const Widened wide(args, nargs);
  run_decomp(op, wide.values, nargs, rets, nrets);
  round_results(op, args, nargs, rets, nrets);
}

// What an elementwise operator is made of gets its arguments as a kernel would: of the dtype that
// the record says it computes in, or its accumulation dtype: the result is rounded once.
void run_promoted(const Op& op, const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  Inferred inferred;
  if (!foretells(op)) {
    if (op.dtype_rule == DTypeRule::kFloating)
      infer(op, args, nargs, inferred);  // it refuses others
    return run_accumulating(op, args, nargs, rets, nrets);
  }
  infer(op, args, nargs, inferred);
  if (op.info.kind != RB_KIND_ELEMENTWISE || !op.casts || inferred.compute < 0) {
    run_accumulating(op, args, nargs, rets, nrets);
    return fit_results(op, inferred, rets, nrets);
  }
  const bool widens = op.accumulate != AccumulateRule::kNever && is_narrow(inferred.compute);
  const int compute = widens ? RB_F32 : inferred.compute;
  Arguments a(args, nargs);
  bool moved = false;
  replace_tensors(a, nargs, [&](RbTensor* t, int i) {
    const bool moves = (op.compute_args >> i & 1) && t->dtype_id != compute;
    moved |= moves;
    return moves ? call_cast(t, compute) : TensorRef();
  });
  if (dtype_info(compute).category == kInt) make_whole(op, a.values, nargs, compute);
  // A kernel of the formula takes arguments of the dtype that the operator always computes in.
  if (moved && compute == dtype_by_name(op.compute_text.c_str())) {
    for (int i = 0; i < nrets; ++i) rets[i] = value_none();
    check(call(&op, a.values, nargs, rets, nrets));
  } else {
    run_decomp(op, a.values, nargs, rets, nrets);
  }
  if (widens) round_results(op, args, nargs, rets, nrets);
  fit_results(op, inferred, rets, nrets);
}

// What an operator is made of failed. A missing kernel says in which operator it was missed; those
// of plugins are named in every error of their parts, with the place of their record.
[[gnu::cold]] void name_composite(const Op& op) {
  const bool core = op.of_core;
  if (core && thread_state().error.code != RB_E_NOTIMPL) return;
  add_error_frame("while running " + op.name + (core ? "" : " (" + op.file + ")"));
}

void run_parts(const Op& op, const RbValue* args, int nargs, RbValue* rets, int nrets) {
  try {
    run_promoted(op, args, nargs, rets, nrets);
  } catch (...) {
    if (is_recorded()) name_composite(op);
    throw;
  }
  const char* provider = op.rules[kDecompRule].provider;
  if (op.rules[kDecompRule].fn)
    check_results(
        op, [&] { return std::string("the function [") + (provider ? provider : "?") + "]"; }, args,
        nargs, rets, nrets);
}

}  // namespace

namespace {
// The arguments of a call that is written to a destination. One that is the destination, and that a
// layer watches (it may keep it for a derivative), is replaced by a copy of its values before.
struct WithoutTargets {
  RbValue args[kMaxArgs];
  TensorRef copies[kMaxRets];

  WithoutTargets(const RbValue* given, int nargs, const RbValue* rets, int nrets) {
    static const Op* const clone = find_op("clone");
    std::copy(given, given + nargs, args);
    for (int r = 0; r < nrets; ++r) {
      const RbTensor* target = rets[r].v.t;
      if (!(target->keys[0] & ~kBackendMask)) continue;
      for (int i = 0; i < nargs; ++i) {
        if (args[i].tag != RB_TENSOR || args[i].v.t != target) continue;
        if (!copies[r]) {
          RbValue made = value_none();
          const RbValue options[2] = {given[i], value_none()};
          check(call(clone, options, clone->info.nargs, &made, 1, 0));
          copies[r] = TensorRef(made.v.t);
        }
        args[i] = value_tensor(copies[r].get());
      }
    }
  }
};
}  // namespace

void decompose(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c->op);
  check_alive(op);
  if (!op.has_decomp() && !op.rules[kDecompRule].fn)
    fail(RB_E_NOTIMPL, "%s: the operator has no decomposition", op.name.c_str());
  const Nesting nesting(op);
  const AtLevel level(c->level);
  // What it is made of may take more than the operator does.
  validate(op, args, nargs);
  if (op.has_checks()) check_arguments(op, args, nargs);
  if (!(c->flags & RB_CALL_OUT)) return run_parts(op, args, nargs, rets, nrets);
  RbValue results[kMaxRets];
  for (int32_t i = 0; i < nrets; ++i) results[i] = value_none();
  const WithoutTargets given(args, nargs, rets, nrets);
  run_parts(op, given.args, nargs, results, nrets);
  for (int32_t i = 0; i < nrets; ++i) {
    TensorRef result(results[i].v.t);
    write_result(op, result.get(), rets[i].v.t, args, nargs);
  }
}

}  // namespace rabbet

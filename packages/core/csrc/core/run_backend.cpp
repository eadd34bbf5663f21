#include "run_backend.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends.h"
#include "core_functions.h"
#include "dispatch.h"
#include "dtype.h"
#include "error.h"
#include "formula.h"
#include "formula_kernel.h"
#include "infer.h"
#include "overlap.h"
#include "rule_functions.h"
#include "runtime.h"
#include "shape_rules.h"
#include "thread_state.h"

namespace rabbet {

namespace {

constexpr uint64_t kBackendMask = (1ull << kBackendBits) - 1;
constexpr int kMaxArgs = 32;

// Below every layer: what core does on its own behalf is not recorded, cast or batched again.
class LayersOff {
 public:
  explicit LayersOff(uint64_t keep = 0) : state_(thread_state()), before_(state_.exclude) {
    state_.exclude |= ~(kBackendMask | keep);
  }
  ~LayersOff() { state_.exclude = before_; }
  LayersOff(const LayersOff&) = delete;
  LayersOff& operator=(const LayersOff&) = delete;

 private:
  ThreadState& state_;
  uint64_t before_;
};

inline void bump_version(const RbTensor* t) {
  impl(t)->storage->version.fetch_add(1, std::memory_order_relaxed);
}

std::string dtype_names(uint64_t mask) {
  std::string names;
  for (int d = 0; d < RB_DTYPE_COUNT; ++d) {
    if (mask >> d & 1) names += (names.empty() ? "" : ", ") + std::string(kDTypes[d].name);
  }
  return names;
}

std::string device_text(const RbTensor* t) {
  const std::string name = backend_name(t->backend);
  return backend_traits[t->backend].known_devices > 1 && t->backend != kMeta
             ? name + ":" + std::to_string(t->device.id)
             : name;
}

// Two tensors of the arguments on different devices, with their arguments' indices.
struct Mixed {
  const RbTensor *first = nullptr, *other = nullptr;
  int first_arg = 0, other_arg = 0;
};
Mixed find_mixed(const RbValue* args, int nargs) {
  Mixed m;
  for (int i = 0; i < nargs; ++i) {
    const bool is_list = args[i].tag == RB_TENSORS;
    if (!is_list && args[i].tag != RB_TENSOR) continue;
    for (uint32_t j = 0; j < (is_list ? args[i].len : 1); ++j) {
      const RbTensor* t = is_list ? args[i].v.ts[j] : args[i].v.t;
      if (!t) continue;
      if (!m.first) {
        m.first = t;
        m.first_arg = i;
      } else if (t->backend != m.first->backend || t->device.id != m.first->device.id) {
        m.other = t;
        m.other_arg = i;
        return m;
      }
    }
  }
  return m;
}

[[noreturn]] void fail_mixed(const Op& op, const RbValue* args, int nargs) {
  const Mixed m = find_mixed(args, nargs);
  if (!m.other) fail(RB_E_DEVICE, "%s: expected all tensors on one device", op.name.c_str());
  fail(RB_E_DEVICE, "%s: expected all tensors on one device, but '%s' is on %s and '%s' is on %s",
       op.name.c_str(), op.params[m.first_arg].name, device_text(m.first).c_str(),
       op.params[m.other_arg].name, device_text(m.other).c_str());
}

// Whether the call mixes devices: of several backends, or several of the one that it is for.
bool is_mixed(uint64_t backends, const RbValue* args, int nargs) {
  if (backends & (backends - 1)) return true;
  const int backend = __builtin_ctzll(backends);
  return backend != kMeta && backend_traits[backend].known_devices > 1 &&
         find_mixed(args, nargs).other;
}

void check_alive(const Op& op) {
  if (!op.retired) return;
  fail(RB_E_STATE,
       "%s: this operator was taken back, or another definition has replaced it (it was registered "
       "by %s)",
       op.name.c_str(), op.provider.c_str());
}

[[noreturn]] void fail_no_kernel(const Op& op, int backend) {
  std::string have;
  for (int id = 1; id < backend_count(); ++id) {
    if (op.table[id].fn) have += (have.empty() ? "" : ", ") + std::string(backend_name(id));
  }
  fail(RB_E_NOTIMPL,
       "%s: no kernel for '%s' in %s, and the operator has no decomposition; kernels exist for: %s",
       op.name.c_str(), backend_name(backend), backend_entry(backend).provider.c_str(),
       have.empty() ? "no backend" : have.c_str());
}

// ---- destinations

inline bool is_formula(const Handler& handler) { return (handler.flags & RB_K_FORMULA) != 0; }

inline bool is_elementwise(const Op& op, const Handler& handler) {
  return op.info.kind == RB_KIND_ELEMENTWISE || is_formula(handler);
}

void check_writable(const Op& op, const RbTensor* t, const char* what) {
  if (t->flags & RB_T_READONLY) {
    fail(RB_E_STATE,
         "%s: %s is read-only memory (it came from a read-only array); clone() it first",
         op.name.c_str(), what);
  }
  if ((t->flags & RB_T_INFERENCE) && !(thread_state().tensor_flags & RB_T_INFERENCE)) {
    fail(RB_E_STATE,
         "%s: inplace update to inference tensor outside InferenceMode is not allowed: %s was made "
         "in inference_mode(); clone() it to get a normal tensor",
         op.name.c_str(), what);
  }
  for (int i = 0; i < t->ndim; ++i) {
    if (t->strides[i] == 0 && t->shape[i] > 1) {
      fail(RB_E_ARG,
           "%s: several elements of %s refer to one place in memory (an expanded tensor); clone() "
           "it before writing",
           op.name.c_str(), what);
    }
  }
}

void check_destination(const Op& op, RbTensor* target, const TensorSpec& spec) {
  check_writable(op, target, "the destination");
  if (target->ndim == 1 && target->shape[0] == 0 && count_elements(spec.ndim, spec.shape) != 0) {
    // out=torch.empty(0) is PyTorch's idiom for "allocate it for me".
    TensorRef fresh(tensor_new(target->backend, target->device.id, target->dtype_id, spec.ndim,
                               spec.shape, nullptr));
    tensor_set_data(impl(target), fresh.get());
  }
  if (target->ndim != spec.ndim ||
      std::memcmp(target->shape, spec.shape, spec.ndim * sizeof(int64_t))) {
    fail(RB_E_ARG, "%s: the destination has shape %s, but the result has shape %s", op.name.c_str(),
         shape_text(target->ndim, target->shape).c_str(),
         shape_text(spec.ndim, spec.shape).c_str());
  }
  if (!can_cast(spec.dtype, target->dtype_id)) {
    fail(RB_E_TYPE, "%s: a result of dtype %s cannot be written to a destination of dtype %s",
         op.name.c_str(), kDTypes[spec.dtype].name, kDTypes[target->dtype_id].name);
  }
}

// Dense strides for `shape` in the order in which the dimensions of `like` lie in memory.
void strides_in_order_of(const RbTensor* like, const int64_t* shape, int64_t* strides) {
  int order[kMaxDims];
  for (int i = 0; i < like->ndim; ++i) order[i] = like->ndim - 1 - i;
  std::stable_sort(order, order + like->ndim,
                   [&](int a, int b) { return like->strides[a] < like->strides[b]; });
  int64_t dense = 1;
  for (int i = 0; i < like->ndim; ++i) {
    strides[order[i]] = dense;
    dense *= std::max<int64_t>(shape[order[i]], 1);
  }
}

// Strides of result `i` where it is not row-major, or null: an elementwise result keeps the memory
// layout of the first input of its shape, as in PyTorch; others follow the record's `layout`.
const int64_t* inherited_strides(const Op& op, bool elementwise, const RbValue* args, int nargs,
                                 const TensorSpec& spec, int i, int64_t* space) {
  if (static_cast<size_t>(i) < op.layout_args.size()) {
    const RbValue& v = args[op.layout_args[i]];
    if (v.tag != RB_TENSOR || v.v.t->ndim != spec.ndim || v.v.t->flags & RB_T_CONTIGUOUS)
      return nullptr;
    strides_in_order_of(v.v.t, spec.shape, space);
    return space;
  }
  if (!elementwise) return nullptr;
  for (int k = 0; k < nargs; ++k) {
    if (args[k].tag != RB_TENSOR) continue;
    const RbTensor* t = args[k].v.t;
    if (t->ndim != spec.ndim || std::memcmp(t->shape, spec.shape, spec.ndim * sizeof(int64_t)))
      continue;
    return !(t->flags & RB_T_CONTIGUOUS) && is_dense(t) ? t->strides : nullptr;
  }
  return nullptr;
}

// ---- arguments

struct Arguments {  // a private copy of the values, with what keeps replaced tensors alive
  Arguments(const RbValue* args, int nargs) { std::memcpy(values, args, nargs * sizeof(RbValue)); }
  RbValue values[kMaxArgs];
  std::vector<TensorRef> kept;
  std::vector<std::vector<RbTensor*>> lists;
};

TensorRef cast(const RbTensor* t, int dtype) {
  TensorRef out(tensor_new(t->backend, t->device.id, dtype, t->ndim, t->shape,
                           !(t->flags & RB_T_CONTIGUOUS) && is_dense(t) ? t->strides : nullptr));
  copy_tensor(t, out.get());
  return out;
}

TensorRef row_major(const RbTensor* t) {
  TensorRef out(tensor_new(t->backend, t->device.id, t->dtype_id, t->ndim, t->shape, nullptr));
  copy_tensor(t, out.get());
  return out;
}

// Replace each tensor of the arguments for which `replace` returns one.
template <class Replace>
void replace_tensors(Arguments& a, int nargs, const Replace& replace) {
  for (int i = 0; i < nargs; ++i) {
    RbValue& v = a.values[i];
    if (v.tag == RB_TENSOR) {
      TensorRef fresh = replace(v.v.t, i);
      if (!fresh) continue;
      v.v.t = fresh.get();
      a.kept.push_back(std::move(fresh));
    } else if (v.tag == RB_TENSORS) {
      std::vector<RbTensor*> list(v.v.ts, v.v.ts + v.len);
      bool changed = false;
      for (RbTensor*& t : list) {
        TensorRef fresh = t ? replace(t, i) : TensorRef();
        if (!fresh) continue;
        t = fresh.get();
        a.kept.push_back(std::move(fresh));
        changed = true;
      }
      if (!changed) continue;
      a.lists.push_back(std::move(list));
      v.v.ts = a.lists.back().data();
    }
  }
}

// Whether `prepare` has anything to do.
bool fits_kernel(const Op& op, const Handler& handler, int compute, const RbValue* args,
                 int nargs) {
  const uint64_t cast_args = compute >= 0 && op.casts ? op.compute_args : 0;
  const bool dense = (handler.flags & RB_K_CONTIGUOUS) != 0;
  for (uint64_t rest = op.tensor_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs) break;
    const bool is_list = args[i].tag == RB_TENSORS;
    if (!is_list && args[i].tag != RB_TENSOR) continue;
    for (uint32_t k = 0; k < (is_list ? args[i].len : 1); ++k) {
      const RbTensor* t = is_list ? args[i].v.ts[k] : args[i].v.t;
      if (!t) continue;
      if ((cast_args >> i & 1) && t->dtype_id != compute) return false;
      if (dense && !(t->flags & RB_T_CONTIGUOUS)) return false;
    }
  }
  return true;
}

void prepare(const Op& op, const Handler& handler, int compute, Arguments& a, int nargs) {
  if (compute >= 0 && op.casts) {
    replace_tensors(a, nargs, [&](const RbTensor* t, int i) {
      return (op.compute_args >> i & 1) && t->dtype_id != compute ? cast(t, compute) : TensorRef();
    });
  }
  if (handler.flags & RB_K_CONTIGUOUS) {
    replace_tensors(a, nargs, [&](const RbTensor* t, int) {
      return t->flags & RB_T_CONTIGUOUS ? TensorRef() : row_major(t);
    });
  }
}

int compute_dtype(const Op& op, const RbValue* args, int nargs, const Inferred& inferred) {
  if (inferred.compute >= 0) return inferred.compute;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) return args[i].v.t->dtype_id;
  }
  return op.info.nrets ? inferred.rets[0].dtype : RB_F32;
}

void check_dtype(const Op& op, const Handler& handler, int backend, int compute) {
  if (handler.dtype_mask >> compute & 1) return;
  fail(RB_E_NOTIMPL, "%s on '%s' supports %s; got %s", op.name.c_str(), backend_name(backend),
       dtype_names(handler.dtype_mask).c_str(), kDTypes[compute].name);
}

void bump_mutated(const Op& op, const RbValue* args, int nargs, bool check_only) {
  if (!op.mutates) return;
  for (int i = 0; i < nargs; ++i) {
    if (!(op.params[i].flags & RB_ARG_MUTATED)) continue;
    if (args[i].tag == RB_TENSOR) {
      if (check_only) {
        check_writable(op, args[i].v.t, op.params[i].name);
      } else {
        bump_version(args[i].v.t);
      }
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t j = 0; j < args[i].len; ++j) {
        if (check_only) {
          check_writable(op, args[i].v.ts[j], op.params[i].name);
        } else {
          bump_version(args[i].v.ts[j]);
        }
      }
    }
  }
}

// ---- the ways to a result

void make_views(const RbCall* c, const Op& op, const RbValue* args, int nargs, RbValue* rets) {
  if (c->flags & RB_CALL_OUT)
    fail(RB_E_ARG, "%s: a view has no in-place or out= form", op.name.c_str());
  Tensor* view = make_view(op, args, nargs);
  if (!op.detached) set_view_record(view, &op, args, nargs);
  rets[0] = value_tensor(view);
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
    check_destination(op, target, spec);
    if (is_elementwise(op, handler)) check_overlap(op, target, args, nargs);
    if (target->dtype_id == spec.dtype &&
        !hazard(op, is_elementwise(op, handler), target, values, nargs)) {
      dests[i] = value_tensor(target);
      continue;
    }
    int64_t space[kMaxDims];
    fresh[i] = TensorRef(tensor_new(
        backend, c->device_index, spec.dtype, spec.ndim, spec.shape,
        inherited_strides(op, is_elementwise(op, handler), args, nargs, spec, i, space)));
    dests[i] = value_tensor(fresh[i].get());
  }
  const int32_t rc = handler.fn(handler.self, c, values, nargs, dests, nrets);
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

// New results.
int32_t run_fresh(const RbCall* c, const Op& op, const Handler& handler, int backend,
                  const Inferred& inferred, const RbValue* args, const RbValue* values, int nargs,
                  RbValue* rets, int32_t nrets) {
  struct Fresh {
    RbValue values[kMaxRets];
    int n = 0;
    ~Fresh() {
      for (int i = 0; i < n; ++i) release(values[i].v.t);
    }
  } fresh;
  for (; fresh.n < nrets; ++fresh.n) {
    const TensorSpec& spec = inferred.rets[fresh.n];
    int64_t space[kMaxDims];
    fresh.values[fresh.n] = value_tensor(tensor_new(
        backend, c->device_index, spec.dtype, spec.ndim, spec.shape,
        inherited_strides(op, is_elementwise(op, handler), args, nargs, spec, fresh.n, space)));
  }
  const int32_t rc = handler.fn(handler.self, c, values, nargs, fresh.values, nrets);
  if (rc != RB_OK) return rc;
  for (int32_t i = 0; i < nrets; ++i) rets[i] = fresh.values[i];
  fresh.n = 0;
  return RB_OK;
}

// Results of their own, then copied into the destinations.
void write_back(const Op& op, RbValue* results, int32_t nrets, RbValue* rets) {
  for (int32_t i = 0; i < nrets; ++i) {
    TensorRef result(results[i].v.t);
    TensorSpec spec;
    spec.ndim = result->ndim;
    spec.dtype = result->dtype_id;
    std::copy(result->shape, result->shape + result->ndim, spec.shape);
    check_destination(op, rets[i].v.t, spec);
    copy_tensor(result.get(), rets[i].v.t);
  }
}

// False: a kernel of a whole formula has declined, and nothing has been done.
bool run_kernel(const RbCall* c, const Op& op, const Handler& handler, int backend,
                const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  Inferred inferred;
  if (is_formula(handler)) {
    if (nrets != 1 || !infer_plain(op, args, nargs, inferred) ||
        !(handler.dtype_mask >> inferred.rets[0].dtype & 1))
      return false;
  } else {
    infer(op, args, nargs, inferred);
    check_dtype(op, handler, backend, compute_dtype(op, args, nargs, inferred));
  }
  bump_mutated(op, args, nargs, true);

  const auto run = (c->flags & RB_CALL_OUT) ? run_into : run_fresh;
  int32_t rc;
  if (__builtin_expect(fits_kernel(op, handler, inferred.compute, args, nargs), 1)) {
    rc = run(c, op, handler, backend, inferred, args, args, nargs, rets, nrets);
  } else {
    Arguments a(args, nargs);
    prepare(op, handler, inferred.compute, a, nargs);
    rc = run(c, op, handler, backend, inferred, args, a.values, nargs, rets, nrets);
  }
  if (rc == RB_E_NOTIMPL && is_formula(handler)) return false;
  check_kernel_result(op, backend, handler, rc);
  bump_mutated(op, args, nargs, false);
  return true;
}

// Whether the record says what the results of a Python kernel are. (Those of plugins are trusted.)
bool says_results(const Op& op) {
  return op.shape_rule != ShapeRule::kData && op.shape_rule != ShapeRule::kKernel &&
         !op.returns_list && !op.is_view() &&
         (op.info.kind != RB_KIND_COMPOSITE || !op.shape_text.empty());
}

void check_results(const Op& op, int backend, const Handler& handler, const RbValue* args,
                   int nargs, const RbValue* results, int32_t nrets) {
  Inferred inferred;
  infer(op, args, nargs, inferred);
  for (int32_t i = 0; i < nrets; ++i) {
    const RbTensor& got = *results[i].v.t;
    const TensorSpec& spec = inferred.rets[i];
    const bool fits =
        got.ndim == spec.ndim && !std::memcmp(got.shape, spec.shape, spec.ndim * sizeof(int64_t));
    if (fits && got.dtype_id == spec.dtype) continue;
    fail(fits ? RB_E_TYPE : RB_E_ARG,
         "%s: the kernel for '%s' [%s] returned %s of shape %s and dtype %s; by the record it has "
         "shape %s and dtype %s",
         op.name.c_str(), backend_name(backend), handler.provider ? handler.provider : "?",
         op.ret_names[i].c_str(), shape_text(got.ndim, got.shape).c_str(),
         kDTypes[got.dtype_id].name, shape_text(spec.ndim, spec.shape).c_str(),
         kDTypes[spec.dtype].name);
  }
}

void run_allocating(const RbCall* c, const Op& op, const Handler& handler, int backend,
                    const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  Arguments a(args, nargs);
  prepare(op, handler, -1, a, nargs);
  bump_mutated(op, args, nargs, true);
  RbValue results[kMaxRets];
  for (int32_t i = 0; i < nrets; ++i) results[i] = value_none();
  RbCall plain = *c;
  plain.flags &= ~static_cast<uint32_t>(RB_CALL_OUT);
  check_kernel_result(op, backend, handler,
                      handler.fn(handler.self, &plain, a.values, nargs, results, nrets));
  bump_mutated(op, args, nargs, false);
  if ((handler.flags & RB_K_NEEDS_GIL) && says_results(op)) {
    try {
      check_results(op, backend, handler, args, nargs, results, nrets);
    } catch (...) {
      for (int32_t i = 0; i < nrets; ++i) value_release(&results[i]);
      throw;
    }
  }
  if (c->flags & RB_CALL_OUT) {
    write_back(op, results, nrets, rets);
  } else {
    std::copy(results, results + nrets, rets);
  }
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
    if (c->flags & RB_CALL_OUT) {
      check_destination(op, rets[i].v.t, spec);
      bump_version(rets[i].v.t);
    } else {
      int64_t space[kMaxDims];
      rets[i] = value_tensor(tensor_new(
          kMeta, 0, spec.dtype, spec.ndim, spec.shape,
          inherited_strides(op, op.info.kind == RB_KIND_ELEMENTWISE, args, nargs, spec, i, space)));
    }
  }
}

void run_core_function(const RbCall* c, const Op& op, int backend, const RbValue* args, int nargs,
                       RbValue* rets, int32_t nrets) {
  if (!(c->flags & RB_CALL_OUT)) return op.core_fn(op, backend, c->device_index, args, nargs, rets);
  RbValue results[kMaxRets];
  op.core_fn(op, backend, c->device_index, args, nargs, results);
  write_back(op, results, nrets, rets);
}

// `copy` is what brings values from one device to another: the source is moved first.
void copy_between(const RbCall* c, const RbValue* args, RbValue* rets, int32_t nrets) {
  const RbTensor *target = args[0].v.t, *src = args[1].v.t;
  const TensorRef moved(tensor_new(target->backend, target->device.id, src->dtype_id, src->ndim,
                                   src->shape, nullptr));
  if (target->backend != kMeta) copy_tensor(src, moved.get());
  const RbValue here[2] = {args[0], value_tensor(moved.get())};
  check(call(impl(c->op), here, 2, rets, nrets, c->flags & RB_CALL_OUT));
}

void run_general(const RbCall* c, const RbValue* args, int nargs, RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c->op);
  const uint64_t backends = c->keys[0] & kBackendMask;
  if (nargs > kMaxArgs || nrets > kMaxRets)
    fail(RB_E_ARG, "%s: too many arguments", op.name.c_str());
  if (is_mixed(backends, args, nargs)) {
    static const Op* const copy = find_op("copy");
    if (&op != copy) fail_mixed(op, args, nargs);
    const LayersOff layers_off(0);
    return copy_between(c, args, rets, nrets);
  }
  check_alive(op);
  const int backend = __builtin_ctzll(backends);
  const Handler& handler = op.table[backend];
  // A function that an operator is made of may draw random numbers, as the levels around it say.
  const bool made_of_others = !handler.fn && op.rules[kDecompRule].fn && op.has_decomp();
  const LayersOff layers_off(made_of_others ? uint64_t{1} << kTransformSlot : 0);
  if (op.core_fn) return run_core_function(c, op, backend, args, nargs, rets, nrets);
  if (backend == kMeta && (op.info.kind != RB_KIND_COMPOSITE || op.rules[kShapeRule].fn))
    return run_meta(c, op, args, nargs, rets, nrets);
  if (!handler.fn) {
    if (!op.has_decomp() && !op.rules[kDecompRule].fn) fail_no_kernel(op, backend);
    return decompose(c, args, nargs, rets, nrets);
  }
  if (handler.flags & RB_K_ALLOCATES)
    return run_allocating(c, op, handler, backend, args, nargs, rets, nrets);
  if (!run_kernel(c, op, handler, backend, args, nargs, rets, nrets))
    decompose(c, args, nargs, rets, nrets);
}

// ---- the quick way: an elementwise call on contiguous tensors of one shape and one floating dtype

inline bool is_number(const RbValue& v) { return v.tag >= RB_BOOL && v.tag <= RB_FLOAT; }

// The tensor whose shape, dtype and device the result has, or null.
inline const RbTensor* uniform_input(const RbValue* args, int nargs) {
  const RbTensor* first = nullptr;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) {
      const RbTensor* t = args[i].v.t;
      if (!(t->flags & RB_T_CONTIGUOUS)) return nullptr;
      if (!first) {
        if (kDTypes[t->dtype_id].category != kFloat) return nullptr;
        first = t;
      } else if (t->dtype_id != first->dtype_id || t->ndim != first->ndim ||
                 t->device.id != first->device.id) {
        return nullptr;
      } else {
        for (int d = 0; d < t->ndim; ++d) {
          if (t->shape[d] != first->shape[d]) return nullptr;
        }
      }
    } else if (!is_number(args[i]) && args[i].tag != RB_STR && args[i].tag != RB_NONE) {
      return nullptr;
    }
  }
  return first;
}

// Whether the quick way knows how to run `op` with this handler.
inline bool is_quick(const Op& op, const Handler& handler) {
  if (!handler.fn) return false;
  if (handler.flags)
    return handler.flags == RB_K_FORMULA && formula_kernels.load(std::memory_order_relaxed);
  return op.info.kind == RB_KIND_ELEMENTWISE && op.dtype_rule != DTypeRule::kGeneral;
}

// Destination of an in-place call that the quick way may write to directly.
inline bool plain_destination(const RbTensor* target, const RbTensor* like, const RbValue* args,
                              int nargs) {
  const uint32_t harmless = RB_T_VIEW | thread_state().tensor_flags;
  if (target->dtype_id != like->dtype_id || (target->flags & ~harmless) != RB_T_CONTIGUOUS ||
      target->ndim != like->ndim)
    return false;
  for (int d = 0; d < like->ndim; ++d) {
    if (target->shape[d] != like->shape[d]) return false;
  }
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR && args[i].v.t->data != target->data &&
        impl(args[i].v.t)->storage == impl(target)->storage) {
      return false;
    }
  }
  return true;
}

}  // namespace

void check_kernel_result(const Op& op, int backend, const Handler& handler, int32_t rc) {
  if (__builtin_expect(rc == RB_OK, 1)) return;
  add_error_frame("while running " + op.name + " on " + backend_name(backend) + " [" +
                  (handler.provider ? handler.provider : "?") + "]");
  rethrow(rc);
}

int32_t run_backend(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets,
                    int32_t nrets) {
  const Op& op = *impl(c->op);
  const uint64_t backends = c->keys[0] & kBackendMask;
  if (__builtin_expect(nrets == 1 && !(backends & (backends - 1)), 1)) {
    const Handler& handler = op.table[__builtin_ctzll(backends)];
    const RbTensor* like = is_quick(op, handler) ? uniform_input(args, nargs) : nullptr;
    if (like && (handler.dtype_mask >> like->dtype_id & 1)) {
      const bool given = (c->flags & RB_CALL_OUT) != 0;
      const bool boolean = op.dtype_rule == DTypeRule::kBoolean;
      if (!given) {
        RbValue dest;
        const int32_t made = guarded([&] {
          const int dtype = boolean ? +RB_BOOL8 : +like->dtype_id;
          dest = value_tensor(has_host_memory(like->backend)
                                  ? tensor_like(like, dtype)
                                  : tensor_new(like->backend, like->device.id, dtype, like->ndim,
                                               like->shape, nullptr));
        });
        if (made != RB_OK) return made;
        const int32_t rc = handler.fn(handler.self, c, args, nargs, &dest, 1);
        if (__builtin_expect(rc == RB_OK, 1)) {
          rets[0] = dest;
          return RB_OK;
        }
        release(dest.v.t);
        if (rc == RB_E_NOTIMPL && is_formula(handler))
          return guarded([&] { run_general(c, args, nargs, rets, nrets); });
        return guarded([&] { check_kernel_result(op, like->backend, handler, rc); });
      }
      if (!boolean && plain_destination(rets[0].v.t, like, args, nargs)) {
        const int32_t rc = handler.fn(handler.self, c, args, nargs, rets, 1);
        if (__builtin_expect(rc != RB_OK, 0)) {
          if (rc == RB_E_NOTIMPL && is_formula(handler))
            return guarded([&] { run_general(c, args, nargs, rets, nrets); });
          return guarded([&] { check_kernel_result(op, like->backend, handler, rc); });
        }
        bump_version(rets[0].v.t);
        return RB_OK;
      }
    }
  }
  if (op.is_view_primitive() && !(backends & (backends - 1)))
    return guarded([&] { make_views(c, op, args, nargs, rets); });
  return guarded([&] { run_general(c, args, nargs, rets, nrets); });
}

void decompose(const RbCall* c, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c->op);
  check_alive(op);
  if (!op.has_decomp() && !op.rules[kDecompRule].fn)
    fail(RB_E_NOTIMPL, "%s: the operator has no decomposition", op.name.c_str());
  const Nesting nesting(op);
  // What it is made of may take more than the operator does.
  if (op.shape_rule == ShapeRule::kNamed) validate_shapes(op, args, nargs);
  if (!(c->flags & RB_CALL_OUT)) return run_decomp(op, args, nargs, rets, nrets);
  RbValue results[kMaxRets];
  for (int32_t i = 0; i < nrets; ++i) results[i] = value_none();
  run_decomp(op, args, nargs, results, nrets);
  static const Op* const copy = find_op("copy");
  for (int32_t i = 0; i < nrets; ++i) {
    TensorRef result(results[i].v.t);
    RbTensor* target = rets[i].v.t;
    TensorSpec spec;
    spec.ndim = result->ndim;
    spec.dtype = result->dtype_id;
    std::copy(result->shape, result->shape + result->ndim, spec.shape);
    check_destination(op, target, spec);
    // A full call: when a layer asked for the decomposition, it sees the write.
    const RbValue copy_args[2] = {value_tensor(target), value_tensor(result.get())};
    RbValue ret = value_tensor(target);
    check(call(copy, copy_args, 2, &ret, 1, RB_CALL_OUT));
  }
}

}  // namespace rabbet

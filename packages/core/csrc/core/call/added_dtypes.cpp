#include "call/added_dtypes.h"

#include <algorithm>

#include "call/core_functions.h"
#include "call/destinations.h"
#include "call/dispatch.h"
#include "call/kernel_arguments.h"
#include "device/backends.h"
#include "rules/infer.h"
#include "tensor/dtype.h"
#include "tensor/overlap.h"
#include "tensor/tensor.h"
#include "thread/error.h"
#include "thread/pool.h"

namespace rabbet {

namespace {

template <class F>
void each_tensor(const RbValue* values, int n, const F& f) {
  for (int i = 0; i < n; ++i) {
    if (values[i].tag == RB_TENSOR) f(values[i].v.t);
    for (uint32_t k = 0; values[i].tag == RB_TENSORS && k < values[i].len; ++k) {
      if (values[i].v.ts[k]) f(values[i].v.ts[k]);
    }
  }
}

TensorRef new_like(const RbTensor* t, int dtype) {
  return TensorRef(tensor_new(t->backend, t->device.id, dtype, t->ndim, t->shape,
                              !(t->flags & RB_T_CONTIGUOUS) && is_dense(t) ? t->strides : nullptr));
}

// The dtype of the header that stands for one of `itemsize` bytes where elements only move.
int carrier(int dtype) {
  switch (kDTypes[dtype].itemsize) {
    case 1:
      return RB_U8;
    case 2:
      return RB_U16;
    case 4:
      return RB_U32;
    case 8:
      return RB_U64;
    default:
      return RB_C128;
  }
}

void set_dtype(RbTensor* t, int dtype) {
  t->dtype_id = static_cast<uint16_t>(dtype);
  t->dtype = kDTypes[dtype].dlpack;
}

// The same memory with elements of another dtype of the same size.
TensorRef seen_as(RbTensor* t, int dtype) {
  TensorRef alias(tensor_share(impl(t), t->ndim, t->shape, t->strides, t->data));
  set_dtype(alias.get(), dtype);
  return alias;
}

// ---- conversions

using Coder = void (*)(const void* from, void* to, int64_t n);

void code(Coder coder, const RbTensor* from, RbTensor* to) {
  struct Ctx {
    Coder coder;
    const char* from;
    char* to;
    int64_t from_size, to_size;
  } ctx{coder, static_cast<const char*>(from->data), static_cast<char*>(to->data),
        kDTypes[from->dtype_id].itemsize, kDTypes[to->dtype_id].itemsize};
  constexpr int64_t kGrain = 1 << 15;
  parallel_for(
      from->numel, kGrain,
      [](int64_t begin, int64_t end, void* p) {
        const Ctx& c = *static_cast<Ctx*>(p);
        c.coder(c.from + begin * c.from_size, c.to + begin * c.to_size, end - begin);
      },
      &ctx);
}

// A tensor without gaps and its conversion lie in memory in the same order.
TensorRef without_gaps(const RbTensor* t) {
  if (is_dense(t)) return TensorRef::share(const_cast<RbTensor*>(t));
  TensorRef out = new_like(t, t->dtype_id);
  copy_tensor(t, out.get());
  return out;
}

// `t`, which lies in host memory, in another dtype; one of the two is added.
TensorRef convert_here(const RbTensor* t, int to) {
  const int from = t->dtype_id;
  const int wide = is_added(from) ? kDTypes[from].compute : kDTypes[to].compute;
  if (is_added(wide)) {
    fail(RB_E_TYPE, "cast: there is no conversion between %s and %s: one of them is opaque",
         kDTypes[from].name, kDTypes[to].name);
  }
  const TensorRef dense = without_gaps(t);
  if (is_added(from)) {
    TensorRef out = new_like(dense.get(), wide);
    code(kDTypes[from].decode, dense.get(), out.get());
    return to == wide ? out : call_cast(out.get(), to);
  }
  const TensorRef source = from == wide ? dense : call_cast(dense.get(), wide);
  TensorRef out = new_like(source.get(), to);
  code(kDTypes[to].encode, source.get(), out.get());
  return out;
}

TensorRef on(int backend, int device, const RbTensor* t) {
  TensorRef out(tensor_new(backend, device, t->dtype_id, t->ndim, t->shape, nullptr));
  copy_tensor(t, out.get());
  return out;
}

// Whether the device's kernel converts between the two.
bool device_converts(int backend, int from, int to) {
  const Handler& handler = cast_op().table[backend];
  const uint64_t both = uint64_t{1} << from | uint64_t{1} << to;
  return handler.fn && (handler.dtype_mask & both) == both;
}

TensorRef convert(const RbTensor* t, int to) {
  if (t->dtype_id == to) return TensorRef::share(const_cast<RbTensor*>(t));
  if (!is_added(t->dtype_id) && !is_added(to)) return call_cast(const_cast<RbTensor*>(t), to);
  if (has_host_memory(t->backend)) return convert_here(t, to);
  if (device_converts(t->backend, t->dtype_id, to)) return call_cast(const_cast<RbTensor*>(t), to);
  const TensorRef host = on(default_backend(), 0, t);
  return on(t->backend, t->device.id, convert_here(host.get(), to).get());
}

// ---- calls

// The call with every tensor of an added dtype, and every such dtype, replaced.
template <class Replace>
void replace_added(Arguments& a, int nargs, const Replace& replace) {
  replace_tensors(
      a, nargs, [&](RbTensor* t, int) { return is_added(t->dtype_id) ? replace(t) : TensorRef(); });
  for (int i = 0; i < nargs; ++i) {
    if (a.values[i].tag == RB_DTYPE && is_added(static_cast<int>(a.values[i].v.i)))
      a.values[i].v.i = kDTypes[a.values[i].v.i].compute;
  }
}

int first_added(const RbValue* args, int nargs) {
  int found = -1;
  const auto look = [&](int dtype) { found = found < 0 && is_added(dtype) ? dtype : found; };
  each_tensor(args, nargs, [&](const RbTensor* t) { look(t->dtype_id); });
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_DTYPE) look(static_cast<int>(args[i].v.i));
  }
  return found;
}

// The one added dtype of the tensors; -1: there are several, or none.
int only_added(const RbValue* args, int nargs) {
  int found = -1;
  bool one = true;
  each_tensor(args, nargs, [&](const RbTensor* t) {
    if (!is_added(t->dtype_id)) return;
    one = one && (found < 0 || found == t->dtype_id);
    found = t->dtype_id;
  });
  return one ? found : -1;
}

// The dtypes that the results have by the record; -1 where only a kernel knows.
void result_dtypes(const Op& op, const RbValue* args, int nargs, int* dtypes) {
  const bool is_made_of_others = op.info.kind == RB_KIND_COMPOSITE && op.shape_text.empty();
  const bool known = op.shape_rule != ShapeRule::kData && op.shape_rule != ShapeRule::kKernel &&
                     !op.returns_list && !is_made_of_others;
  Inferred inferred;
  if (known) infer(op, args, nargs, inferred);
  for (int i = 0; i < op.info.nrets; ++i) dtypes[i] = known ? inferred.rets[i].dtype : -1;
}

// Whether the results are of the dtype that moves, too; throws where the dtypes do not fit.
bool only_moves(const Op& op, int dtype, const RbValue* args, int nargs) {
  int dtypes[kMaxRets];
  result_dtypes(op, args, nargs, dtypes);
  return std::all_of(dtypes, dtypes + op.info.nrets,
                     [&](int result) { return result < 0 || result == dtype; });
}

// Integers carry the elements.
void run_moving(const Op& op, int dtype, const RbValue* args, int nargs, Results& results) {
  const int as = carrier(dtype);
  Arguments a(args, nargs);
  replace_added(a, nargs, [&](RbTensor* t) { return seen_as(t, as); });
  check(call(&op, a.values, nargs, results.values, results.n, 0));
  each_tensor(results.values, results.n, [&](RbTensor* t) {
    if (t->dtype_id == as) set_dtype(t, dtype);
  });
}

// The dtype of a result of which the record does not say it, computed as `made`: what has the dtype
// of the computation, or of its parts, has that of `added` or of its parts.
int dtype_of_result(int made, int added) {
  if (added < 0) return made;
  const int wide = kDTypes[added].compute;
  return made == wide ? added : made == to_real(wide) ? to_real(added) : made;
}

// Convert results to the dtypes they must have: those of `dtypes`, -1 where only the kernel knows.
void round_results(Results& results, const int* dtypes, int added) {
  for (int i = 0; i < results.n; ++i) {
    RbValue& v = results.values[i];
    if (v.tag != RB_TENSOR) continue;
    const int dtype = dtypes[i] >= 0 ? dtypes[i] : dtype_of_result(v.v.t->dtype_id, added);
    if (dtype == v.v.t->dtype_id) continue;
    const TensorRef wide(v.v.t);
    v.v.t = nullptr;
    v = value_tensor(convert(wide.get(), dtype).release_ownership());
  }
}

// Computed in `compute`.
void run_computing(const Op& op, const RbValue* args, int nargs, Results& results) {
  int dtypes[kMaxRets];
  result_dtypes(op, args, nargs, dtypes);
  const int first = first_added(args, nargs);
  Arguments a(args, nargs);
  if (first >= 0 && is_added(kDTypes[first].compute)) {
    fail(RB_E_TYPE, "%s: there is no arithmetic with %s: it is opaque", op.name.c_str(),
         kDTypes[first].name);
  }
  replace_added(a, nargs, [&](RbTensor* t) { return convert(t, kDTypes[t->dtype_id].compute); });
  check(call(&op, a.values, nargs, results.values, results.n, 0));
  if (op.mutates) write_mutated(op, args, a, nargs);
  round_results(results, dtypes, first);
}

// Results, of the dtypes that the caller has or of new ones.
void hand_over(const RbCall* c, const Op& op, Results& results, RbValue* rets, int nrets,
               const RbValue* args, int nargs) {
  results.n = 0;
  if (c->flags & RB_CALL_OUT) return write_back(op, results.values, nrets, rets, args, nargs);
  std::copy(results.values, results.values + nrets, rets);
}

bool is_named(const Op& op, const char* name) { return op.name == name; }

}  // namespace

int find_added_dtype(const RbCall* c, const RbValue* args, int nargs, const RbValue* rets,
                     int nrets) {
  const int found = first_added(args, nargs);
  return found >= 0 || !(c->flags & RB_CALL_OUT) ? found : first_added(rets, nrets);
}

void copy_converted(const RbTensor* src, RbTensor* dst) {
  const TensorRef converted = convert(src, dst->dtype_id);
  const int as = carrier(dst->dtype_id);
  if (is_added(dst->dtype_id)) {
    copy_tensor(seen_as(converted.get(), as).get(), seen_as(dst, as).get());
  } else {
    copy_tensor(converted.get(), dst);
  }
}

void run_added_dtype(const RbCall* c, const Op& op, const Handler& handler, const RbValue* args,
                     int nargs, RbValue* rets, int nrets) {
  Results results(nrets);
  const int moved = handler.flags & RB_K_MOVES ? only_added(args, nargs) : -1;
  if (&op == &cast_op()) {
    TensorRef made = convert(args[0].v.t, static_cast<int>(args[1].v.i));
    if (made.get() == args[0].v.t) {
      made = new_like(args[0].v.t, args[0].v.t->dtype_id);
      copy_tensor(args[0].v.t, made.get());
    }
    results.values[0] = value_tensor(made.release_ownership());
  } else if (is_named(op, "copy") && args[1].tag == RB_TENSOR) {
    const RbTensor* like = args[0].v.t;
    if (c->flags & RB_CALL_OUT && rets[0].v.t == like) {
      check_writable(op, like, "the destination");
      return copy_converted(args[1].v.t, rets[0].v.t);
    }
    TensorRef made = new_like(like, like->dtype_id);
    copy_converted(args[1].v.t, made.get());
    results.values[0] = value_tensor(made.release_ownership());
  } else if (moved >= 0 && only_moves(op, moved, args, nargs)) {
    run_moving(op, moved, args, nargs, results);
  } else {
    run_computing(op, args, nargs, results);
  }
  hand_over(c, op, results, rets, nrets, args, nargs);
}

void run_into_added_dtype(const RbCall* c, const Op& op, int compute, const RbValue* args,
                          int nargs, RbValue* rets, int nrets) {
  Results results(nrets);
  int dtypes[kMaxRets];
  result_dtypes(op, args, nargs, dtypes);
  Arguments a(args, nargs);
  replace_tensors(a, nargs, [&](RbTensor* t, int i) {
    const bool computed = op.params[i].flags & RB_ARG_COMPUTED;
    return computed ? convert(t, kDTypes[compute].compute) : TensorRef();
  });
  check(call(&op, a.values, nargs, results.values, results.n, 0));
  round_results(results, dtypes, compute);
  hand_over(c, op, results, rets, nrets, args, nargs);
}

}  // namespace rabbet

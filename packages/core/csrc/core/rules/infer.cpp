// Shapes and dtypes of results, from the operator's record.
#include "rules/infer.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "formula/formula.h"
#include "formula/formula_value.h"
#include "rules/checks.h"
#include "rules/core_shapes.h"
#include "rules/memo.h"
#include "rules/plain_shape.h"
#include "rules/rule_functions.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "tensor/promotion.h"
#include "thread/error.h"

namespace rabbet {

TensorSpec spec_of(const RbTensor* t) {
  TensorSpec spec;
  spec.ndim = t->ndim;
  spec.dtype = t->dtype_id;
  std::copy(t->shape, t->shape + t->ndim, spec.shape);
  return spec;
}

void broadcast_into(const Op& op, int ndim, const int64_t* shape, TensorSpec& out, int32_t code) {
  if (ndim > kMaxDims) fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  if (ndim > out.ndim) {
    const int grow = ndim - out.ndim;
    std::copy_backward(out.shape, out.shape + out.ndim, out.shape + ndim);
    std::fill(out.shape, out.shape + grow, 1);
    out.ndim = ndim;
  }
  int64_t* to = out.shape + (out.ndim - ndim);
  for (int i = 0; i < ndim; ++i) {
    if (to[i] == shape[i] || shape[i] == 1) continue;
    if (to[i] != 1) {
      fail(code,
           "%s: shapes %s and %s do not broadcast: sizes %lld and %lld in dimension %d differ and "
           "neither is 1",
           op.name.c_str(), shape_text(out.ndim, out.shape).c_str(),
           shape_text(ndim, shape).c_str(), (long long)to[i], (long long)shape[i],
           out.ndim - ndim + i);
    }
    to[i] = shape[i];
  }
}

namespace {

const RbTensor* first_tensor(const Op& op, const RbValue* args) {
  if (op.first_tensor < 0) return nullptr;
  const RbValue& v = args[op.first_tensor];
  if (v.tag == RB_TENSOR) return v.v.t;
  if (v.tag == RB_TENSORS && v.len) return first_joined(v);
  return nullptr;
}

void broadcast(const Op& op, const RbValue* args, int nargs, TensorSpec& out) {
  out.ndim = 0;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) broadcast_into(op, args[i].v.t->ndim, args[i].v.t->shape, out);
  }
}

[[gnu::noinline]] void reduce_dims(const Op& op, const RbValue* args, const RbValue& dim,
                                   bool keepdim, TensorSpec& out) {
  const RbTensor& x = *args[0].v.t;
  bool gone[kMaxDims] = {};
  out.ndim = 0;
  if (dim.tag == RB_INT) {
    if (x.ndim) gone[dim.v.i] = true;
  } else if (dim.tag == RB_INTS && dim.len) {
    for (uint32_t i = 0; i < dim.len; ++i) {
      if (x.ndim) gone[dim.v.is[i]] = true;
    }
  } else {
    std::fill(gone, gone + x.ndim, true);
  }
  for (int d = 0; d < x.ndim; ++d) {
    if (!gone[d])
      out.shape[out.ndim++] = x.shape[d];
    else if (keepdim)
      out.shape[out.ndim++] = 1;
  }
  if (__builtin_expect(x.numel == 0, 0)) check_reducible(op, x, gone);
}

[[gnu::always_inline]] inline void reduce(const Op& op, const RbValue* args, TensorSpec& out) {
  const bool whole = op.dim_arg < 0 || args[op.dim_arg].tag == RB_NONE;
  const bool keepdim = op.keepdim_arg >= 0 && args[op.keepdim_arg].v.i;
  if (!whole || keepdim || !args[0].v.t->numel)
    return reduce_dims(op, args, whole ? value_none() : args[op.dim_arg], keepdim, out);
  out.ndim = 0;
}

void shapes(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  TensorSpec& first = out.rets[0];
  switch (op.shape_rule) {
    case ShapeRule::kBroadcast:
      broadcast(op, args, nargs, first);
      break;
    case ShapeRule::kReduce:
      reduce(op, args, first);
      break;
    case ShapeRule::kCore:
      return core_shapes(op, args, nargs, out);
    case ShapeRule::kSizeArgument: {
      const RbValue& size = args[op.shape_arg];
      if (size.len > kMaxDims)
        fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
      first.ndim = static_cast<int32_t>(size.len);
      for (int d = 0; d < first.ndim; ++d) first.shape[d] = size.v.is[d];
      break;
    }
    case ShapeRule::kSameAsArgument: {
      const RbValue& like = args[op.shape_arg];
      first.ndim = 0;  // a number
      if (like.tag == RB_TENSOR) {
        first.ndim = like.v.t->ndim;
        std::copy(like.v.t->shape, like.v.t->shape + first.ndim, first.shape);
      }
      break;
    }
    case ShapeRule::kFormula:
      first.ndim = eval_shape(op, 0, args, nargs, first.shape);
      if (op.shape_formulas.size() == 1) break;
      for (int i = 1; i < op.info.nrets; ++i)
        out.rets[i].ndim = eval_shape(op, i, args, nargs, out.rets[i].shape);
      return;
      break;
    case ShapeRule::kNamed:
      run_shape_rule(op, args, nargs, out);
      return;
    case ShapeRule::kData:
      fail_formula(op.name,
                   "the shape depends on the data: only a kernel that allocates can say it");
    case ShapeRule::kKernel:
      fail(RB_E_NOTIMPL,
           "%s: the record does not say what shape the result has, which a kernel that fills "
           "results and meta tensors need: add `shape` to it, or a function with library.shape",
           op.name.c_str());
    case ShapeRule::kSameAsFirst: {
      const RbTensor* x = first_tensor(op, args);
      if (!x) fail_formula(op.name, "no tensor argument to take the shape from");
      first.ndim = x->ndim;
      std::copy(x->shape, x->shape + x->ndim, first.shape);
      break;
    }
  }
  for (int i = 1; i < op.info.nrets; ++i) {
    out.rets[i].ndim = first.ndim;
    std::copy(first.shape, first.shape + first.ndim, out.rets[i].shape);
  }
}

int same_dtype(const Op& op, const RbValue* args, int nargs) {
  int first = -1;
  for (uint64_t rest = op.same_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs || args[i].tag != RB_TENSOR) continue;
    if (first < 0) first = i;
    const int have = args[i].v.t->dtype_id, want = args[first].v.t->dtype_id;
    if (__builtin_expect(have == want, 1)) continue;
    fail(RB_E_TYPE, "%s: expected '%s' and '%s' to have the same dtype, but got: %s != %s",
         op.name.c_str(), op.params[first].name, op.params[i].name, kDTypes[want].name,
         kDTypes[have].name);
  }
  return first < 0 ? -1 : args[first].v.t->dtype_id;
}

inline int find_dtype(const Op& op, int ret, const RbValue* args, int nargs) {
  if (op.dtype_arg >= 0 && args[op.dtype_arg].tag == RB_DTYPE && ret == 0) {
    return static_cast<int>(args[op.dtype_arg].v.i);
  }
  switch (op.dtype_rule) {
    case DTypeRule::kFloating: {
      if (op.info.nrets > 1) break;
      const int dtype = promote_arguments(args, nargs, 1ull << op.first_tensor);
      if (is_integral(dtype)) {
        fail(RB_E_DTYPE, "%s: expected a floating or complex dtype, got %s", op.name.c_str(),
             kDTypes[dtype].name);
      }
      return dtype;
    }
    case DTypeRule::kSame:
      return same_dtype(op, args, nargs);
    case DTypeRule::kIntToInt64: {
      const int dtype = promote_arguments(args, nargs, 1ull << op.first_tensor);
      return is_integral(dtype) ? +RB_I64 : dtype;
    }
    case DTypeRule::kDefault:
      return default_dtype();
    case DTypeRule::kPromote:
      return promote_arguments(args, nargs, op.tensor_args);
    case DTypeRule::kFloat: {
      const int dtype = promote_arguments(args, nargs, op.tensor_args);
      return is_integral(dtype) ? default_dtype() : dtype;
    }
    case DTypeRule::kBoolean:
      return RB_BOOL8;
    case DTypeRule::kFirst:
      if (ret == 0) return promote_arguments(args, nargs, op.tensor_args);
      break;
    case DTypeRule::kGeneral:
      break;
  }
  return eval_dtype(op, ret, args, nargs);
}

}  // namespace

int result_dtype(const Op& op, int ret, const RbValue* args, int nargs) {
  return find_dtype(op, ret, args, nargs);
}

namespace {

int compute_dtype(const Op& op, const RbValue* args, int nargs, const Inferred& out) {
  switch (op.compute_rule) {
    case ComputeRule::kNone:
      return -1;
    case ComputeRule::kOut:
      return out.rets[0].dtype;
    case ComputeRule::kPromoteAll:
      return promote_arguments(args, nargs, op.compute_args);
    case ComputeRule::kFormula:
      break;
  }
  return eval_compute(op, args, nargs);
}

// The field `dtypes`: of what the operator computes in, else of its tensors.
void check_dtypes(const Op& op, const RbValue* args, int nargs, int compute) {
  if (__builtin_expect(op.dtypes_text.empty(), 1)) return;
  const int dtype = compute >= 0 ? compute : promote_arguments(args, nargs, op.tensor_args);
  if (dtype >= 0 && !(op.accepted >> kDTypes[dtype].category & 1)) check_accepted(op, dtype);
}

void find_out(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  shapes(op, args, nargs, out);
  for (int i = 0; i < op.info.nrets; ++i) {
    out.rets[i].dtype = i > 0 && op.one_dtype ? out.rets[0].dtype : find_dtype(op, i, args, nargs);
    if (out.rets[i].dtype < 0)
      fail(RB_E_TYPE, "%s: expected at least one tensor argument", op.name.c_str());
  }
  out.compute = compute_dtype(op, args, nargs, out);
  check_dtypes(op, args, nargs, out.compute);
  if (op.factor_args) check_factors(op, args, nargs, out.rets[0].dtype);
}

}  // namespace

void infer(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  if (op.rules[kShapeRule].fn) {
    run_shape_function(op, args, nargs, out);
    out.compute = compute_dtype(op, args, nargs, out);
    return;
  }
  if (!op.by_formula) return find_out(op, args, nargs, out);
  Facts* facts = recall(op, args, nargs);
  if (facts && facts->inferred) {
    std::copy(facts->results.rets, facts->results.rets + op.info.nrets, out.rets);
    out.compute = facts->results.compute;
    return;
  }
  find_out(op, args, nargs, out);
  if (!facts) return;
  // The formulas may have called operators, which use the memory of `facts`.
  facts = recall(op, args, nargs);
  std::copy(out.rets, out.rets + op.info.nrets, facts->results.rets);
  facts->results.compute = out.compute;
  facts->inferred = true;
}

bool has_plain_shape(const Op& op) {
  switch (op.shape_rule) {
    case ShapeRule::kBroadcast:
    case ShapeRule::kReduce:
    case ShapeRule::kSameAsFirst:
    case ShapeRule::kSameAsArgument:
    case ShapeRule::kSizeArgument:
    case ShapeRule::kCore:
      return true;
    default:
      return false;
  }
}

void plain_shape(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  if (op.shape_rule == ShapeRule::kReduce) return reduce(op, args, out.rets[0]);
  if (op.shape_rule == ShapeRule::kCore) return core_shapes(op, args, nargs, out);
  shapes(op, args, nargs, out);
}

void validate(const Op& op, const RbValue* args, int nargs) {
  Inferred out;
  if (op.shape_rule == ShapeRule::kNamed) run_shape_rule(op, args, nargs, out);
  if (op.shape_rule == ShapeRule::kCore) core_shapes(op, args, nargs, out);
  if (op.dtype_rule == DTypeRule::kSame) same_dtype(op, args, nargs);
  check_dtypes(op, args, nargs, -1);
}

namespace {

int64_t wrap_one(const Op& op, int64_t dim, int64_t ndim) {
  const int64_t range = std::max<int64_t>(ndim, 1);
  if (__builtin_expect(dim < -range || dim >= range, 0)) {
    fail(RB_E_INDEX,
         "%s: dim %lld is out of range for a tensor of %lld dimensions, expected %lld to %lld",
         op.name.c_str(), (long long)dim, (long long)ndim, (long long)-range,
         (long long)(range - 1));
  }
  return dim < 0 ? dim + range : dim;
}

}  // namespace

void wrap_dims(const Op& op, RbValue* args, int nargs, DimScratch& scratch) {
  const RbTensor* x = first_tensor(op, args);
  // An empty list has no dimensions to count: the operator's own rule refuses it.
  if (!x && op.first_tensor >= 0 && args[op.first_tensor].tag == RB_TENSORS) return;
  const int64_t ndim = x ? x->ndim : 0;
  for (uint64_t rest = op.dim_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs) break;
    const int type = op.params[i].type;
    RbValue& v = args[i];
    if (type == RB_A_DIM && v.tag == RB_INT) {
      v.v.i = wrap_one(op, v.v.i, ndim);
    } else if (type == RB_A_NEWDIM && v.tag == RB_INT) {
      v.v.i = wrap_one(op, v.v.i, ndim + 1);
    } else if ((type == RB_A_DIMS || type == RB_A_PERM) && v.tag == RB_INTS && v.len) {
      if (scratch.used + static_cast<int>(v.len) > kMaxDims * 2) {
        fail(RB_E_ARG, "%s: '%s' has too many entries", op.name.c_str(), op.params[i].name);
      }
      int64_t* to = scratch.values + scratch.used;
      uint64_t seen = 0;
      for (uint32_t k = 0; k < v.len; ++k) {
        to[k] = wrap_one(op, v.v.is[k], ndim);
        if (seen >> to[k] & 1) {
          fail(RB_E_ARG, "%s: dimension %lld appears twice in '%s'", op.name.c_str(),
               (long long)to[k], op.params[i].name);
        }
        seen |= 1ull << to[k];
      }
      v.v.is = to;
      scratch.used += static_cast<int>(v.len);
    }
  }
}

}  // namespace rabbet

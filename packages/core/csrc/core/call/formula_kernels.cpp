#include "call/formula_kernels.h"

#include "call/dispatch.h"
#include "call/plan.h"
#include "formula/formula_kernel.h"
#include "layer/layers.h"
#include "tensor/dtype.h"
#include "thread/deferral.h"
#include "thread/error.h"
#include "thread/thread_state.h"

namespace rabbet {

std::atomic<bool> formula_kernels{true};

namespace {

constexpr int kMaxValues = RB_MAX_ARGS + 2;  // arguments, a result and its gradient

// Whether `t` can be read, broadcast, where a result like `g` is written.
inline bool fits(const RbTensor* t, const RbTensor* g) {
  if (t->dtype_id != g->dtype_id || t->backend != g->backend || t->device.id != g->device.id ||
      t->ndim > g->ndim)
    return false;
  const int64_t* shape = g->shape + (g->ndim - t->ndim);
  for (int d = 0; d < t->ndim; ++d) {
    if (t->shape[d] != shape[d] && t->shape[d] != 1) return false;
  }
  return true;
}

}  // namespace

bool infer_plain(const Op& op, const RbValue* args, int nargs, Inferred& out) {
  const RbTensor* first = nullptr;
  TensorSpec& spec = out.rets[0];
  spec.ndim = 0;
  out.compute = -1;
  if (!formula_kernels.load(std::memory_order_relaxed)) return false;
  for (int i = 0; i < nargs; ++i) {
    switch (args[i].tag) {
      case RB_TENSOR: {
        const RbTensor* t = args[i].v.t;
        if (!first) first = t;
        if (t->dtype_id != first->dtype_id || kDTypes[t->dtype_id].category != kFloat) return false;
        broadcast_into(op, t->ndim, t->shape, spec);
        break;
      }
      case RB_NONE:
      case RB_BOOL:
      case RB_INT:
      case RB_FLOAT:
      case RB_STR:
        break;
      default:
        return false;
    }
  }
  if (!first) return false;
  spec.dtype = first->dtype_id;
  return true;
}

bool run_vjp_kernel(const Op& op, int argument, const RbValue* args, int nargs, const RbValue* outs,
                    const RbValue* grads, RbValue* result) {
  const Op* derivative = find_derivative(op, argument);
  const int nparams = static_cast<int>(op.params.size());
  if (!derivative || !formula_kernels.load(std::memory_order_relaxed) || op.info.nrets != 1 ||
      grads[0].tag != RB_TENSOR || nparams + 2 > kMaxValues)
    return false;
  const RbTensor* g = grads[0].v.t;
  const Handler& handler = derivative->table[g->backend];
  if (!handler.fn || !(handler.dtype_mask >> g->dtype_id & 1) ||
      kDTypes[g->dtype_id].category != kFloat)
    return false;

  const RbArgInfo& info = op_info(op)->first_arg[argument];
  if (info.reads_args & op.tensor_args & ~info.saves_args)
    return false;  // shapes of what is not kept
  RbValue values[kMaxValues];
  uint64_t keys = keys_of(g);
  int32_t level = g->level;
  auto read = [&](const RbTensor* t) {
    keys |= keys_of(t);
    level |= t->level;
    return fits(t, g);
  };
  for (int i = 0; i < nparams; ++i) {
    values[i] = i < nargs ? args[i] : op.params[i].default_value;
    if (values[i].tag == RB_COMPLEX) return false;
    if ((op.tensor_args & ~info.saves_args) >> i & 1) {
      values[i] = value_none();  // what the formula does not read was not kept
    } else if (values[i].tag == RB_TENSOR && !read(values[i].v.t)) {
      return false;
    }
  }
  values[nparams] = value_none();
  values[nparams + 1] = grads[0];
  if (info.saves_rets & 1) {
    if (outs[0].tag != RB_TENSOR || !read(outs[0].v.t)) return false;
    values[nparams] = outs[0];
  }
  const ThreadState& state = thread_state();
  keys = (keys | (state.include & ~derivative_layers.load(std::memory_order_relaxed))) &
         ~state.exclude & ~deferring_layer();
  // A transform's level runs the derivative on what its tensors stand for, layers that defer calls
  // or ask for it take it as one call; other layers want to see the formula's operators.
  const bool at_level = level && keys >> kBackendBits == uint64_t{1}
                                                             << (kTransformSlot - kBackendBits);
  if (!at_level && (level || keys > kBackendMask)) return false;
  *result = value_none();
  check(call(derivative, values, nparams + 2, result, 1));
  return true;
}

}  // namespace rabbet

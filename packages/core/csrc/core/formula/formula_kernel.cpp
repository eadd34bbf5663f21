// Kernels of whole formulas (RbFormulaKernel): when one may run in place of the formula.
#include "formula/formula_kernel.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "call/dispatch.h"
#include "call/plan.h"
#include "call/run_backend.h"
#include "device/backends.h"
#include "device/streams.h"
#include "formula/formula.h"
#include "tensor/dtype.h"
#include "tensor/overlap.h"
#include "thread/error.h"
#include "thread/host_table.h"
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

namespace {

std::string definition_text(const Definition& def) {
  std::string params;
  for (const std::string& p : def.params) params += (params.empty() ? "" : ", ") + p;
  return "def " + def.name + "(" + params + ") = " + def.text + "\n";
}

// The definitions that the formulas in `body` use, also by way of each other; a line each.
std::string used_definitions(const Op& op, const std::string& body) {
  auto uses = [](const std::string& text, const std::string& name) {
    const std::string call = name + "(";
    for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
      const char before = at ? text[at - 1] : ' ';
      if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_') return true;
    }
    return false;
  };
  std::vector<const Definition*> unused, used;
  for (const Definition& def : op.defs) unused.push_back(&def);
  for (const Definition& def : *op.shared_defs) unused.push_back(&def);
  std::string known = body;
  for (bool more = true; more;) {
    more = false;
    for (const Definition*& def : unused) {
      if (!def || !uses(known, def->name)) continue;
      known += def->text;
      used.push_back(def);
      def = nullptr;
      more = true;
    }
  }
  std::sort(used.begin(), used.end(),
            [](const Definition* a, const Definition* b) { return a->name < b->name; });
  std::string lines;
  for (const Definition* def : used) lines += definition_text(*def);
  return lines;
}

}  // namespace

std::string formula_text(const Op& op, int argument) {
  std::string body;
  for (auto& [name, formula] : op.lets) body += "let " + name + " = " + formula + "\n";
  if (argument < 0) {
    body += "decomp " + op.decomp_text + "\n";
  } else {
    for (auto& [name, formula] : op.vjps) {
      if (name == op.params[argument].name_text) body += "vjp " + name + " " + formula + "\n";
    }
  }
  return op.schema + "\n" + used_definitions(op, body) + body;
}

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

std::unique_ptr<Op> derivative_op(const Op& op, int argument) {
  const std::string name = op.name + ".vjp." + op.params[argument].name_text;
  const size_t open = op.schema.find('('), close = op.schema.rfind(") ->");
  std::string text = name + op.schema.substr(open, close - open) +
                     ", Tensor? result_=None, Tensor? grad_=None) -> Tensor\n  kind composite\n";
  for (const Definition& def : op.defs) text += "  " + definition_text(def);
  for (auto& [let, formula] : op.lets) text += "  let " + let + " = " + formula + "\n";
  for (auto& [of, formula] : op.vjps) {
    if (of == op.params[argument].name_text) text += "  decomp " + formula + "\n";
  }
  std::unique_ptr<Op> made = std::move(parse_records(text, op.file)[0]);
  made->ret_names = op.ret_names;  // the formula calls the result by its name
  made->is_derivative = true;
  made->provider = op.provider;
  made->of_core = op.of_core;
  made->shared_defs = op.shared_defs;
  made->numbers = op.takes_numbers();
  for (size_t i = 0; i < made->params.size(); ++i) {
    for (RbArgInfo* info : {static_cast<RbArgInfo*>(&made->params[i]), &made->arg_infos[i]}) {
      info->core_ndim = 0;
      info->flags |= RB_ARG_OPTIONAL;  // what the formula does not read
    }
  }
  return made;
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
  keys = (keys | state.include) & ~state.exclude;
  if (level && keys >> kBackendBits == uint64_t{1} << (kTransformSlot - kBackendBits)) {
    if (info.reads_args & op.tensor_args & ~info.saves_args) return false;  // it needs their shapes
    *result = value_none();  // the level runs the derivative on what its tensors stand for
    check(call(derivative, values, nparams + 2, result, 1));
    return true;
  }
  if (level || keys > kBackendMask) return false;  // a layer wants to see the formula's operators

  const bool contiguous = (g->flags & RB_T_CONTIGUOUS) != 0;
  TensorRef out(contiguous && has_host_memory(g->backend)
                    ? tensor_like(g, g->dtype_id)
                    : tensor_new(g->backend, g->device.id, g->dtype_id, g->ndim, g->shape,
                                 !contiguous && is_dense(g) ? g->strides : nullptr));
  RbCall call;
  call.struct_size = sizeof(RbCall);
  call.flags = 0;
  call.host = &kHost;
  call.op = handle(&op);
  call.stream = current_stream(state, g->backend, g->device.id);
  call.keys[0] = keys;
  call.keys[1] = 0;
  call.device_index = g->device.id;
  call.level = 0;
  call.frame = nullptr;
  RbValue dest = value_tensor(out.get());
  const int32_t rc = handler.fn(handler.self, &call, values, nparams + 2, &dest, 1);
  if (rc == RB_E_NOTIMPL) return false;
  check_kernel_result(op, g->backend, handler, rc);
  *result = value_tensor(out.release_ownership());
  return true;
}

}  // namespace rabbet

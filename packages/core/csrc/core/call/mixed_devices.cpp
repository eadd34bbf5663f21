#include "call/mixed_devices.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "call/core_functions.h"
#include "call/dispatch.h"
#include "call/fallback.h"
#include "call/kernel_arguments.h"
#include "device/backends.h"
#include "formula/formula.h"
#include "thread/error.h"

namespace rabbet {

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

namespace {

// `copy` is what brings values from one device to another: the source is moved first.
void copy_between(const RbCall* c, const RbValue* args, RbValue* rets, int32_t nrets) {
  const RbTensor *target = args[0].v.t, *src = args[1].v.t;
  const TensorRef moved(tensor_new(target->backend, target->device.id, src->dtype_id, src->ndim,
                                   src->shape, nullptr));
  if (target->backend != kMeta) copy_tensor(src, moved.get());
  const RbValue here[2] = {args[0], value_tensor(moved.get())};
  check(call(impl(c->op), here, 2, rets, nrets, c->flags & RB_CALL_OUT));
}

// Tensors without dimensions on the CPU are numbers to elementwise calls on another device: they
// go there first. False if others are on different devices, too.
bool run_beside_numbers(const RbCall* c, uint64_t backends, const RbValue* args, int nargs,
                        RbValue* rets, int32_t nrets) {
  const Op& op = *impl(c->op);
  const int cpu = find_backend("cpu");
  if (cpu < 0) return false;
  const uint64_t others = backends & ~(uint64_t{1} << cpu);
  const bool elementwise = op.info.kind == RB_KIND_ELEMENTWISE || op.info.kind == RB_KIND_COMPOSITE;
  if (!elementwise || !(backends >> cpu & 1) || !others || others & (others - 1)) return false;
  const int backend = __builtin_ctzll(others);
  RbValue there[kMaxArgs];
  TensorRef moved[kMaxArgs];
  const RbTensor* first = nullptr;
  for (int i = 0; i < nargs; ++i) {
    there[i] = args[i];
    if (args[i].tag == RB_TENSORS) return false;
    if (args[i].tag != RB_TENSOR || args[i].v.t->backend == cpu) continue;
    if (first && args[i].v.t->device.id != first->device.id) return false;
    first = args[i].v.t;
  }
  if (!first) return false;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag != RB_TENSOR || args[i].v.t->backend != cpu) continue;
    const RbTensor* number = args[i].v.t;
    if (number->ndim) return false;
    moved[i] = TensorRef(
        tensor_new(backend, first->device.id, number->dtype_id, 0, number->shape, nullptr));
    if (backend != kMeta) copy_tensor(number, moved[i].get());
    there[i] = value_tensor(moved[i].get());
  }
  const LayersOff layers_off(0);
  check(call(&op, there, nargs, rets, nrets, c->flags));
  return true;
}

// `elsewhere`: tensors of lists and tensors without dimensions go from the CPU to the device of
// the first argument. False if tensors are on several devices then.
bool run_with_elsewhere(const RbCall* c, const RbValue* args, int nargs, RbValue* rets,
                        int32_t nrets) {
  const Op& op = *impl(c->op);
  if (!op.elsewhere_args || args[0].tag != RB_TENSOR || has_host_memory(args[0].v.t->backend))
    return false;
  const RbTensor* self = args[0].v.t;
  std::vector<TensorRef> moved;
  const auto there = [&](RbTensor* t) -> RbTensor* {
    if (!t || !has_host_memory(t->backend)) return t;
    moved.push_back(on_device(t, self->backend, self->device.id));
    return moved.back().get();
  };
  const auto is_there = [&](const RbTensor* t) {
    return !t || (t->backend == self->backend && t->device.id == self->device.id);
  };
  RbValue given[kMaxArgs];
  std::vector<RbTensor*> lists[kMaxArgs];
  for (int i = 0; i < nargs; ++i) {
    given[i] = args[i];
    const bool may_move = op.elsewhere_args >> i & 1;
    if (args[i].tag == RB_TENSOR) {
      if (may_move && args[i].v.t->ndim == 0) given[i] = value_tensor(there(args[i].v.t));
      if (!is_there(given[i].v.t)) return false;
    } else if (args[i].tag == RB_TENSORS) {
      for (uint32_t k = 0; k < args[i].len; ++k) {
        lists[i].push_back(may_move ? there(args[i].v.ts[k]) : args[i].v.ts[k]);
        if (!is_there(lists[i].back())) return false;
      }
      given[i].v.ts = lists[i].data();
    }
  }
  const LayersOff layers_off(0);
  check(call(&op, given, nargs, rets, nrets, c->flags));
  return true;
}

// An operator that only writes to lists, side by side (the steps of optimizers), runs once for
// each device among their tensors. False if it is another one, or tensors at one place differ.
bool run_by_device(const RbCall* c, const RbValue* args, int nargs, int32_t nrets) {
  const Op& op = *impl(c->op);
  if (nrets || !op.mutates) return false;
  uint32_t n = 0;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) return false;
    if (args[i].tag != RB_TENSORS || !args[i].len) continue;
    if (n && args[i].len != n) return false;
    n = args[i].len;
  }
  std::map<std::pair<int, int>, std::vector<uint32_t>> places;
  for (uint32_t k = 0; k < n; ++k) {
    const RbTensor* first = nullptr;
    for (int i = 0; i < nargs; ++i) {
      if (args[i].tag != RB_TENSORS || !args[i].len) continue;
      const RbTensor* t = args[i].v.ts[k];
      if (!t || (first && (t->backend != first->backend || t->device.id != first->device.id)))
        return false;
      first = t;
    }
    places[{first->backend, first->device.id}].push_back(k);
  }
  for (const auto& [device, _] : places) {  // before anything is written
    if (!op.table[device.first].fn && device.first != kMeta && !falls_back(device.first))
      fail_no_kernel(op, device.first);
  }
  const LayersOff layers_off(0);
  for (const auto& [_, chosen] : places) {
    std::vector<RbValue> part(args, args + nargs);
    std::vector<std::vector<RbTensor*>> lists(nargs);
    for (int i = 0; i < nargs; ++i) {
      if (args[i].tag != RB_TENSORS || !args[i].len) continue;
      for (uint32_t k : chosen) lists[i].push_back(args[i].v.ts[k]);
      part[i].v.ts = lists[i].data();
      part[i].len = static_cast<uint32_t>(chosen.size());
    }
    check(call(&op, part.data(), nargs, nullptr, 0, c->flags));
  }
  return true;
}

}  // namespace

void run_mixed(const RbCall* c, uint64_t backends, const RbValue* args, int nargs, RbValue* rets,
               int32_t nrets) {
  const Op& op = *impl(c->op);
  if (&op == copy_op()) {
    const LayersOff layers_off(0);
    return copy_between(c, args, rets, nrets);
  }
  if (run_beside_numbers(c, backends, args, nargs, rets, nrets) ||
      run_with_elsewhere(c, args, nargs, rets, nrets) || run_by_device(c, args, nargs, nrets))
    return;
  fail_mixed(op, args, nargs);
}

}  // namespace rabbet

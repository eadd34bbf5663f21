// copy, cast, clone, fill, where, masked_fill: elements move, nothing is computed.
#include "common/convert.h"
#include "common/kernels.h"
#include "common/level.h"
#include "common/view.h"

namespace rbcpu {
namespace {

// One element or number into `out`, or a tensor of any dtype.
int32_t assign(RbTensor& out, const RbValue& src, const char* op) {
  if (src.tag == RB_TENSOR) {
    const RbTensor& from = *src.v.t;
    const LoopInput in = {&from, nullptr, item_size(from)};
    if ((from.flags & out.flags & RB_T_CONTIGUOUS) != 0 && from.numel == out.numel) {
      if (from.data == out.data && from.dtype_id == out.dtype_id) return RB_OK;
      run_elementwise(cast_loop(out.dtype_id, from.dtype_id), out, &in, 1, kGrain);
      return RB_OK;
    }
    return rb::guarded([&] { copy_view(view_of(out), view_of(from)); });
  }
  if (!rb::is_number(src)) return rb::set_error(RB_E_TYPE, "%s: expected a tensor or a number", op);
  if (src.tag == RB_COMPLEX && !(kMaskComplex >> out.dtype_id & 1)) {
    return rb::set_error(RB_E_TYPE, "%s: a complex number does not fit into %s", op,
                         kDTypeNames[out.dtype_id]);
  }
  if (src.tag == RB_UINT && rb::dtype_kind(out.dtype_id) == RB_CLASS_INT) {
    return rb::set_error(RB_E_ARG, "value cannot be converted to type %s without overflow",
                         kDTypeNames[out.dtype_id]);
  }
  alignas(16) char element[16];
  store_value(src, out.dtype_id, element);
  const LoopInput in = {nullptr, element, item_size(out)};
  run_elementwise(cast_loop(out.dtype_id, out.dtype_id), out, &in, 1, kGrain);
  return RB_OK;
}

// input (shape only), source
int32_t assign_second(void*, const RbCall*, const RbValue* args, int32_t, RbValue* rets,
                      int32_t) noexcept {
  return assign(*rets[0].v.t, args[1], "fill");
}
int32_t assign_first(void*, const RbCall*, const RbValue* args, int32_t, RbValue* rets,
                     int32_t) noexcept {
  return assign(*rets[0].v.t, args[0], "copy");
}

int select_wide(const LoopArgs* a) {
  struct Wide {
    uint64_t a, b;
  };
  const char *c = a->in[0], *x = a->in[1], *y = a->in[2];
  char* r = a->out;
  for (int64_t i = 0; i < a->n; ++i) {
    *reinterpret_cast<Wide*>(r) = *reinterpret_cast<const Wide*>(*c ? x : y);
    c += a->in_stride[0];
    x += a->in_stride[1];
    y += a->in_stride[2];
    r += a->out_stride;
  }
  return 0;
}
Loop select_loop(int item) {
  return item == 16 ? select_wide : RB_PICK_LEVEL(convert_table).select[__builtin_ctz(item)];
}

void run_select(const rb::Args& a, int condition, int yes, int no) {
  RbTensor& out = a.ret();
  alignas(16) char numbers[3][16];
  const int order[3] = {condition, yes, no};
  LoopInput in[3];
  for (int k = 0; k < 3; ++k) {
    const RbValue& v = a.args[order[k]];
    const int dtype = k == 0 ? static_cast<int>(RB_BOOL8) : out.dtype_id;
    in[k] = {nullptr, numbers[k], kItemSize[dtype]};
    if (v.tag == RB_TENSOR) {
      in[k].tensor = v.v.t;
      if (k == 0 && v.v.t->dtype_id != RB_BOOL8) {
        rb::fail(RB_E_TYPE, "%s: expected a bool %s, got %s", a.op_name(),
                 condition == 0 ? "condition" : "mask", kDTypeNames[v.v.t->dtype_id]);
      }
      if (k > 0 && v.v.t->dtype_id != out.dtype_id) {
        rb::fail(RB_E_INTERNAL, "%s: operands arrived as %s and %s", a.op_name(),
                 kDTypeNames[v.v.t->dtype_id], kDTypeNames[out.dtype_id]);
      }
    } else if (rb::is_number(v)) {
      store_value(v, dtype, numbers[k]);
    } else {
      rb::fail(RB_E_TYPE, "%s: argument %d must be a tensor or a number", a.op_name(), order[k]);
    }
  }
  run_elementwise(select_loop(item_size(out)), out, in, 3, kGrain);
}
void where_kernel(const rb::Args& a) { run_select(a, 0, 1, 2); }
void masked_fill_kernel(const rb::Args& a) { run_select(a, 1, 2, 0); }

const rb::KernelSpec kKernels[] = {
    {"copy", assign_second, RB_K_MOVES},
    {"fill", assign_second},
    {"cast", assign_first},
    {"clone", assign_first, RB_K_MOVES},
    {"where", rb::wrap<where_kernel>},
    {"masked_fill", rb::wrap<masked_fill_kernel>},
};

}  // namespace

int32_t add_copy(const RbHost* host, RbTxn* txn) {
  return rb::add_kernels(host, txn, kBackendName, kKernels);
}

}  // namespace rbcpu

// The layer "blockq": composite tensors of codes and scales. Operators see what the codes stand
// for.
#include <algorithm>
#include <initializer_list>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace {

const RbComposites* composites;
const RbTrace* trace;
int32_t layer = 0;  // its key bit, a number from core

// The blob: how the codes are to be read.
struct Format {
  uint32_t bits, block;
};
constexpr int64_t kRowsAtOnce = 1024;  // of the weight that are dense at a time in `linear`

rb::Ref call(const char* op, std::initializer_list<RbValue> args) {
  rb::Ref result;
  rb::check(
      rb::call1(rb::host->find_op(op), args.begin(), static_cast<int32_t>(args.size()), result));
  return result;
}
using rb::dtype_value, rb::int_value, rb::tensor_value;

// `x` with its last dimension split into `n` blocks.
rb::Ref split_last(const rb::Ref& x, int64_t n, int64_t block) {
  std::vector<int64_t> shape(x->shape, x->shape + x->ndim);
  shape.back() = n;
  shape.push_back(block);
  return call("reshape", {tensor_value(x), rb::ints_value(shape.data(), shape.size())});
}
rb::Ref join_last(const rb::Ref& x) {
  return call("flatten", {tensor_value(x), int_value(-2), int_value(-1)});
}

// ---- codes and what they stand for

struct Quantized {
  RbTensor *codes, *scales;
  Format format;
};

bool is_ours(const RbTensor* t) {
  RbComposite c{};
  c.struct_size = RB_SIZE(RbComposite, layer);
  return t && t->flags & RB_T_COMPOSITE && composites->get(t, &c) == RB_OK && c.layer == layer;
}

Quantized read(const RbTensor* t) {
  RbComposite c{};
  c.struct_size = sizeof c;
  rb::check(composites->get(t, &c));
  Quantized q{c.parts[0], c.parts[1], {}};
  std::memcpy(&q.format, c.blob, sizeof q.format);
  return q;
}

rb::Ref dequantize(const Quantized& q) {
  const RbValue dtype = dtype_value(q.scales->dtype_id);
  rb::Ref values;
  if (q.format.bits == 8) {
    values = call("cast", {tensor_value(q.codes), dtype});
  } else {  // two in a byte, the first in the lower half; 8 is zero
    const rb::Ref low = call("bitwise_and", {tensor_value(q.codes), int_value(15)});
    const rb::Ref high = call("bitwise_right_shift", {tensor_value(q.codes), int_value(4)});
    RbTensor* const halves[] = {low.get(), high.get()};
    const rb::Ref codes = join_last(call("stack", {rb::tensors_value(halves, 2), int_value(-1)}));
    const rb::Ref wide = call("cast", {tensor_value(codes), dtype});
    values = call("sub", {tensor_value(wide), int_value(8)});
  }
  const int64_t blocks = q.scales->shape[q.scales->ndim - 1];
  const rb::Ref scales = call("unsqueeze", {tensor_value(q.scales), int_value(-1)});
  const rb::Ref split = split_last(values, blocks, q.format.block);
  return join_last(call("mul", {tensor_value(split), tensor_value(scales)}));
}

// ---- operators

// linear(input, weight, bias): some rows of the weight at a time.
void linear(const rb::Args& a) {
  if (!is_ours(&a.tensor(1)) || a.tensor(1).ndim != 2 || is_ours(&a.tensor(0)))
    rb::fail(RB_E_NOTIMPL, "linear: only its weight can be block-quantized, with 2 dimensions");
  const Quantized q = read(&a.tensor(1));
  const int64_t rows = a.tensor(1).shape[0];
  std::vector<rb::Ref> pieces;
  std::vector<RbTensor*> list;
  for (int64_t at = 0; at < rows || pieces.empty(); at += kRowsAtOnce) {
    const auto part = [&](RbTensor* t) {
      return call("slice", {tensor_value(t), int_value(0), int_value(at),
                            int_value(std::min(at + kRowsAtOnce, rows)), int_value(1)});
    };
    const rb::Ref codes = part(q.codes), scales = part(q.scales);
    const rb::Ref dense = dequantize({codes.get(), scales.get(), q.format});
    pieces.push_back(call("linear", {a.args[0], tensor_value(dense), rb::none_value()}));
    list.push_back(pieces.back().get());
  }
  rb::Ref out = std::move(pieces[0]);
  if (list.size() > 1)
    out = call("cat", {rb::tensors_value(list.data(), list.size()), int_value(-1)});
  if (a.has(2)) out = call("add", {tensor_value(out), a.args[2]});
  a.set_ret(0, out.take());
}

// Every other operator: on the values.
void fallback(const rb::Args& a) {
  const RbOpInfo& info = *rb::host->op_info(a.call->op);
  std::vector<RbValue> values(a.args, a.args + a.nargs);
  std::vector<rb::Ref> hold;
  std::vector<std::vector<RbTensor*>> lists(a.nargs);
  const auto dense = [&](RbTensor* t) {
    if (!is_ours(t)) return t;
    hold.push_back(dequantize(read(t)));
    return hold.back().get();
  };
  for (int i = 0; i < a.nargs; ++i) {
    const bool written = i == 0 && a.call->flags & RB_CALL_OUT && values[i].tag == RB_TENSOR &&
                         values[i].v.t == a.rets[0].v.t;
    if ((written || info.mutated_args >> i & 1) && values[i].tag == RB_TENSOR &&
        is_ours(values[i].v.t))
      rb::fail(RB_E_NOTIMPL,
               "%s: a block-quantized tensor can only be overwritten by copy_() of "
               "another one of its format; dequantize it first: `w + 0`",
               info.name);
    if (values[i].tag == RB_TENSOR) values[i].v.t = dense(values[i].v.t);
    if (values[i].tag != RB_TENSORS) continue;
    for (uint32_t k = 0; k < values[i].len; ++k) lists[i].push_back(dense(values[i].v.ts[k]));
    values[i].v.ts = lists[i].data();
  }
  rb::check(rb::host->call(a.call->op, values.data(), a.nargs, a.rets, a.nrets, a.call->flags));
}

// ---- what core asks

int32_t values_of(void*, void*, RbTensor* t, const char*, RbTensor** out) {
  return rb::guarded([&] { *out = dequantize(read(t)).take(); });
}

int32_t load(void*, const RbComposite* saved, RbTensor** out) {
  return rb::guarded([&] {
    Format f{};
    bool fits = saved->nparts == 2 && saved->nbytes == sizeof f && saved->ndim > 0 &&
                saved->parts[0] && saved->parts[1];
    if (fits) std::memcpy(&f, saved->blob, sizeof f);
    fits = fits && (f.bits == 8 || f.bits == 4) && f.block >= 2 && f.block % 2 == 0;
    const int last = saved->ndim - 1;
    for (int p = 0; fits && p < 2; ++p) {
      const RbTensor* t = saved->parts[p];
      fits = t->ndim == saved->ndim && t->dtype_id == (p             ? saved->dtype
                                                       : f.bits == 8 ? RB_I8
                                                                     : RB_U8);
      for (int d = 0; fits && d < last; ++d) fits = t->shape[d] == saved->shape[d];
      const int64_t each = p ? f.block : 8 / f.bits;
      fits = fits && t->shape[last] * each == saved->shape[last];
    }
    if (!fits)
      rb::fail(RB_E_ARG, "blockq: the parts of a saved tensor do not fit its shape and format");
    rb::check(composites->compose(saved, out));
  });
}

int32_t text(void*, const RbTensor* t, char* out, uint32_t size) {
  return rb::guarded([&] {
    const Format f = read(t).format;
    std::snprintf(out, size, "blockq(shape=%s, bits=%u, block=%u)", rb::shape_text(t).c_str(),
                  f.bits, f.block);
  });
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  composites =
      static_cast<const RbComposites*>(host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION));
  trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (!composites || !trace)
    return host->err_set(RB_E_PLUGIN, "blockq: this core has no composite tensors");
  RbLayer desc{};
  desc.struct_size = RB_SIZE(RbLayer, self);
  desc.name = "blockq";
  desc.phase = 650;  // layout: below the tape and the transforms
  desc.on_missing = RB_L_FALLBACK;
  desc.fallback = rb::wrap<fallback>;
  const RbCompositeLayer what{sizeof what, 0, "blockq", nullptr, load, text};
  static const rb::KernelSpec kernels[] = {{"linear", rb::wrap<linear>}};
  int32_t rc = host->add_layer(txn, &desc, &layer);
  if (!rc) rc = composites->describe(layer, &what);
  if (!rc) rc = trace->data_hook(layer, values_of, nullptr);
  return rc ? rc : rb::add_kernels(host, txn, "blockq", kernels);
}

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() {
  static const RbPlugin plugin = {
      RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR,         RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
      "rabbet-blockq",           RABBET_WHEEL_VERSION, init,         nullptr};
  return &plugin;
}

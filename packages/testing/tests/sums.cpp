// The layer `sums`: composites that stand for the sum of two tensors. Operators see the sum. What
// is wrong with it is named by SUMS_MISCHIEF.
#include <strings.h>

#include <cstdlib>
#include <vector>

#include "rabbet/composite.h"
#include "rabbet/plugin.hpp"
#include "rabbet/trace.h"

namespace {

const RbComposites* composites;
const RbTrace* trace;
int32_t layer;

bool wrong(const char* how) {
  const char* given = std::getenv("SUMS_MISCHIEF");
  return given && !std::strcmp(given, how);
}

RbComposite get(const RbTensor* t) {
  RbComposite c{};
  c.struct_size = sizeof c;
  rb::check(composites->get(t, &c));
  return c;
}
bool is_sum(const RbTensor* t) { return t && t->flags & RB_T_COMPOSITE && get(t).layer == layer; }

rb::Ref call(const char* op, const RbValue* args, int32_t n) {
  rb::Ref out;
  rb::check(rb::call1(rb::host->find_op(op), args, n, out));
  return out;
}
rb::Ref sum_of(const RbTensor* t) {
  const RbComposite c = get(t);
  const RbValue args[] = {rb::tensor_value(c.parts[0]), rb::tensor_value(c.parts[1]),
                          rb::int_value(1)};
  return call("add", args, rb::host->op_info(rb::host->find_op("add"))->nargs);
}

void on_values(const rb::Args& a) {
  if (wrong("raises") && !std::strcmp(rb::host->op_info(a.call->op)->name, "exp"))
    rb::fail(RB_E_DEVICE, "exp: out of order");
  std::vector<RbValue> values(a.args, a.args + a.nargs);
  if (wrong("ignores alpha") && !std::strcmp(rb::host->op_info(a.call->op)->name, "add"))
    values[2] = rb::int_value(1);
  std::vector<rb::Ref> hold;
  std::vector<std::vector<RbTensor*>> lists(a.nargs);
  const auto plain = [&](RbTensor* t) {
    if (!is_sum(t)) return t;
    hold.push_back(sum_of(t));
    return hold.back().get();
  };
  for (int i = 0; i < a.nargs; ++i) {
    const bool written = i == 0 && a.call->flags & RB_CALL_OUT && values[i].tag == RB_TENSOR &&
                         is_sum(values[i].v.t);
    if (written && wrong("writes nothing")) return;
    if (written)
      rb::fail(RB_E_NOTIMPL, "%s: sums are overwritten by other sums only",
               rb::host->op_info(a.call->op)->name);
    if (values[i].tag == RB_TENSOR) values[i].v.t = plain(values[i].v.t);
    if (values[i].tag != RB_TENSORS) continue;
    for (uint32_t k = 0; k < values[i].len; ++k) lists[i].push_back(plain(values[i].v.ts[k]));
    values[i].v.ts = lists[i].data();
  }
  rb::check(rb::host->call(a.call->op, values.data(), a.nargs, a.rets, a.nrets, a.call->flags));
}

// neg of the first part alone.
void half(const rb::Args& a) {
  const RbValue part = rb::tensor_value(get(&a.tensor(0)).parts[0]);
  a.set_ret(0, call("neg", &part, 1).take());
}
// neg, which leaves the first part negated.
void overwriting(const rb::Args& a) {
  RbValue part = rb::tensor_value(get(&a.tensor(0)).parts[0]), made{};
  const RbValue whole = rb::tensor_value(sum_of(&a.tensor(0)).take());
  rb::check(rb::host->call(a.call->op, &whole, 1, &made, 1, 0));
  RbValue ret = part;
  rb::check(rb::host->call(a.call->op, &part, 1, &ret, 1, RB_CALL_OUT));
  rb::host->release(whole.v.t);
  a.set_ret(0, made.v.t);
}
void same_parts(const rb::Args& a) {
  RbComposite c = get(&a.tensor(0));
  c.base = nullptr;
  RbTensor* t = nullptr;
  rb::check(composites->compose(&c, &t));
  a.set_ret(0, t);
}

// select: copies, which are said to be a view.
void copied_view(const rb::Args& a) {
  if (!is_sum(&a.tensor(0))) return on_values(a);
  RbComposite c = get(&a.tensor(0));
  rb::Ref parts[2];
  RbTensor* list[2];
  for (int i = 0; i < 2; ++i) {
    const RbValue args[] = {rb::tensor_value(c.parts[i]), a.args[1], a.args[2]};
    const rb::Ref view = call("select", args, 3);
    const RbValue of_view[] = {rb::tensor_value(view)};
    parts[i] = call("clone", of_view, 1);
    list[i] = parts[i].get();
  }
  c.parts = list;
  c.ndim = list[0]->ndim;
  c.shape = list[0]->shape;
  c.strides = nullptr;
  c.base = a.args[0].v.t;
  RbTensor* t = nullptr;
  rb::check(composites->compose(&c, &t));
  a.set_ret(0, t);
}

int32_t values_of(void*, void*, RbTensor* t, const char*, RbTensor** out) {
  return rb::guarded([&] {
    if (wrong("leaks")) rb::host->retain(get(t).parts[0]);
    if (wrong("gives a part")) {
      *out = get(t).parts[0];
      rb::host->retain(*out);
      return;
    }
    rb::Ref sum = sum_of(t);
    if (wrong("flat values")) {
      const int64_t size = sum->numel;
      const RbValue args[] = {rb::tensor_value(sum), rb::ints_value(&size, 1)};
      sum = call("reshape", args, 2);
    }
    *out = sum.take();
  });
}

bool fits(const RbComposite& c) {
  if (c.nparts != 2 || c.nbytes != 3 || strncasecmp(static_cast<const char*>(c.blob), "sum", 3))
    return false;
  for (int i = 0; i < 2; ++i) {
    const RbTensor* t = c.parts[i];
    if (!t || t->dtype_id != c.dtype || t->ndim != c.ndim) return false;
    for (int d = 0; d < c.ndim; ++d) {
      if (t->shape[d] != c.shape[d]) return false;
    }
  }
  return true;
}
int32_t load(void*, const RbComposite* saved, RbTensor** out) {
  return rb::guarded([&] {
    RbComposite c = *saved;
    if (!wrong("believes files") && !fits(c))
      rb::fail(RB_E_ARG, "sums: the parts of a saved tensor do not fit");
    if (wrong("changes the blob"))
      c.blob = *static_cast<const char*>(c.blob) == 's' ? "SUM" : "sum";
    rb::check(composites->compose(&c, out));
  });
}
int32_t text(void*, const RbTensor*, char* out, uint32_t size) {
  return rb::guarded([&] { std::snprintf(out, size, "%s", wrong("no text") ? "" : "sums()"); });
}

int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  composites =
      static_cast<const RbComposites*>(host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION));
  trace = static_cast<const RbTrace*>(host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION));
  if (!composites || !trace) return host->err_set(RB_E_PLUGIN, "sums: there are no composites");
  RbLayer l{};
  l.struct_size = RB_SIZE(RbLayer, self);
  l.name = "sums";
  l.phase = 650;
  l.fallback = rb::wrap<on_values>;
  const RbCompositeLayer what{sizeof what, 0, nullptr, nullptr, load, text};
  int32_t rc = host->add_layer(txn, &l, &layer);
  if (!rc) rc = composites->describe(layer, &what);
  if (!rc) rc = trace->data_hook(layer, values_of, nullptr);
  const rb::KernelSpec faults[] = {
      wrong("forgets a part") ? rb::KernelSpec{"neg", rb::wrap<half>}
      : wrong("overwrites")   ? rb::KernelSpec{"neg", rb::wrap<overwriting>}
      : wrong("copies share") ? rb::KernelSpec{"clone", rb::wrap<same_parts>}
                              : rb::KernelSpec{"select", rb::wrap<copied_view>}};
  const bool faulty = wrong("forgets a part") || wrong("overwrites") || wrong("copies share") ||
                      wrong("views are copies");
  return rc || !faulty ? rc : rb::add_kernels(host, txn, "sums", faults);
}

}  // namespace

extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() {
  static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire),
                                  RB_ABI_MAJOR,
                                  RB_ABI_MINOR,
                                  RB_ABI_NEEDED,
                                  0,
                                  0,
                                  "sums-plugin",
                                  "1.0",
                                  init,
                                  nullptr};
  return &plugin;
}

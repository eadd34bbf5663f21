// The layer "profile": adds up calls, floating-point operations and bytes of every operator.
#include <map>

#include "listener.hpp"

using namespace instruments;

namespace {

struct Row {
  int64_t calls = 0, flops = 0, bytes = 0;
};
struct Counter : Listener {
  std::map<std::string, Row> rows;  // by operator, backend and index of the device
  std::string text() const override {
    std::string s;
    for (const auto& [name, row] : rows)
      s += name + " " + std::to_string(row.calls) + " " + std::to_string(row.flops) + " " +
           std::to_string(row.bytes) + "\n";
    return s;
  }
};

int64_t size(const RbTensor& t, int from_end) {
  return from_end <= t.ndim ? t.shape[t.ndim - from_end] : 1;
}
// Each element of `y` is a product with one of the filters (O, C / groups, k, ...).
int64_t filter(const RbTensor& y, const RbTensor& w) {
  return w.numel ? 2 * y.numel * (w.numel / w.shape[0]) : 0;
}
// Every query meets every key (..., S, E), `n` times with a sum over E and `m` times over V.
int64_t pairs(const RbTensor& rows, const RbTensor& key, const RbTensor& value, int n, int m) {
  return 2 * rows.numel * size(key, 2) * (n * size(key, 1) + m * size(value, 1));
}

// Operators whose shapes say what they compute. A product and its sum are two operations.
using A = const rb::Args&;
const std::map<std::string, int64_t (*)(A)> kFormulas = {
    {"matmul", [](A a) { return 2 * a.ret().numel * size(a.tensor(0), 1); }},
    {"addmm", [](A a) { return a.ret().numel * (2 * size(a.tensor(1), 1) + 2); }},
    {"baddbmm", [](A a) { return a.ret().numel * (2 * size(a.tensor(1), 1) + 2); }},
    {"linear", [](A a) { return a.ret().numel * (2 * size(a.tensor(0), 1) + a.has(2)); }},
    {"convolution", [](A a) { return filter(a.ret(), a.tensor(1)) + a.has(2) * a.ret().numel; }},
    {"convolution_dx", [](A a) { return filter(a.tensor(0), a.tensor(1)); }},
    {"convolution_dw", [](A a) { return filter(a.tensor(1), a.ret()); }},
    {"attention", [](A a) { return pairs(a.ret(1), a.tensor(1), a.tensor(2), 1, 1); }},
    {"attention_backward", [](A a) { return pairs(a.tensor(7), a.tensor(3), a.tensor(4), 3, 2); }},
    {"recurrent_layer", [](A a) { return 2 * a.ret().shape[0] * a.tensor(4).numel; }},
    {"recurrent_layer_backward", [](A a) { return 4 * a.tensor(6).shape[0] * a.tensor(11).numel; }},
};
const std::string kCopies =
    " as_strided cast clone contiguous_clone copy diagonal_scatter embedding fill flip index "
    "index_put pad_constant roll to_device tril triu ";

Row measure(A a, const RbOpInfo& info) {
  int64_t largest = 0, bytes = 0;
  const auto add = [&](const RbValue& v) {
    int64_t n = 0;
    each_tensor(v, [&](const RbTensor* t) {
      n += is_floating(t) ? t->numel : 0;
      bytes += t->numel * ((t->dtype.bits + 7) / 8);
    });
    largest = std::max(largest, n);
  };
  std::for_each(a.args, a.args + a.nargs, add);
  std::for_each(a.rets, a.rets + a.nrets, add);
  const bool may_share = (info.flags & RB_OP_MAYBE_VIEW) && a.args[0].tag == RB_TENSOR;
  if (info.flags & RB_OP_VIEW || (may_share && rb::host->same_storage(a.args[0].v.t, &a.ret())))
    bytes = 0;
  const auto formula = kFormulas.find(info.name);
  if (formula != kFormulas.end()) return {1, formula->second(a), bytes};
  const bool moves = info.kind == RB_KIND_MOVEMENT || info.kind == RB_KIND_INDEXING ||
                     info.kind == RB_KIND_CREATION || info.kind == RB_KIND_RANDOM ||
                     kCopies.find(" " + std::string(info.name) + " ") != std::string::npos;
  // All others, those of strangers too: one operation for each element, at least.
  return {1, moves ? 0 : largest, bytes};
}

void handle(A a) {
  const RbOpInfo& info = *rb::host->op_info(a.call->op);
  if (info.kind == RB_KIND_COMPOSITE && (info.flags & RB_OP_HAS_DECOMP) &&
      !(info.flags & (RB_OP_VIEW | RB_OP_MAYBE_VIEW))) {
    const Without above(layer + 1);  // who has seen the whole; its parts are counted
    return rb::check(rb::host->decompose(a.call, a.args, a.nargs, a.rets, a.nrets));
  }
  rb::check(rb::host->redispatch(a.call, layer, a.args, a.nargs, a.rets, a.nrets));
  const Row row = measure(a, info);
  const RbTensor* last = nullptr;  // a result, which tells the device
  const auto note = [&](const RbValue& v) { each_tensor(v, [&](const RbTensor* t) { last = t; }); };
  std::for_each(a.args, a.args + a.nargs, note);
  std::for_each(a.rets, a.rets + a.nrets, note);
  const auto text = [](int n) { return " " + std::to_string(n); };
  const std::string key =
      info.name + (last ? text(last->backend) + text(last->device.id) : std::string(" 0 0"));
  for (Listener* one : listeners()) {
    const std::lock_guard<std::mutex> lock(one->mutex);
    Row& sum = static_cast<Counter*>(one)->rows[key];
    sum = {sum.calls + row.calls, sum.flops + row.flops, sum.bytes + row.bytes};
  }
}

}  // namespace

int32_t instruments::init(const RbHost* host, RbTxn* txn) {
  return add_layer(host, txn, "profile", nullptr, rb::wrap<handle>);
}

extern "C" RB_EXPORT void* counter_new() { return static_cast<Listener*>(new Counter); }

// Decompositions of recurrent_layer and its derivative: loops over `recurrent_step`, for backends
// without a kernel and for higher derivatives.
#include "call/decomp_recurrent.h"

#include <algorithm>
#include <string>
#include <vector>

#include "call/dispatch.h"
#include "rabbet/packed_steps.hpp"
#include "rules/infer.h"
#include "thread/error.h"

namespace rabbet {

namespace {

using List = std::vector<TensorRef>;

TensorRef narrow(const TensorRef& t, int64_t start, int64_t length) {
  static const Op* const op = find_op("narrow");
  const RbValue args[4] = {value_tensor(t.get()), value_int(0), value_int(start),
                           value_int(length)};
  return call1(op, args, 4);
}

TensorRef cat(const List& parts, int64_t dim = 0) {
  static const Op* const op = find_op("cat");
  if (parts.size() == 1) return parts[0];
  std::vector<RbTensor*> raw;
  for (const TensorRef& t : parts) raw.push_back(t.get());
  const RbValue args[2] = {value_tensors(raw.data(), static_cast<uint32_t>(raw.size())),
                           value_int(dim)};
  return call1(op, args, 2);
}

// A call whose last arguments are their defaults.
List call_list(const Op* op, std::initializer_list<RbValue> given) {
  RbValue args[RB_MAX_ARGS], rets[kMaxRets];
  const size_t nargs = op->params.size();
  std::copy(given.begin(), given.end(), args);
  for (size_t i = given.size(); i < nargs; ++i) args[i] = op->params[i].default_value;
  for (RbValue& ret : rets) ret = value_none();
  check(call(op, args, static_cast<int32_t>(nargs), rets, op->info.nrets));
  List out;
  for (int i = 0; i < op->info.nrets; ++i) out.emplace_back(rets[i].v.t);
  return out;
}
TensorRef unary(const char* name, const TensorRef& t) {
  return call_list(find_op(name), {value_tensor(t.get())})[0];
}
TensorRef binary(const char* name, const TensorRef& a, const TensorRef& b) {
  return call_list(find_op(name), {value_tensor(a.get()), value_tensor(b.get())})[0];
}
TensorRef zeros_like(const TensorRef& t) { return unary("zeros_like", t); }

TensorRef given(const RbValue& v) {
  return v.tag == RB_TENSOR ? TensorRef::share(v.v.t) : TensorRef();
}
RbValue optional(const TensorRef& t) { return t ? value_tensor(t.get()) : value_none(); }

// The first rows of a state replaced by the new ones.
TensorRef updated(const TensorRef& state, const TensorRef& fresh) {
  const int64_t n = fresh->shape[0], batch = state->shape[0];
  return n == batch ? fresh : cat({fresh, narrow(state, n, batch - n)});
}

struct Steps : rb::PackedSteps {
  Steps(const RbValue& given, bool backwards, int64_t rows, int64_t batch)
      : PackedSteps(given.v.is, given.len, rows, batch, backwards) {}
  TensorRef rows(const TensorRef& all, int64_t t) const {
    return all ? narrow(all, offsets[t], sizes[t]) : TensorRef();
  }
  /// What the sequences of step t had before it: rows of `all`, or of the initial state.
  TensorRef state_before(const TensorRef& all, const TensorRef& initial, int64_t t) const {
    const int64_t previous = before(t);
    if (previous < 0) return narrow(initial, 0, sizes[t]);
    const int64_t known = std::min(sizes[previous], sizes[t]);
    const TensorRef rows = narrow(all, offsets[previous], known);
    return known == sizes[t] ? rows : cat({rows, narrow(initial, known, sizes[t] - known)});
  }
};

bool has_mode(const RbValue& mode, const char* name) {
  return std::string(mode.v.s, mode.len) == name;
}
TensorRef nothing(const TensorRef& like) { return narrow(like, 0, 0); }

void give(RbValue* rets, std::initializer_list<TensorRef> results) {
  for (TensorRef t : results) *rets++ = value_tensor(t.release_ownership());
}

}  // namespace

void recurrent_layer_decomp(const Op&, const RbValue* args, int, RbValue* rets, int) {
  const RbValue& mode = args[0];
  const bool lstm = has_mode(mode, "lstm"), keeps = lstm || has_mode(mode, "gru");
  const TensorRef gates = given(args[1]), h0 = given(args[2]);
  const Steps steps(args[6], args[7].v.i != 0, gates->shape[0], h0->shape[0]);
  TensorRef h = h0, c = given(args[3]);
  List output(steps.count()), cells(steps.count()), saved(steps.count());
  for (int64_t s = 0; s < steps.count(); ++s) {
    const int64_t t = steps.at(s);
    const TensorRef x = steps.rows(gates, t), h_here = narrow(h, 0, steps.sizes[t]),
                    c_here = lstm ? narrow(c, 0, steps.sizes[t]) : TensorRef();
    const List r = call_list(find_op("recurrent_step"),
                             {mode, value_tensor(x.get()), value_tensor(h_here.get()),
                              optional(c_here), args[4], args[5]});
    output[t] = r[0];
    cells[t] = r[1];
    saved[t] = r[2];
    h = updated(h, r[0]);
    if (lstm) c = updated(c, r[1]);
  }
  const TensorRef none = nothing(h0);
  if (steps.count() == 0) output = cells = {none}, saved = {cat({none, none, none, none}, 1)};
  give(rets, {cat(output), h, lstm ? c : none, lstm ? cat(cells) : none,
              keeps ? cat(saved) : cat({none, none, none, none}, 1)});
}

void recurrent_layer_backward_decomp(const Op&, const RbValue* args, int, RbValue* rets, int) {
  const RbValue& mode = args[0];
  const bool lstm = has_mode(mode, "lstm"), keeps = lstm || has_mode(mode, "gru");
  const TensorRef grad_output = given(args[1]), grad_cells = given(args[4]),
                  grad_saved = given(args[5]), output = given(args[6]), cells = given(args[7]),
                  saved = given(args[8]), h0 = given(args[9]), c0 = given(args[10]),
                  weight = given(args[11]);
  const Steps steps(args[13], args[14].v.i != 0, output->shape[0], h0->shape[0]);
  TensorRef dh = args[2].tag == RB_TENSOR ? given(args[2]) : zeros_like(h0);
  TensorRef dc = !lstm ? TensorRef() : args[3].tag == RB_TENSOR ? given(args[3]) : zeros_like(c0);
  List dgates(steps.count()), dproduct(steps.count()), h_before(steps.count());
  for (int64_t s = steps.count(); s-- > 0;) {
    const int64_t t = steps.at(s);
    TensorRef grad_h = narrow(dh, 0, steps.sizes[t]),
              grad_c = lstm ? narrow(dc, 0, steps.sizes[t]) : TensorRef();
    if (grad_output) grad_h = binary("add", grad_h, steps.rows(grad_output, t));
    if (lstm && grad_cells) grad_c = binary("add", grad_c, steps.rows(grad_cells, t));
    const TensorRef h = steps.rows(output, t), kept = keeps ? steps.rows(saved, t) : TensorRef(),
                    extra = keeps ? steps.rows(grad_saved, t) : TensorRef(),
                    c = lstm ? steps.rows(cells, t) : TensorRef(),
                    c_before = lstm ? steps.state_before(cells, c0, t) : TensorRef();
    h_before[t] = steps.state_before(output, h0, t);
    const List r = call_list(find_op("recurrent_step_grads"),
                             {mode, value_tensor(grad_h.get()), optional(grad_c), optional(extra),
                              value_tensor(h.get()), optional(c), value_tensor(h_before[t].get()),
                              optional(c_before), optional(kept), value_tensor(weight.get())});
    dgates[t] = r[0];
    dproduct[t] = r[1];
    dh = updated(dh, r[2]);
    if (lstm) dc = updated(dc, r[3]);
  }
  const bool some = steps.count() != 0;
  const TensorRef no_gates = narrow(unary("mT", weight), 0, 0);
  const TensorRef all = some ? cat(dproduct) : no_gates;
  const TensorRef dweight =
      some ? binary("matmul", unary("mT", all), cat(h_before)) : zeros_like(weight);
  const int64_t first = 0;
  const TensorRef dbias =
      call_list(find_op("sum"), {value_tensor(all.get()), value_ints(&first, 1)})[0];
  give(rets, {some ? cat(dgates) : no_gates, dh, lstm ? dc : nothing(h0), dweight,
              args[12].v.i ? dbias : nothing(dbias)});
}

}  // namespace rabbet

// Shapes of attention and of recurrent layers.
#include "rules/shape_helpers.h"
#include "tensor/dtype.h"

namespace rabbet {

namespace {

// ---- attention

// The seed of dropout is one for all heads, or for some of them each.
void check_seed(const Op& op, const RbValue* args, const TensorSpec& batch) {
  const int at = param_index(op, "seed");
  const RbTensor* seed = at < 0 ? nullptr : tensor(args[at]);
  if (!seed) return;
  if (seed->dtype_id != RB_I64)
    fail(RB_E_TYPE, "%s: expected 'seed' of int64, got %s", op.name.c_str(),
         kDTypes[seed->dtype_id].name);
  if (!broadcasts_to(*seed, batch))
    fail(RB_E_ARG, "%s: 'seed' of shape %s does not broadcast to the leading dimensions %s",
         op.name.c_str(), text(*seed).c_str(), shape_text(batch.ndim, batch.shape).c_str());
}

// Checks query (..., L, E), key (..., S, E), value (..., S, Ev) and the mask; gives the batch
// dimensions of the result.
TensorSpec attention_batch(const Op& op, const RbValue* args) {
  const RbTensor &q = *named_tensor(op, args, "query"), &k = *named_tensor(op, args, "key"),
                 &v = *named_tensor(op, args, "value");
  const bool grouped = args[param_index(op, "enable_gqa")].v.i != 0;
  const int least = grouped ? 3 : 2;
  for (const RbTensor* t : {&q, &k, &v}) {
    if (t->ndim >= least) continue;
    fail(RB_E_ARG, "%s: '%s' must have at least %d dimensions%s, got shape %s", op.name.c_str(),
         t == &q   ? "query"
         : t == &k ? "key"
                   : "value",
         least, grouped ? " with enable_gqa" : "", text(*t).c_str());
  }
  if (q.dtype_id != k.dtype_id || q.dtype_id != v.dtype_id) {
    fail(RB_E_TYPE, "%s: query, key and value must have one dtype, got %s, %s and %s",
         op.name.c_str(), kDTypes[q.dtype_id].name, kDTypes[k.dtype_id].name,
         kDTypes[v.dtype_id].name);
  }
  if (q.shape[q.ndim - 1] != k.shape[k.ndim - 1]) {
    fail(RB_E_ARG, "%s: query and key must have the same last size, got shapes %s and %s",
         op.name.c_str(), text(q).c_str(), text(k).c_str());
  }
  if (k.shape[k.ndim - 2] != v.shape[v.ndim - 2]) {
    fail(RB_E_ARG, "%s: key and value must have the same number of positions, got shapes %s and %s",
         op.name.c_str(), text(k).c_str(), text(v).c_str());
  }
  TensorSpec batch;
  batch.ndim = 0;
  broadcast_into(op, q.ndim - 2, q.shape, batch);
  if (grouped) {
    const int64_t heads = q.shape[q.ndim - 3], groups = k.shape[k.ndim - 3];
    if (v.shape[v.ndim - 3] != groups || groups < 1 || heads % groups) {
      fail(RB_E_ARG,
           "%s: enable_gqa needs as many heads in key as in value, and a multiple of them in "
           "query; got shapes %s, %s and %s",
           op.name.c_str(), text(q).c_str(), text(k).c_str(), text(v).c_str());
    }
    for (const RbTensor* t : {&k, &v}) {
      TensorSpec own;
      own.ndim = t->ndim - 2;
      std::copy(t->shape, t->shape + own.ndim, own.shape);
      own.shape[own.ndim - 1] = heads;
      broadcast_into(op, own.ndim, own.shape, batch);
    }
  } else {
    broadcast_into(op, k.ndim - 2, k.shape, batch);
    broadcast_into(op, v.ndim - 2, v.shape, batch);
  }
  if (batch.ndim + 2 > kMaxDims)
    fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  check_seed(op, args, batch);
  const RbTensor* mask = named_tensor(op, args, "attn_mask");
  if (!mask) return batch;
  const int category = kDTypes[mask->dtype_id].category;
  if (mask->dtype_id != RB_BOOL8 && category != kFloat) {
    fail(RB_E_TYPE, "%s: 'attn_mask' must be bool or floating, got %s", op.name.c_str(),
         kDTypes[mask->dtype_id].name);
  }
  TensorSpec scores = batch;
  scores.shape[scores.ndim++] = q.shape[q.ndim - 2];
  scores.shape[scores.ndim++] = k.shape[k.ndim - 2];
  if (!broadcasts_to(*mask, scores)) {
    fail(RB_E_ARG, "%s: 'attn_mask' of shape %s does not broadcast to the scores' shape %s",
         op.name.c_str(), text(*mask).c_str(), shape_text(scores.ndim, scores.shape).c_str());
  }
  return batch;
}

void put(TensorSpec& to, const TensorSpec& batch, std::initializer_list<int64_t> last) {
  const int dtype = to.dtype;
  to = batch;
  to.dtype = dtype;
  for (int64_t size : last) to.shape[to.ndim++] = size;
}

void attention(const Op& op, const RbValue* args, int, Inferred& out) {
  const TensorSpec batch = attention_batch(op, args);
  const RbTensor &q = *named_tensor(op, args, "query"), &v = *named_tensor(op, args, "value");
  const int64_t length = q.shape[q.ndim - 2];
  put(out.rets[0], batch, {length, v.shape[v.ndim - 1]});
  if (op.info.nrets > 1) put(out.rets[1], batch, {length});
}

// Gradients in the broadcast shapes; those of key and value summed over the heads of a group.
void attention_backward(const Op& op, const RbValue* args, int, Inferred& out) {
  TensorSpec batch = attention_batch(op, args);
  const RbTensor &q = *named_tensor(op, args, "query"), &k = *named_tensor(op, args, "key"),
                 &v = *named_tensor(op, args, "value"), &grad = *named_tensor(op, args, "g"),
                 &result = *named_tensor(op, args, "out"),
                 &lse = *named_tensor(op, args, "logsumexp");
  const int64_t length = q.shape[q.ndim - 2], keys = k.shape[k.ndim - 2],
                size = v.shape[v.ndim - 1];
  TensorSpec rows = batch;
  rows.shape[rows.ndim++] = length;
  auto need = [&](const RbTensor& t, const TensorSpec& spec, const char* name) {
    if (t.ndim == spec.ndim && std::equal(t.shape, t.shape + t.ndim, spec.shape)) return;
    fail(RB_E_ARG, "%s: '%s' must have shape %s, got %s", op.name.c_str(), name,
         shape_text(spec.ndim, spec.shape).c_str(), text(t).c_str());
  };
  need(lse, rows, "logsumexp");
  if (const RbTensor* g = named_tensor(op, args, "g_logsumexp")) need(*g, rows, "g_logsumexp");
  rows.shape[rows.ndim++] = size;
  need(grad, rows, "g");
  need(result, rows, "out");
  put(out.rets[0], batch, {length, q.shape[q.ndim - 1]});
  if (args[param_index(op, "enable_gqa")].v.i) batch.shape[batch.ndim - 1] = k.shape[k.ndim - 3];
  put(out.rets[1], batch, {keys, k.shape[k.ndim - 1]});
  put(out.rets[2], batch, {keys, size});
}

// ---- recurrent networks

int64_t gates_of(const RbValue& mode) {
  const std::string name(mode.v.s, mode.len);
  return name == "lstm" ? 4 : name == "gru" ? 3 : 1;
}

void need_shape(const Op& op, const RbTensor& t, const char* name,
                std::initializer_list<int64_t> shape) {
  if (t.ndim == static_cast<int>(shape.size()) && std::equal(shape.begin(), shape.end(), t.shape))
    return;
  fail(RB_E_ARG, "%s: '%s' must have shape %s, got %s", op.name.c_str(), name,
       shape_text(static_cast<int>(shape.size()), shape.begin()).c_str(), text(t).c_str());
}

// Checks `rows` rows of all steps against batch_sizes and the states.
void check_steps(const Op& op, const RbValue* args, int64_t rows) {
  const RbTensor& h0 = *named_tensor(op, args, "h0");
  need_rank(op, h0, 2, param_index(op, "h0"));
  const RbValue& sizes = args[param_index(op, "batch_sizes")];
  const int64_t batch = h0.shape[0];
  if (sizes.len == 0) {
    if (batch == 0 ? rows != 0 : rows % batch != 0) {
      fail(RB_E_ARG, "%s: %lld rows are no whole number of steps of %lld sequences (h0 is %s)",
           op.name.c_str(), (long long)rows, (long long)batch, text(h0).c_str());
    }
    return;
  }
  int64_t sum = 0;
  for (uint32_t t = 0; t < sizes.len; ++t) {
    const int64_t n = sizes.v.is[t];
    if (n < 1 || n > (t ? sizes.v.is[t - 1] : batch) || (t == 0 && n != batch)) {
      fail(RB_E_ARG,
           "%s: 'batch_sizes' must begin with the %lld sequences of h0, be positive and never "
           "grow; entry %u is %lld",
           op.name.c_str(), (long long)batch, t, (long long)n);
    }
    sum = checked_sum(op.name, sum, n);
  }
  if (sum != rows) {
    fail(RB_E_ARG, "%s: 'batch_sizes' add up to %lld, but there are %lld rows", op.name.c_str(),
         (long long)sum, (long long)rows);
  }
}

void recurrent_layer(const Op& op, const RbValue* args, int, Inferred& out) {
  const int64_t count = gates_of(args[0]);
  const bool lstm = count == 4;
  const RbTensor &x = *args[1].v.t, &h0 = *args[2].v.t;
  need_rank(op, x, 2, 1);
  need_rank(op, h0, 2, 2);
  const int64_t rows = x.shape[0], batch = h0.shape[0], n = h0.shape[1];
  check_steps(op, args, rows);
  const int64_t gates = checked_product(op.name, count, n);
  need_shape(op, x, "gates", {rows, gates});
  const RbTensor* c0 = tensor(args[3]);
  if (lstm != (c0 != nullptr))
    fail(RB_E_ARG, "%s: 'c0' belongs to mode 'lstm' and to no other", op.name.c_str());
  if (c0) need_shape(op, *c0, "c0", {batch, n});
  need_shape(op, *args[4].v.t, "weight_hh", {gates, n});
  if (const RbTensor* bias = tensor(args[5])) need_shape(op, *bias, "bias_hh", {gates});
  set(out.rets[0], {rows, n});
  set(out.rets[1], {batch, n});
  set(out.rets[2], {lstm ? batch : 0, n});
  set(out.rets[3], {lstm ? rows : 0, n});
  set(out.rets[4], {count > 1 ? rows : 0, 4 * n});
}

void recurrent_layer_backward(const Op& op, const RbValue* args, int, Inferred& out) {
  const int64_t count = gates_of(args[0]);
  const bool lstm = count == 4;
  const RbTensor& h0 = *named_tensor(op, args, "h0");
  need_rank(op, h0, 2, param_index(op, "h0"));
  const RbTensor& result = *named_tensor(op, args, "output");
  need_rank(op, result, 2, param_index(op, "output"));
  const int64_t rows = result.shape[0], batch = h0.shape[0], n = h0.shape[1];
  check_steps(op, args, rows);
  const int64_t cells = lstm ? rows : 0, states = lstm ? batch : 0, saved = count > 1 ? rows : 0;
  const int64_t gates = checked_product(op.name, count, n);
  auto need = [&](const char* name, int64_t first, int64_t second) {
    if (const RbTensor* t = named_tensor(op, args, name)) need_shape(op, *t, name, {first, second});
  };
  need("grad_output", rows, n);
  need("grad_hn", batch, n);
  need("grad_cn", states, n);
  need("grad_cells", cells, n);
  need("grad_saved", saved, 4 * n);
  need("output", rows, n);
  need("cells", cells, n);
  need("saved", saved, 4 * n);
  need("weight_hh", gates, n);
  if (lstm != (named_tensor(op, args, "c0") != nullptr))
    fail(RB_E_ARG, "%s: 'c0' belongs to mode 'lstm' and to no other", op.name.c_str());
  need("c0", batch, n);
  set(out.rets[0], {rows, gates});
  set(out.rets[1], {batch, n});
  set(out.rets[2], {states, n});
  set(out.rets[3], {gates, n});
  set(out.rets[4], {args[param_index(op, "has_bias")].v.i ? gates : 0});
}

}  // namespace

const std::vector<ShapeFunction>& layer_shape_functions() {
  static const std::vector<ShapeFunction> functions = {
      {"attention", attention},
      {"attention_backward", attention_backward},
      {"recurrent_layer", recurrent_layer},
      {"recurrent_layer_backward", recurrent_layer_backward}};
  return functions;
}

}  // namespace rabbet

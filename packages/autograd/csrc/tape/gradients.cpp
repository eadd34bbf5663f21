#include "gradients.h"

#include <algorithm>

#include "engine.h"
#include "grad_level.h"
#include "node_blocks.h"
#include "operators.h"

namespace tape {

int32_t sum(RbTensor* a, RbTensor* b, Ref& out) {
  const RbValue args[3] = {tensor_value(a), tensor_value(b), int_value(1)};
  return call1(ops().add, args, 3, out);
}

namespace {

RbValue device_of(const RbMeta& m) {
  RbValue device{};
  device.tag = RB_DEVICE;
  device.v.dev.backend = m.backend;
  device.v.dev.index = m.device_index;
  return device;
}

// "Function MulBackward returned an invalid gradient at index 1", or the caller's.
std::string invalid(const Node* from, int32_t index) {
  const std::string what = "invalid gradient at index " + std::to_string(index);
  return from ? std::string("Function ") + node_name(from) + " returned an " + what : what;
}

}  // namespace

int32_t make_zeros(const RbMeta& like, Ref& out) {
  const RbValue args[3] = {ints_value(like.shape, static_cast<uint32_t>(like.ndim)),
                           dtype_value(like.dtype_id), device_of(like)};
  return call1(ops().zeros, args, 3, out);
}

int32_t fit_other(Ref& grad, const RbMeta& to, const Node* from, int32_t index) {
  RbTensor* g = grad.get();
  if (!same_shape(g, to)) {
    bool reducible = g->ndim >= to.ndim;
    for (int i = 0; reducible && i < to.ndim; ++i) {
      const int64_t want = to.shape[i], have = g->shape[g->ndim - to.ndim + i];
      reducible = want == have || want == 1;
    }
    if (!reducible) {
      return fail(RB_E_ARG, "%s - got %s but expected shape compatible with %s",
                  invalid(from, index).c_str(), rb::shape_text(g).c_str(),
                  rb::shape_text(to.ndim, to.shape).c_str());
    }
    const RbValue args[2] = {tensor_value(g), ints_value(to.shape, static_cast<uint32_t>(to.ndim))};
    Ref reduced;
    if (int32_t rc = call1(ops().sum_to, args, 2, reduced)) return rc;
    grad = std::move(reduced);
    g = grad.get();
  }
  if (!same_device(g, to)) {  // a number may come from another device
    if (g->ndim) {
      return fail(RB_E_DEVICE, "%s - got one of shape %s on another device than its tensor",
                  invalid(from, index).c_str(), rb::shape_text(g).c_str());
    }
    const RbValue args[2] = {tensor_value(g), device_of(to)};
    Ref moved;
    if (int32_t rc = call1(ops().to_device, args, 2, moved)) return rc;
    grad = std::move(moved);
  }
  if (is_complex(grad.get()->dtype_id) && !is_complex(to.dtype_id)) {
    const RbValue arg = tensor_value(grad.get());
    Ref part;
    if (int32_t rc = call1(ops().real, &arg, 1, part)) return rc;
    grad = std::move(part);
  }
  if (grad.get()->dtype_id != to.dtype_id) {
    const RbValue args[2] = {tensor_value(grad.get()), dtype_value(to.dtype_id)};
    Ref cast;
    if (int32_t rc = call1(ops().cast, args, 2, cast)) return rc;
    grad = std::move(cast);
  }
  return RB_OK;
}

namespace {

bool is_flat(const Node* n, const Edge& edge) {
  return edge.fn && (RB_ARG(n->info, edge.arg)->flags & RB_ARG_FLAT);
}

size_t meta_bytes(const RbMeta& m) { return sizeof(RbMeta) + m.ndim * sizeof(int64_t); }

const RbMeta* new_meta_copy(const RbMeta& m, char** extra) {
  auto* copy = reinterpret_cast<RbMeta*>(*extra);
  auto* dims = reinterpret_cast<int64_t*>(*extra + sizeof(RbMeta));
  *extra += meta_bytes(m);
  std::copy(m.shape, m.shape + m.ndim, dims);
  *copy = m;
  copy->shape = dims;
  return copy;
}

}  // namespace

int32_t depend_flatly(RbTensor*& grad, const Node* from) {
  NodeShape shape;
  shape.nedges = shape.nrets = 1;
  shape.extra = grad->ndim * sizeof(int64_t);
  for (int i = 0; i < from->nedges; ++i) {
    if (!is_flat(from, from->edges[i])) continue;
    ++shape.nedges;
    shape.extra += meta_bytes(*from->edges[i].meta);
  }
  if (shape.nedges == 1 || !differentiable(grad->dtype_id)) return RB_OK;
  Ref alias;  // the gradient may be a tensor that others hold
  if (int32_t rc = host->tensor_alias(grad, alias.out())) return rc;
  char* extra = nullptr;
  Node* n = make_node(NodeKind::kFlat, shape, &extra);
  if (!n) return fail(RB_E_OOM, "%s: out of memory while recording", node_name(from));
  n->name = new std::string(node_name(from));  // ReluBackward0 becomes ReluBackwardBackward0
  n->name->insert(n->name->find_last_not_of("0123456789") + 1, "Backward");
  n->info = from->info;
  n->stream = from->stream;
  copy_meta(n->out_metas[0], grad, &extra);
  const Target through = gradient_target(grad);
  n->edges[0] = Edge{through.fn, &n->out_metas[0], through.output, 0};
  int at = 1;
  for (int i = 0; i < from->nedges; ++i) {
    const Edge& edge = from->edges[i];
    if (!is_flat(from, edge)) continue;
    node_retain(edge.fn);
    n->edges[at++] = Edge{edge.fn, new_meta_copy(*edge.meta, &extra), edge.output, edge.arg};
  }
  n->nest = no_nest;
  for (int i = 0; i < n->nedges; ++i) {
    if (!n->edges[i].fn) continue;
    n->seq = std::max(n->seq, n->edges[i].fn->seq);
    n->nest = std::min(n->nest, n->edges[i].fn->nest);
  }
  n->seq = next_sequence(n->seq);
  const Meta* before = meta_of(grad);
  n->metas[0].depth = std::max(from->metas[0].depth, before ? before->depth : int16_t{0});
  set_history(alias.get(), n, 0);
  node_release(n);
  host->release(grad);
  grad = alias.take();
  return RB_OK;
}

int32_t apply_flat(const Node* n, RbTensor* grad, RbTensor** results) {
  if (!grad) return RB_OK;
  if (n->edges[0].fn) {
    host->retain(grad);
    results[0] = grad;
  }
  for (int i = 1; i < n->nedges; ++i) {
    Ref made;
    if (int32_t rc = make_zeros(*n->edges[i].meta, made)) return rc;
    results[i] = made.take();
  }
  return RB_OK;
}

}  // namespace tape

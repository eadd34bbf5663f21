// Shape functions of the normalisations, losses, embedding and topk.
#include <algorithm>
#include <cstring>

#include "rules/shape_helpers.h"
#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

void set_shape(TensorSpec& out, int ndim, const int64_t* shape) {
  out.ndim = ndim;
  std::copy(shape, shape + ndim, out.shape);
}

// ---- the last dimensions

void check_normalized(const Op& op, const RbTensor& x, const RbValue& sizes) {
  const int n = static_cast<int>(sizes.len);
  const bool fits =
      n > 0 && n <= x.ndim && std::equal(sizes.v.is, sizes.v.is + n, x.shape + x.ndim - n);
  if (!fits) {
    fail(RB_E_ARG, "%s: expected input with shape [*%s, got %s", op.name.c_str(),
         (n ? ", " + shape_text(n, sizes.v.is).substr(1) : "], normalized_shape being empty")
             .c_str(),
         text(x).c_str());
  }
}
void layer_norm(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const RbValue& sizes = args[1];
  check_normalized(op, x, sizes);
  for (const char* name : {"weight", "bias"}) {
    const RbTensor* t = named_tensor(op, args, name);
    if (!t) continue;
    if (t->ndim != static_cast<int>(sizes.len) ||
        !std::equal(t->shape, t->shape + t->ndim, sizes.v.is)) {
      fail(RB_E_ARG, "%s: expected %s of shape %s, got %s", op.name.c_str(), name,
           shape_text(static_cast<int>(sizes.len), sizes.v.is).c_str(), text(*t).c_str());
    }
  }
  copy_shape(x, out.rets[0]);
}

void need_same(const Op& op, const RbTensor& g, const RbTensor& x) {
  if (g.ndim != x.ndim || !std::equal(g.shape, g.shape + g.ndim, x.shape)) {
    fail(RB_E_ARG, "%s: the gradient has shape %s, but the input %s", op.name.c_str(),
         text(g).c_str(), text(x).c_str());
  }
}
void layer_norm_backward(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[1].v.t;
  need_same(op, *args[0].v.t, x);
  check_normalized(op, x, args[2]);
  copy_shape(x, out.rets[0]);
  for (int r = 1; r < op.info.nrets; ++r)
    set_shape(out.rets[r], static_cast<int>(args[2].len), args[2].v.is);
}

// ---- channels

void check_channels(const Op& op, const RbTensor& x, const RbValue* args) {
  if (x.ndim < 2)
    fail(RB_E_ARG, "%s: expected (N, C, *), got shape %s", op.base.c_str(), text(x).c_str());
  for (const char* name : {"running_mean", "running_var", "mean", "var", "weight", "bias"}) {
    const RbTensor* t = named_tensor(op, args, name);
    if (t && (t->ndim != 1 || t->shape[0] != x.shape[1])) {
      fail(RB_E_ARG, "%s: %s should contain %lld elements, got shape %s", op.name.c_str(), name,
           (long long)x.shape[1], text(*t).c_str());
    }
  }
}
void check_groups(const Op& op, const RbTensor& x, int64_t groups) {
  if (groups < 1 || x.shape[1] % groups) {
    fail(RB_E_ARG,
         "%s: expected number of channels in input to be divisible by num_groups, but got input "
         "of shape %s and num_groups=%lld",
         op.name.c_str(), text(x).c_str(), (long long)groups);
  }
}
void group_norm(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  check_channels(op, x, args);
  check_groups(op, x, args[1].v.i);
  copy_shape(x, out.rets[0]);
}
void batch_norm(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  check_channels(op, x, args);
  copy_shape(x, out.rets[0]);
  for (int r = 1; r < op.info.nrets; ++r) set_shape(out.rets[r], 1, x.shape + 1);
}
void channel_gradients(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[1].v.t;
  need_same(op, *args[0].v.t, x);
  check_channels(op, x, args);
  const int groups = param_index(op, "num_groups");
  if (groups >= 0) check_groups(op, x, args[groups].v.i);
  copy_shape(x, out.rets[0]);
  for (int r = 1; r < op.info.nrets; ++r) set_shape(out.rets[r], 1, x.shape + 1);
}

// ---- losses of class indices

void class_loss(const Op& op, const RbValue* args, int, Inferred& out) {
  const char* name = op.name == "nll_loss" ? "nll_loss" : "cross_entropy";
  const RbTensor &x = *args[0].v.t, &target = *args[1].v.t;
  if (x.ndim == 0)
    fail(RB_E_ARG, "%s: expected input with a dimension of classes, got a 0-d tensor", name);
  if (target.dtype_id != RB_I64) {
    fail(RB_E_TYPE, "%s: expected a target of integer classes (int64), got %s", name,
         kDTypes[target.dtype_id].name);
  }
  const std::string reduction(args[3].v.s, args[3].len);
  if (reduction != "none" && reduction != "mean" && reduction != "sum")
    fail(RB_E_ARG, "%s: %s is not a valid value for reduction", name, reduction.c_str());
  const int smoothing = param_index(op, "label_smoothing");
  if (smoothing >= 0) {
    const RbValue& v = args[smoothing];
    const double s = v.tag == RB_FLOAT ? v.v.f : static_cast<double>(v.v.i);
    if (!(s >= 0.0 && s <= 1.0))
      fail(RB_E_ARG, "%s: label_smoothing must be between 0.0 and 1.0. Got: %g", name, s);
  }
  const int class_dim = x.ndim == 1 ? 0 : 1;
  TensorSpec want;
  want.ndim = 0;
  for (int d = 0; d < x.ndim; ++d) {
    if (d != class_dim) want.shape[want.ndim++] = x.shape[d];
  }
  if (target.ndim != want.ndim ||
      !std::equal(target.shape, target.shape + target.ndim, want.shape)) {
    if (target.ndim == want.ndim && want.ndim && target.shape[0] != want.shape[0]) {
      fail(RB_E_ARG, "%s: Expected input batch_size (%lld) to match target batch_size (%lld).",
           name, (long long)want.shape[0], (long long)target.shape[0]);
    }
    fail(RB_E_ARG, "%s: expected target of shape %s for input %s, got %s", name,
         shape_text(want.ndim, want.shape).c_str(), text(x).c_str(), text(target).c_str());
  }
  if (const RbTensor* w = tensor(args[2])) {
    const int64_t classes = x.shape[class_dim];
    if (w->ndim != 1 || w->shape[0] != classes) {
      fail(RB_E_ARG,
           "%s: weight tensor should be defined either for all %lld classes or no classes but got "
           "weight tensor of shape: %s",
           name, (long long)classes, text(*w).c_str());
    }
  }
  // loss, then the logarithms of sums of cross-entropy, then the total weight.
  set_shape(out.rets[0], reduction == "none" ? want.ndim : 0, want.shape);
  const int last = op.info.nrets - 1;
  if (last > 1) set_shape(out.rets[1], want.ndim, want.shape);
  out.rets[last].ndim = 0;
}

// ---- selections

void topk(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor& x = *args[0].v.t;
  const int64_t k = args[1].v.i, dim = args[2].v.i, size = x.ndim ? x.shape[dim] : 1;
  if (k < 0 || k > size || (x.ndim == 0 && k != 1)) {
    fail(RB_E_ARG, "%s: k = %lld is out of range for dimension %lld of size %lld", op.name.c_str(),
         (long long)k, (long long)dim, (long long)size);
  }
  for (int r = 0; r < 2; ++r) {
    copy_shape(x, out.rets[r]);
    if (x.ndim) out.rets[r].shape[dim] = k;
  }
}

void embedding(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor &weight = *args[0].v.t, &indices = *args[1].v.t;
  if (weight.ndim != 2) {
    fail(RB_E_ARG, "%s: 'weight' must have 2 dimensions, got shape %s", op.name.c_str(),
         text(weight).c_str());
  }
  if (indices.dtype_id != RB_I64 && indices.dtype_id != RB_I32) {
    fail(RB_E_TYPE, "%s: 'indices' must have dtype int64 or int32, got %s", op.name.c_str(),
         kDTypes[indices.dtype_id].name);
  }
  if (indices.ndim == kMaxDims)
    fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
  copy_shape(indices, out.rets[0]);
  out.rets[0].shape[out.rets[0].ndim++] = weight.shape[1];
}
// Kernels add a row of `g` for each index to a table of `shape`.
void embedding_backward(const Op& op, const RbValue* args, int, Inferred& out) {
  const RbTensor &g = *args[0].v.t, &indices = *args[1].v.t;
  const RbValue& shape = args[2];
  if (shape.len != 2) {
    fail(RB_E_ARG, "%s: 'shape' must hold 2 sizes, got %s", op.name.c_str(),
         shape_text(static_cast<int>(shape.len), shape.v.is).c_str());
  }
  TensorSpec rows;
  copy_shape(indices, rows);
  if (rows.ndim < kMaxDims) rows.shape[rows.ndim++] = shape.v.is[1];
  if (g.ndim != rows.ndim || !std::equal(g.shape, g.shape + g.ndim, rows.shape)) {
    fail(RB_E_ARG, "%s: 'g' must have a row for each of 'indices', shape %s, got %s",
         op.name.c_str(), shape_text(rows.ndim, rows.shape).c_str(), text(g).c_str());
  }
  set_shape(out.rets[0], 2, shape.v.is);
}

}  // namespace

const std::vector<ShapeFunction>& nn_shape_functions() {
  static const std::vector<ShapeFunction> functions = {{"layer_norm", layer_norm},
                                                       {"layer_norm_backward", layer_norm_backward},
                                                       {"group_norm", group_norm},
                                                       {"batch_norm", batch_norm},
                                                       {"channel_gradients", channel_gradients},
                                                       {"class_loss", class_loss},
                                                       {"topk", topk},
                                                       {"embedding", embedding},
                                                       {"embedding_backward", embedding_backward}};
  return functions;
}

}  // namespace rabbet

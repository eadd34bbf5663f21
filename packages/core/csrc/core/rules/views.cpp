// View primitives: the geometry of the result; storage is shared, no backend is involved.
#include <algorithm>
#include <cstring>

#include "rules/infer.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct Geometry {
  int ndim = 0, dtype;
  int64_t offset = 0;  // elements
  int64_t shape[kMaxDims], strides[kMaxDims];

  explicit Geometry(const RbTensor& t) : ndim(t.ndim), dtype(t.dtype_id) {
    for (int i = 0; i < ndim; ++i) {
      shape[i] = t.shape[i];
      strides[i] = t.strides[i];
    }
  }
  void remove(int d) {
    --ndim;
    for (int i = d; i < ndim; ++i) {
      shape[i] = shape[i + 1];
      strides[i] = strides[i + 1];
    }
  }
};

void check_rank(const char* op, int64_t ndim) {
  if (ndim > kMaxDims) {
    fail(RB_E_ARG, "%s: a tensor has at most %d dimensions, got %lld", op, kMaxDims,
         (long long)ndim);
  }
}

bool is_int(const RbValue& v) { return v.tag == RB_INT || v.tag == RB_BOOL; }

void view_shape(Geometry& g, const RbTensor& t, const RbValue* args) {
  const int ndim = static_cast<int>(args[1].len);
  check_rank("view", ndim);
  int64_t* const shape = g.shape;
  for (int i = 0; i < ndim; ++i) shape[i] = args[1].v.is[i];
  resolve_size("view", t.numel, ndim, shape);
  if (!view_strides(t, ndim, shape, g.strides)) {
    fail(RB_E_ARG,
         "view: size %s is not compatible with the input's size %s and strides %s (a dimension of "
         "the view would span "
         "non-adjacent memory); use reshape() instead",
         shape_text(ndim, shape).c_str(), shape_text(t.ndim, t.shape).c_str(),
         shape_text(t.ndim, t.strides).c_str());
  }
  if (!t.numel) count_elements(ndim, shape);  // strides are products of all sizes but zeros
  g.ndim = ndim;
}

void expand(Geometry& g, const RbTensor& t, const RbValue* args) {
  const int ndim = static_cast<int>(args[1].len);
  check_rank("expand", ndim);
  if (ndim < t.ndim) {
    fail(RB_E_ARG, "expand: size %s has fewer dimensions than the input of shape %s",
         shape_text(ndim, args[1].v.is).c_str(), shape_text(t.ndim, t.shape).c_str());
  }
  const int lead = ndim - t.ndim;
  for (int i = ndim - 1; i >= 0; --i) {
    const int64_t want = args[1].v.is[i];
    if (i < lead) {
      if (want < 0)
        fail(RB_E_ARG, "expand: size -1 is not allowed for the new leading dimension %d", i);
      g.shape[i] = want;
      // A new dimension of one element strides over all that follow it, as in PyTorch.
      g.strides[i] = want == 1 && t.ndim ? g.shape[i + 1] * g.strides[i + 1] : 0;
      continue;
    }
    const int64_t have = t.shape[i - lead];
    if (want != -1 && want != have && have != 1) {
      fail(RB_E_ARG, "expand: dimension %d has size %lld in the input %s and cannot become %lld", i,
           (long long)have, shape_text(t.ndim, t.shape).c_str(), (long long)want);
    }
    if (want < -1)
      fail(RB_E_ARG, "expand: size %lld for dimension %d is negative", (long long)want, i);
    g.shape[i] = want == -1 ? have : want;
    g.strides[i] = have == 1 && g.shape[i] != 1 ? 0 : t.strides[i - lead];
  }
  count_elements(ndim, g.shape);
  g.ndim = ndim;
}

void permute(Geometry& g, const RbTensor& t, const RbValue* args) {
  if (static_cast<int>(args[1].len) != t.ndim) {
    fail(RB_E_ARG, "permute: expected %d dimensions in 'dims' for an input of shape %s, got %u",
         t.ndim, shape_text(t.ndim, t.shape).c_str(), args[1].len);
  }
  for (int i = 0; i < t.ndim; ++i) {
    g.shape[i] = t.shape[args[1].v.is[i]];
    g.strides[i] = t.strides[args[1].v.is[i]];
  }
}

void swap_dims(Geometry& g, int64_t a, int64_t b) {
  std::swap(g.shape[a], g.shape[b]);
  std::swap(g.strides[a], g.strides[b]);
}

void transpose(Geometry& g, const RbTensor& t, const RbValue* args) {
  if (t.ndim) swap_dims(g, args[1].v.i, args[2].v.i);
}

void t_(Geometry& g, const RbTensor& t, const RbValue*) {
  if (t.ndim > 2) fail(RB_E_ARG, "t: expected at most 2 dimensions, got %d", t.ndim);
  if (t.ndim == 2) swap_dims(g, 0, 1);
}

void matrix_transpose(Geometry& g, const RbTensor& t, const RbValue*) {
  if (t.ndim < 2) fail(RB_E_ARG, "mT: expected at least 2 dimensions, got %d", t.ndim);
  swap_dims(g, t.ndim - 1, t.ndim - 2);
}

void select(Geometry& g, const RbTensor& t, const RbValue* args) {
  if (t.ndim == 0) fail(RB_E_INDEX, "select: a 0-dimensional tensor cannot be indexed");
  const int64_t d = args[1].v.i, size = t.shape[d];
  int64_t index = args[2].v.i;
  if (index < -size || index >= size) {
    fail(RB_E_INDEX, "select: index %lld is out of range for dimension %lld of size %lld",
         (long long)index, (long long)d, (long long)size);
  }
  if (index < 0) index += size;
  g.offset = index * t.strides[d];
  g.remove(static_cast<int>(d));
}

void slice(Geometry& g, const RbTensor& t, const RbValue* args) {
  if (t.ndim == 0) fail(RB_E_INDEX, "slice: a 0-dimensional tensor cannot be sliced");
  const int64_t d = args[1].v.i, size = t.shape[d], step = args[4].v.i;
  if (step <= 0) fail(RB_E_ARG, "slice: step must be positive, got %lld", (long long)step);
  auto bound = [size](const RbValue& v, int64_t absent) {
    if (!is_int(v)) return absent;
    return std::clamp<int64_t>(v.v.i < 0 ? v.v.i + size : v.v.i, 0, size);
  };
  const int64_t start = bound(args[2], 0), end = std::max(bound(args[3], size), start);
  g.offset = start < size ? start * t.strides[d] : 0;
  g.shape[d] = end > start ? (end - start - 1) / step + 1 : 0;
  if (g.shape[d] > 1) g.strides[d] = t.strides[d] * step;  // step is then smaller than the size
}

void unsqueeze(Geometry& g, const RbTensor& t, const RbValue* args) {
  check_rank("unsqueeze", t.ndim + 1);
  const int64_t d = args[1].v.i;
  const int64_t stride = d < t.ndim ? t.shape[d] * t.strides[d] : 1;
  std::copy_backward(g.shape + d, g.shape + g.ndim, g.shape + g.ndim + 1);
  std::copy_backward(g.strides + d, g.strides + g.ndim, g.strides + g.ndim + 1);
  g.shape[d] = 1;
  g.strides[d] = stride;
  ++g.ndim;
}

void squeeze(Geometry& g, const RbTensor& t, const RbValue* args) {
  bool drop[kMaxDims] = {};
  if (args[1].tag == RB_NONE) {
    std::fill(drop, drop + t.ndim, true);
  } else {
    for (uint32_t i = 0; i < args[1].len; ++i) {
      if (t.ndim) drop[args[1].v.is[i]] = true;
    }
  }
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (drop[d] && t.shape[d] == 1) g.remove(d);
  }
}

void diagonal(Geometry& g, const RbTensor& t, const RbValue* args) {
  if (t.ndim < 2) fail(RB_E_ARG, "diagonal: expected at least 2 dimensions, got %d", t.ndim);
  const int64_t offset = args[1].v.i, d1 = args[2].v.i, d2 = args[3].v.i;
  if (d1 == d2) fail(RB_E_ARG, "diagonal: dim1 and dim2 must differ, both are %lld", (long long)d1);
  const int64_t rows = t.shape[d1] + std::min<int64_t>(offset, 0),
                cols = t.shape[d2] - std::max<int64_t>(offset, 0);
  const int64_t length = std::max<int64_t>(std::min(rows, cols), 0);
  if (length) g.offset = offset >= 0 ? offset * t.strides[d2] : -offset * t.strides[d1];
  g.remove(static_cast<int>(std::max(d1, d2)));
  g.remove(static_cast<int>(std::min(d1, d2)));
  g.shape[g.ndim] = length;
  g.strides[g.ndim] = t.strides[d1] + t.strides[d2];
  ++g.ndim;
}

void strided_view(Geometry& g, const RbTensor& t, const RbValue* args) {
  const int64_t start = offset_in_storage(t) + args[3].v.i;
  const Storage& s = *impl(&t)->storage;
  const int64_t item = kDTypes[t.dtype_id].itemsize;
  const int ndim = static_cast<int>(args[1].len);
  check_rank("as_strided", ndim);
  if (args[2].len != args[1].len) {
    fail(RB_E_ARG, "as_strided: size has %u entries and stride has %u, expected as many",
         args[1].len, args[2].len);
  }
  if (start < 0)
    fail(RB_E_ARG, "as_strided: storage_offset must not be negative, got %lld", (long long)start);
  int64_t last = start;  // the farthest element
  bool beyond = false;
  const int64_t numel = count_elements(ndim, args[1].v.is);
  for (int i = 0; i < ndim; ++i) {
    g.shape[i] = args[1].v.is[i];
    g.strides[i] = args[2].v.is[i];
    if (g.strides[i] < 0) {
      fail(RB_E_ARG, "as_strided: strides must not be negative, got %lld for dimension %d",
           (long long)g.strides[i], i);
    }
    int64_t reach = 0;
    beyond = beyond || (numel && (__builtin_mul_overflow(g.shape[i] - 1, g.strides[i], &reach) ||
                                  __builtin_add_overflow(last, reach, &last)));
  }
  if (beyond || (numel && static_cast<uint64_t>(last) >= s.nbytes / item)) {
    fail(RB_E_ARG,
         "as_strided: size %s with stride %s and offset %lld reaches beyond the storage of %llu "
         "elements",
         shape_text(ndim, g.shape).c_str(), shape_text(ndim, g.strides).c_str(), (long long)start,
         (unsigned long long)(s.nbytes / item));
  }
  g.ndim = ndim;
  // Where nothing is read, the address stays inside the storage.
  g.offset = numel ? start - offset_in_storage(t) : 0;
}

void same(Geometry&, const RbTensor&, const RbValue*) {}

// The same bytes as elements of another dtype. Smaller ones split, larger ones join elements of the
// last dimension.
void view_dtype(Geometry& g, const RbTensor& t, const RbValue* args) {
  g.dtype = static_cast<int>(args[1].v.i);
  const int64_t from = kDTypes[t.dtype_id].itemsize, to = kDTypes[g.dtype].itemsize;
  if (from == to) return;
  const std::string what = std::string("to view ") + kDTypes[t.dtype_id].name + " as " +
                           kDTypes[g.dtype].name + ", whose elements have " + std::to_string(to) +
                           " bytes, not " + std::to_string(from);
  if (t.ndim == 0)
    fail(RB_E_ARG, "view(dtype): the input must have at least 1 dimension %s", what.c_str());
  const int last = t.ndim - 1;
  if (t.strides[last] != 1) {
    fail(RB_E_ARG, "view(dtype): the stride of the last dimension must be 1 %s, got %lld",
         what.c_str(), (long long)t.strides[last]);
  }
  if (to < from) {
    const int64_t ratio = from / to;
    g.shape[last] *= ratio;
    for (int d = 0; d < last; ++d) g.strides[d] *= ratio;
    return;
  }
  const int64_t ratio = to / from;
  if (t.shape[last] % ratio) {
    fail(RB_E_ARG,
         "view(dtype): the size of the last dimension must be divisible by %lld %s, got %lld",
         (long long)ratio, what.c_str(), (long long)t.shape[last]);
  }
  const auto bytes = static_cast<char*>(t.data) - static_cast<char*>(impl(&t)->storage->data);
  if (t.data && bytes / from % ratio) {
    fail(RB_E_ARG, "view(dtype): the storage offset must be divisible by %lld %s, got %lld",
         (long long)ratio, what.c_str(), (long long)(bytes / from));
  }
  for (int d = 0; d < last; ++d) {
    if (t.strides[d] % ratio) {
      fail(RB_E_ARG,
           "view(dtype): the stride of dimension %d must be divisible by %lld %s, got %lld", d,
           (long long)ratio, what.c_str(), (long long)t.strides[d]);
    }
    g.strides[d] /= ratio;
  }
  g.shape[last] /= ratio;
}

// Complex numbers as pairs of their parts along a new last dimension.
void view_as_real(Geometry& g, const RbTensor& t, const RbValue*) {
  check_rank("view_as_real", t.ndim + 1);
  g.dtype = to_real(t.dtype_id);
  for (int d = 0; d < t.ndim; ++d) g.strides[d] *= 2;
  g.shape[g.ndim] = 2;
  g.strides[g.ndim++] = 1;
}

void view_as_complex(Geometry& g, const RbTensor& t, const RbValue*) {
  const int last = t.ndim - 1;
  if (last < 0 || t.shape[last] != 2) {
    fail(RB_E_ARG, "view_as_complex: the last dimension must have size 2, got shape %s",
         shape_text(t.ndim, t.shape).c_str());
  }
  if (t.strides[last] != 1) {
    fail(RB_E_ARG, "view_as_complex: the stride of the last dimension must be 1, got %lld",
         (long long)t.strides[last]);
  }
  for (int d = 0; d < last; ++d) {
    if (t.strides[d] % 2) {
      fail(RB_E_ARG, "view_as_complex: the stride of dimension %d must be divisible by 2, got %lld",
           d, (long long)t.strides[d]);
    }
    g.strides[d] /= 2;
  }
  if (offset_in_storage(t) % 2) {
    fail(RB_E_ARG, "view_as_complex: the storage offset must be divisible by 2, got %lld",
         (long long)offset_in_storage(t));
  }
  g.dtype = to_complex(t.dtype_id);
  --g.ndim;
}

struct Rule {
  const char* name;
  void (*fn)(Geometry&, const RbTensor&, const RbValue*);
};
const Rule kRules[] = {{"view", view_shape},
                       {"expand", expand},
                       {"permute", permute},
                       {"transpose", transpose},
                       {"t", t_},
                       {"mT", matrix_transpose},
                       {"select", select},
                       {"slice", slice},
                       {"unsqueeze", unsqueeze},
                       {"squeeze", squeeze},
                       {"diagonal", diagonal},
                       {"strided_view", strided_view},
                       {"detach", same},
                       {"view.dtype", view_dtype},
                       {"view_as_real", view_as_real},
                       {"view_as_complex", view_as_complex}};

}  // namespace

void resolve_size(const char* op, int64_t numel, int ndim, int64_t* shape) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < ndim; ++i) {
    if (shape[i] == -1) {
      if (unknown >= 0) fail(RB_E_ARG, "%s: only one size can be -1", op);
      unknown = i;
    } else if (shape[i] < 0) {
      fail(RB_E_ARG, "%s: size %lld for dimension %d is negative", op, (long long)shape[i], i);
    } else if (__builtin_mul_overflow(known, shape[i], &known)) {
      fail(RB_E_ARG, "%s: size %s is too large", op, shape_text(ndim, shape).c_str());
    }
  }
  if (unknown >= 0) {
    if (known == 0 || numel % known) {
      fail(RB_E_ARG, "%s: size %s does not fit an input of %lld elements", op,
           shape_text(ndim, shape).c_str(), (long long)numel);
    }
    shape[unknown] = numel / known;
  } else if (known != numel) {
    fail(RB_E_ARG, "%s: size %s does not fit an input of %lld elements", op,
         shape_text(ndim, shape).c_str(), (long long)numel);
  }
}

bool view_strides(const RbTensor& t, int ndim, const int64_t* shape, int64_t* strides) {
  if (t.numel == 0 || (t.flags & RB_T_CONTIGUOUS)) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= std::max<int64_t>(shape[i], 1);
    }
    return true;
  }
  // Split the input's dimensions into runs that lie evenly in memory; each run must be a product of
  // new sizes.
  int to = ndim - 1;
  int64_t run_stride = t.strides[t.ndim - 1], run_size = 1, taken = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    run_size *= t.shape[d];
    const bool run_ends =
        d == 0 || (t.shape[d - 1] != 1 && t.strides[d - 1] != run_size * run_stride);
    if (!run_ends) continue;
    while (to >= 0 && (taken < run_size || shape[to] == 1)) {
      strides[to] = taken * run_stride;
      taken *= shape[to];
      --to;
    }
    if (taken != run_size) return false;
    if (d > 0) {
      run_stride = t.strides[d - 1];
      run_size = taken = 1;
    }
  }
  return to == -1;
}

Tensor* make_view(const Op& op, const RbValue* args, int) {
  const RbTensor& t = *args[0].v.t;
  auto* rule = static_cast<const Rule*>(__atomic_load_n(&op.rule, __ATOMIC_ACQUIRE));
  if (!rule) {
    for (const Rule& known : kRules) {
      if (op.name == known.name) rule = &known;
    }
    __atomic_store_n(&const_cast<Op&>(op).rule, rule, __ATOMIC_RELEASE);
  }
  if (!rule) {
    fail(RB_E_PLUGIN,
         "%s: its record says that the result is a view, but core has no rule for it; make it of "
         "other views (decomp)",
         op.name.c_str());
  }
  Geometry g(t);
  rule->fn(g, t, args);
  Tensor* view = tensor_share(&t, g.ndim, g.shape, g.strides,
                              static_cast<char*>(t.data) + g.offset * kDTypes[t.dtype_id].itemsize);
  view->dtype_id = static_cast<uint16_t>(g.dtype);
  view->dtype = kDTypes[g.dtype].dlpack;
  return view;
}

}  // namespace rabbet

#include "rules/core_shapes.h"

#include <algorithm>

#include "rules/shape_helpers.h"
#include "thread/error.h"

namespace rabbet {

namespace {

struct Sizes {
  int64_t value[kMaxCoreSizes];
  int8_t from[kMaxCoreSizes];  // the argument that gave it; -1: none yet
  uint32_t absent = 0;         // bit per size that some tensor lacks
};

// Names of arguments with their shapes: "input is (2, 3), other is (4, 5)".
std::string all_shapes(const Op& op, const RbValue* args) {
  std::string all;
  for (const CoreGroup& g : op.core.args) {
    if (const RbTensor* t = tensor(args[g.index]))
      all += (all.empty() ? "" : ", ") + op.params[g.index].name_text + " is " + text(*t);
  }
  return all;
}

[[noreturn]] void fail_rank(const Op& op, const RbTensor& t, const CoreGroup& g) {
  const int least = g.ndim - __builtin_popcount(g.optional);
  fail(RB_E_ARG, "%s: '%s' must have %s%d dimension%s, got shape %s", op.name.c_str(),
       op.params[g.index].name, g.batch ? "at least " : "", least, least == 1 ? "" : "s",
       text(t).c_str());
}

[[noreturn]] void fail_size(const Op& op, const RbValue* args, const Sizes& sizes, int size,
                            int argument, int64_t got) {
  const std::string& name = op.core.names[size];
  if (op.core.fixed[size] >= 0) {
    fail(RB_E_ARG, "%s: '%s' must have size %s where it has %lld (%s)", op.name.c_str(),
         op.params[argument].name, name.c_str(), (long long)got, all_shapes(op, args).c_str());
  }
  fail(RB_E_ARG, "%s: %s differs: %s has %lld, %s %lld (%s)", op.name.c_str(), name.c_str(),
       op.params[sizes.from[size]].name, (long long)sizes.value[size], op.params[argument].name,
       (long long)got, all_shapes(op, args).c_str());
}

// The named sizes of one tensor; those in front of them go to `batch`.
inline void read_group(const Op& op, const RbValue* args, const CoreGroup& g, const RbTensor& t,
                       Sizes& sizes, TensorSpec& batch) {
  int ndim = g.ndim;
  uint32_t lacks = 0;
  if (t.ndim < ndim) {
    lacks = g.optional;
    ndim -= __builtin_popcount(lacks);
  }
  if (t.ndim < ndim || (t.ndim > ndim && (!g.batch || lacks))) fail_rank(op, t, g);
  if (t.ndim > ndim) broadcast_into(op, t.ndim - ndim, t.shape, batch);
  const int64_t* shape = t.shape + (t.ndim - ndim);
  for (int k = 0; k < g.ndim; ++k) {
    const int size = g.sizes[k];
    if (lacks >> k & 1) {
      sizes.absent |= 1u << size;
      continue;
    }
    if (sizes.from[size] < 0) {
      const int64_t fixed = op.core.fixed[size];
      if (fixed >= 0 && *shape != fixed) fail_size(op, args, sizes, size, g.index, *shape);
      sizes.value[size] = *shape;
      sizes.from[size] = g.index;
    } else if (sizes.value[size] != *shape) {
      fail_size(op, args, sizes, size, g.index, *shape);
    }
    ++shape;
  }
}

// The sizes of results where tensors have all dimensions that are named, and no others; false:
// nothing is known.
inline bool core_alone(const CoreSignature& core, const RbValue* args, Inferred& out) {
  int64_t value[kMaxCoreSizes];
  uint32_t known = 0;
  for (const CoreGroup& g : core.args) {
    const RbTensor* t = tensor(args[g.index]);
    if (!t) continue;
    if (t->ndim != g.ndim) return false;
    for (int k = 0; k < g.ndim; ++k) {
      const int size = g.sizes[k];
      if (!(known >> size & 1)) {
        known |= 1u << size;
        value[size] = t->shape[k];
      } else if (value[size] != t->shape[k]) {
        return false;
      }
    }
  }
  for (const CoreGroup& g : core.rets) {
    TensorSpec& to = out.rets[g.index];
    to.ndim = g.ndim;
    for (int k = 0; k < g.ndim; ++k) {
      const int size = g.sizes[k];
      if (!(known >> size & 1)) return false;
      to.shape[k] = value[size];
    }
  }
  return true;
}

}  // namespace

namespace {
[[gnu::noinline]] void core_shapes_of_any(const Op& op, const RbValue* args, Inferred& out) {
  const CoreSignature& core = op.core;
  Sizes sizes;
  const size_t known = core.names.size();
  std::fill(sizes.from, sizes.from + known, int8_t{-1});
  TensorSpec batch;
  batch.ndim = 0;
  for (const CoreGroup& g : core.args) {
    if (g.any) continue;
    if (const RbTensor* t = tensor(args[g.index])) read_group(op, args, g, *t, sizes, batch);
  }
  for (const CoreGroup& g : core.rets) {
    TensorSpec& to = out.rets[g.index];
    to.ndim = g.batch ? batch.ndim : 0;
    std::copy(batch.shape, batch.shape + to.ndim, to.shape);
    if (to.ndim + g.ndim > kMaxDims)
      fail(RB_E_ARG, "%s: more than %d dimensions", op.name.c_str(), kMaxDims);
    for (int k = 0; k < g.ndim; ++k) {
      const int size = g.sizes[k];
      if (g.optional >> k & 1 && sizes.absent >> size & 1) continue;
      if (sizes.from[size] < 0 && core.fixed[size] < 0) {
        fail(RB_E_ARG, "%s: no tensor was given that says the size %s of the result",
             op.name.c_str(), core.names[size].c_str());
      }
      to.shape[to.ndim++] = sizes.from[size] < 0 ? core.fixed[size] : sizes.value[size];
    }
  }
}
}  // namespace

void core_shapes(const Op& op, const RbValue* args, int, Inferred& out) {
  if (!op.core.plain || !core_alone(op.core, args, out)) core_shapes_of_any(op, args, out);
}

}  // namespace rabbet

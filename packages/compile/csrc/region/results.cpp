#include "region/results.h"

#include <array>
#include <cstring>

#include "region/shapes.h"

namespace compile {

namespace {

// The kinds of the arguments of a call: tags, dtypes and numbers of dimensions.
struct Kinds {
  const RbOp* op = nullptr;
  std::array<uint32_t, kMostArguments> of{};
  bool operator==(const Kinds& other) const { return op == other.op && of == other.of; }
};

Kinds kinds_of(const RbOp* op, const RbValue* args, int32_t nargs) {
  Kinds kinds;
  kinds.op = op;
  for (int32_t i = 0; i < nargs; ++i) {
    uint32_t kind = args[i].tag << 24;
    if (args[i].tag == RB_TENSOR) {
      const RbTensor* t = args[i].v.t;
      kind |= static_cast<uint32_t>(t->dtype_id) << 8 | static_cast<uint32_t>(t->ndim) << 1 |
              (t->numel == 1);
    } else if (args[i].tag == RB_STR) {
      uint32_t hash = 2166136261u;
      for (uint32_t k = 0; k < args[i].len; ++k)
        hash = (hash ^ static_cast<uint8_t>(args[i].v.s[k])) * 16777619u;
      kind ^= hash >> 8;
    }
    kinds.of[i] = kind;
  }
  return kinds;
}

size_t hash_of(const Kinds& kinds) {
  uint64_t hash = reinterpret_cast<uintptr_t>(kinds.op);
  for (uint32_t kind : kinds.of) hash = (hash ^ kind) * 0x9fb21c651e98df25ull;
  return hash >> 40;
}

int ask(const RbOp* op, int dtype, const RbValue* args, int32_t nargs, int64_t numel) {
  RbValue made = rb::none_value();
  int32_t backend = -1, device = 0;
  if (trace->infer(op, args, nargs, &made, 1, &backend, &device) != RB_OK) {
    host->err_clear();
    return -1;
  }
  int found = -1;
  if (made.tag == RB_TENSOR && backend == cpu) {
    RbTensor* t = made.v.t;
    const bool fits = t->numel == numel && t->flags & RB_T_CONTIGUOUS &&
                      (t->dtype_id == dtype || t->dtype_id == RB_BOOL8);
    int64_t dense = 1;
    bool row_major = fits;
    for (int d = t->ndim - 1; d >= 0; --d) {
      row_major = row_major && t->strides[d] == dense;
      dense *= t->shape[d];
    }
    if (row_major) found = t->dtype_id;
  }
  host->value_release(&made);
  return found;
}

}  // namespace

int result_dtype(const RbOp* op, const RbOpInfo& info, const RbPointwise& kernel, int dtype,
                 const RbValue* args, int32_t nargs, int64_t numel) {
  // A formula's kernel runs where all tensors have one dtype, which its result has too.
  if (info.kind == RB_KIND_COMPOSITE) return dtype;
  if (kernel.checks) return ask(op, dtype, args, nargs, numel);
  struct Known {
    Kinds kinds;
    int dtype;
  };
  static Known known[1024];  // under the lock of the region
  const Kinds kinds = kinds_of(op, args, nargs);
  Known& entry = known[hash_of(kinds) % 1024];
  if (!(entry.kinds == kinds)) entry = {kinds, ask(op, dtype, args, nargs, numel)};
  return entry.dtype;
}

}  // namespace compile

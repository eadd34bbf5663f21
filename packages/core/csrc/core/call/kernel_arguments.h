// Arguments as a kernel takes them: cast to the compute dtype, contiguous, on one device.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "device/backends.h"
#include "rabbet/convert.h"
#include "rules/infer.h"
#include "tensor/tensor.h"

namespace rabbet {

constexpr int kMaxArgs = RB_MAX_ARGS;

/// A private copy of the values of a call, with what keeps replaced tensors alive.
struct Arguments {
  Arguments(const RbValue* args, int nargs) { std::memcpy(values, args, nargs * sizeof(RbValue)); }
  RbValue values[kMaxArgs];
  std::vector<TensorRef> kept;
  std::vector<std::vector<RbTensor*>> lists;
};

/// Replace each tensor of the arguments for which `replace` returns one.
template <class Replace>
void replace_tensors(Arguments& a, int nargs, const Replace& replace) {
  for (int i = 0; i < nargs; ++i) {
    RbValue& v = a.values[i];
    if (v.tag == RB_TENSOR) {
      TensorRef fresh = replace(v.v.t, i);
      if (!fresh) continue;
      v.v.t = fresh.get();
      a.kept.push_back(std::move(fresh));
    } else if (v.tag == RB_TENSORS) {
      std::vector<RbTensor*> list(v.v.ts, v.v.ts + v.len);
      bool changed = false;
      for (RbTensor*& t : list) {
        TensorRef fresh = t ? replace(t, i) : TensorRef();
        if (!fresh) continue;
        t = fresh.get();
        a.kept.push_back(std::move(fresh));
        changed = true;
      }
      if (!changed) continue;
      a.lists.push_back(std::move(list));
      v.v.ts = a.lists.back().data();
    }
  }
}

/// Arguments that the record says are written: what stood for them in `a` is copied to them.
void write_mutated(const Op& op, const RbValue* args, const Arguments& a, int nargs);

/// Results until the call has succeeded.
struct Results {
  explicit Results(int n) : n(n) {
    for (RbValue& v : values) v = value_none();
  }
  ~Results() {
    for (int i = 0; i < n; ++i) value_release(&values[i]);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  RbValue values[kMaxRets];
  int n;
};

/// The arguments that are cast to the dtype `compute`, a bit each; -1: none are.
inline uint64_t cast_arguments(const Op& op, const Handler& handler, int compute) {
  const bool casts = compute >= 0 && op.casts && !(handler.flags & RB_K_CONVERTS);
  return casts ? op.compute_args : 0;
}

/// Whether `prepare` has nothing to do. `compute`: the dtype, or -1: no casts.
inline bool fits_kernel(const Op& op, const Handler& handler, int compute, const RbValue* args,
                        int nargs) {
  const uint64_t cast_args = cast_arguments(op, handler, compute);
  const bool dense = (handler.flags & RB_K_CONTIGUOUS) != 0;
  for (uint64_t rest = op.tensor_args; rest; rest &= rest - 1) {
    const int i = __builtin_ctzll(rest);
    if (i >= nargs) break;
    const bool is_list = args[i].tag == RB_TENSORS;
    if (!is_list && args[i].tag != RB_TENSOR) continue;
    for (uint32_t k = 0; k < (is_list ? args[i].len : 1); ++k) {
      const RbTensor* t = is_list ? args[i].v.ts[k] : args[i].v.t;
      if (!t) continue;
      if ((cast_args >> i & 1) && t->dtype_id != compute) return false;
      if (dense && !(t->flags & RB_T_CONTIGUOUS)) return false;
    }
  }
  return true;
}
/// Replace the tensors that the kernel does not take as they are.
void prepare(const Op& op, const Handler& handler, int compute, Arguments& a, int nargs);

/// The dtype by which a kernel is chosen.
inline int compute_dtype(const Op& op, const RbValue* args, int nargs, const Inferred& inferred) {
  if (inferred.compute >= 0) return inferred.compute;
  for (int i = 0; i < nargs; ++i) {
    if (args[i].tag == RB_TENSOR) return args[i].v.t->dtype_id;
    if (args[i].tag == RB_TENSORS && args[i].len && args[i].v.ts[0])
      return args[i].v.ts[0]->dtype_id;
  }
  return op.info.nrets ? inferred.rets[0].dtype : RB_F32;
}
[[noreturn]] void fail_dtype(const Op& op, const Handler& handler, int backend, int compute);

bool mixes_indices(const RbValue* args, int nargs);
/// Whether the call mixes devices: of several backends (a bit each), or several of the one that it
/// is for.
inline bool is_mixed(uint64_t backends, const RbValue* args, int nargs) {
  if (backends & (backends - 1)) return true;
  const int backend = __builtin_ctzll(backends);
  return backend != kMeta && backend_traits[backend].known_devices > 1 &&
         mixes_indices(args, nargs);
}
/// A device as messages name it.
std::string device_text(int backend, int device);
[[noreturn]] void fail_mixed(const Op& op, const RbValue* args, int nargs);

}  // namespace rabbet

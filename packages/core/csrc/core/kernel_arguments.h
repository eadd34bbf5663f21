// Arguments as a kernel takes them: cast to the compute dtype, contiguous, on one device.
#pragma once
#include <cstring>
#include <vector>

#include "infer.h"
#include "tensor.h"

namespace rabbet {

constexpr int kMaxArgs = 32;

/// A private copy of the values of a call, with what keeps replaced tensors alive.
struct Arguments {
  Arguments(const RbValue* args, int nargs) { std::memcpy(values, args, nargs * sizeof(RbValue)); }
  RbValue values[kMaxArgs];
  std::vector<TensorRef> kept;
  std::vector<std::vector<RbTensor*>> lists;
};

/// Whether `prepare` has nothing to do. `compute`: the dtype, or -1: no casts.
bool fits_kernel(const Op& op, const Handler& handler, int compute, const RbValue* args, int nargs);
/// Replace the tensors that the kernel does not take as they are.
void prepare(const Op& op, const Handler& handler, int compute, Arguments& a, int nargs);

/// Throw unless the kernel takes the compute dtype of the call.
void check_dtype(const Op& op, const Handler& handler, int backend, const RbValue* args, int nargs,
                 const Inferred& inferred);

/// Whether the call mixes devices: of several backends (a bit each), or several of the one that it
/// is for.
bool is_mixed(uint64_t backends, const RbValue* args, int nargs);
[[noreturn]] void fail_mixed(const Op& op, const RbValue* args, int nargs);

}  // namespace rabbet

// A call's results without its work.
#pragma once
#include "record/op.h"
#include "tensor/tensor.h"

namespace rabbet {

/// Where a call's results are.
struct CallDevice {
  int backend, device;
};
/// Set rets to owned tensors (lists) on `meta` with the results' shapes, strides and dtypes. Throws
/// RB_E_NOTIMPL where they depend on values or only a kernel knows them.
CallDevice dry_run(const Op& op, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets);
/// Throw what the call would be refused with, as far as that is known without its work. `rets`: the
/// destinations of a call into given tensors, or null.
void check_runs(const Op& op, const RbValue* args, int32_t nargs, const RbValue* rets,
                int32_t nrets);

}  // namespace rabbet

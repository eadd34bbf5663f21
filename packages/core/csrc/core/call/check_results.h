// Whether the results of a kernel or handler are those that the record says.
#pragma once
#include <algorithm>
#include <string>

#include "call/kernel_arguments.h"
#include "rules/infer.h"
#include "rules/shape_rules.h"
#include "tensor/dtype.h"
#include "thread/error.h"

namespace rabbet {

/// Whether the record says the shapes and dtypes of the results before they are there.
bool says_results(const Op& op);
bool takes_device(const Op& op);

/// Throw unless result `i` has the shape and dtype of `spec`; `whose()` names who returned it.
template <class Whose>
void check_result(const Op& op, const Whose& whose, int i, const RbTensor& got,
                  const TensorSpec& spec) {
  const bool fits =
      got.ndim == spec.ndim && std::equal(got.shape, got.shape + got.ndim, spec.shape);
  if (__builtin_expect(fits && got.dtype_id == spec.dtype, 1)) return;
  fail(RB_E_PLUGIN,
       "%s: %s returned %s of shape %s and dtype %s; by the record it has shape %s and dtype %s",
       op.name.c_str(), std::string(whose()).c_str(), op.ret_names[i].c_str(),
       shape_text(got.ndim, got.shape).c_str(), kDTypes[got.dtype_id].name,
       shape_text(spec.ndim, spec.shape).c_str(), kDTypes[spec.dtype].name);
}

/// Throw unless result `i` is on the device of `first`, the first tensor among the arguments.
template <class Whose>
void check_result_device(const Op& op, const Whose& whose, int i, const RbTensor& got,
                         const RbTensor& first) {
  if (__builtin_expect(got.backend == first.backend && got.device.id == first.device.id, 1)) return;
  fail(RB_E_PLUGIN, "%s: %s returned %s on %s, but '%s' is on %s", op.name.c_str(),
       std::string(whose()).c_str(), op.ret_names[i].c_str(),
       device_text(got.backend, got.device.id).c_str(), op.params[op.first_tensor].name,
       device_text(first.backend, first.device.id).c_str());
}

}  // namespace rabbet

// What shape functions share.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>

#include "rules/shape_rules.h"
#include "thread/error.h"

namespace rabbet {

inline std::string text(const RbTensor& t) { return shape_text(t.ndim, t.shape); }

inline const RbTensor* tensor(const RbValue& v) { return v.tag == RB_TENSOR ? v.v.t : nullptr; }

inline void set(TensorSpec& out, std::initializer_list<int64_t> shape) {
  out.ndim = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), out.shape);
}
inline void copy_shape(const RbTensor& t, TensorSpec& out) {
  out.ndim = t.ndim;
  std::copy(t.shape, t.shape + t.ndim, out.shape);
}

inline void need_rank(const Op& op, const RbTensor& t, int rank, int arg) {
  if (t.ndim != rank) {
    fail(RB_E_ARG, "%s: '%s' must have %d dimension%s, got shape %s", op.name.c_str(),
         op.params[arg].name, rank, rank == 1 ? "" : "s", text(t).c_str());
  }
}

/// Whether `t` broadcasts to the shape of `to`, which stays as it is.
inline bool broadcasts_to(const RbTensor& t, const TensorSpec& to) {
  if (t.ndim > to.ndim) return false;
  for (int d = 1; d <= t.ndim; ++d) {
    const int64_t size = t.shape[t.ndim - d];
    if (size != 1 && size != to.shape[to.ndim - d]) return false;
  }
  return true;
}

inline int param_index(const Op& op, const char* name) {
  for (size_t i = 0; i < op.params.size(); ++i) {
    if (op.params[i].name_text == name) return static_cast<int>(i);
  }
  return -1;
}

/// The tensor given for the parameter `name`, or null.
inline const RbTensor* named_tensor(const Op& op, const RbValue* args, const char* name) {
  const int i = param_index(op, name);
  return i < 0 ? nullptr : tensor(args[i]);
}

}  // namespace rabbet

// rabbet/values.hpp: the host table of a plugin library, values to call operators with, an owning
// reference to a tensor, and how messages write a shape. Header only; rabbet/plugin.hpp has the
// rest.
#ifndef RABBET_VALUES_HPP
#define RABBET_VALUES_HPP

#include <stddef.h>

#include <string>

#include "rabbet/abi.h"

namespace rb {

/// The host table; set it in `init`. One per plugin library (compile with hidden visibility).
inline const RbHost* host = nullptr;

// Values. Lists are borrowed.
inline RbValue none_value() { return RbValue{}; }
inline RbValue bool_value(bool b) {
  RbValue v{};
  v.tag = RB_BOOL;
  v.v.i = b;
  return v;
}
inline RbValue int_value(int64_t i) {
  RbValue v{};
  v.tag = RB_INT;
  v.v.i = i;
  return v;
}
inline RbValue dtype_value(int32_t dtype) {
  RbValue v{};
  v.tag = RB_DTYPE;
  v.v.i = dtype;
  return v;
}
/// Where `t` lies.
inline RbValue device_value(const RbTensor* t) {
  RbValue v{};
  v.tag = RB_DEVICE;
  v.v.dev.backend = t->backend;
  v.v.dev.index = t->device.id;
  return v;
}
inline RbValue tensor_value(RbTensor* t) {
  RbValue v{};
  v.tag = RB_TENSOR;
  v.v.t = t;
  return v;
}
inline RbValue ints_value(const int64_t* p, size_t n) {
  RbValue v{};
  v.tag = RB_INTS;
  v.len = static_cast<uint32_t>(n);
  v.v.is = p;
  return v;
}
inline RbValue tensors_value(RbTensor* const* p, size_t n) {
  RbValue v{};
  v.tag = RB_TENSORS;
  v.len = static_cast<uint32_t>(n);
  v.v.ts = p;
  return v;
}

/// A tensor that is released at the end of scope.
class Ref {
 public:
  Ref() = default;
  explicit Ref(RbTensor* owned) : t_(owned) {}
  /// One more owner of `t`, which may be null.
  static Ref share(RbTensor* t) {
    if (t) host->retain(t);
    return Ref(t);
  }
  Ref(Ref&& other) noexcept : t_(other.take()) {}
  Ref& operator=(Ref&& other) noexcept {
    if (this != &other) {
      if (t_) host->release(t_);
      t_ = other.take();
    }
    return *this;
  }
  ~Ref() {
    if (t_) host->release(t_);
  }
  RbTensor* get() const { return t_; }
  RbTensor* operator->() const { return t_; }
  explicit operator bool() const { return t_ != nullptr; }
  /// Where a function puts a tensor that it gives away; the reference must be empty.
  RbTensor** out() { return &t_; }
  RbTensor* take() {
    RbTensor* t = t_;
    t_ = nullptr;
    return t;
  }

 private:
  RbTensor* t_ = nullptr;
};
inline RbValue tensor_value(const Ref& t) { return tensor_value(t.get()); }

/// Call an operator of one result.
inline int32_t call1(const RbOp* op, const RbValue* args, int32_t nargs, Ref& out) {
  RbValue result{};
  const int32_t rc = host->call(op, args, nargs, &result, 1, 0);
  if (rc == RB_OK) out = Ref(result.v.t);
  return rc;
}

/// A shape as messages write it: "(2, 3)".
inline std::string shape_text(int ndim, const int64_t* shape) {
  std::string text = "(";
  for (int d = 0; d < ndim; ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + (ndim == 1 ? ",)" : ")");
}
inline std::string shape_text(const RbTensor* t) { return shape_text(t->ndim, t->shape); }

}  // namespace rb
#endif

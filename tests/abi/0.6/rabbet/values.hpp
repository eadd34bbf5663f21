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
inline RbValue str_value(const char* s, size_t n) {
  RbValue v{};
  v.tag = RB_STR;
  v.len = static_cast<uint32_t>(n);
  v.v.s = s;
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

/// What argument `i` of an operator is.
inline const RbArgInfo& arg_info(const RbOpInfo& info, int32_t i) { return *RB_ARG(&info, i); }

// Dtypes, by their class: ids say nothing of those that the header does not have.
inline int dtype_kind(int32_t dtype) { return host->dtype_kinds[dtype]; }  // RB_CLASS_*
inline bool is_floating(int32_t dtype) { return dtype_kind(dtype) == RB_CLASS_FLOAT; }
inline bool is_complex(int32_t dtype) { return dtype_kind(dtype) == RB_CLASS_COMPLEX; }
/// Floating or complex: what can carry a gradient.
inline bool is_differentiable(int32_t dtype) { return is_floating(dtype) || is_complex(dtype); }
/// Bytes of an element.
inline int32_t item_size(const RbTensor* t) { return t->dtype.bits / 8; }
/// What a dtype is; of an id that is none all is zero.
inline RbDTypeInfo dtype_info(int32_t dtype) {
  RbDTypeInfo info{};
  info.struct_size = sizeof info;
  if (host->dtype_info(dtype, &info) != RB_OK) host->err_clear();
  return info;
}

/// The calling thread's state.
inline RbThread thread_get() {
  RbThread state;
  state.struct_size = sizeof state;
  host->thread_get(&state);
  return state;
}
/// Puts the thread's state back at the end of scope.
class ThreadGuard {
 public:
  ThreadGuard() : saved_(thread_get()) {}
  ~ThreadGuard() { host->thread_set(&saved_); }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;
  const RbThread& saved() const { return saved_; }

 private:
  RbThread saved_;
};

/// Shape and dtype of `t`, whose shape is borrowed, without its value.
inline RbMeta meta_of(const RbTensor* t) {
  return RbMeta{sizeof(RbMeta), t->ndim,      t->dtype_id, t->backend,
                t->layout,      t->device.id, t->shape};
}

/// Call an operator of one result.
inline int32_t call1(const RbOp* op, const RbValue* args, int32_t nargs, Ref& out) {
  RbValue result{};
  const int32_t rc = host->call(op, args, nargs, &result, 1, 0);
  if (rc == RB_OK) out = Ref(result.v.t);
  return rc;
}

/// What made `view` out of its root, done to `root`. Views that name memory need it to lie as that
/// of the view's own root does: then `root` becomes a copy that does.
inline int32_t replay_view(const RbTensor* view, Ref& root, Ref& out) {
  const int32_t rc = host->view_replay(view, root.get(), out.out());
  if (rc != RB_E_NOTIMPL && rc != RB_E_ARG) return rc;  // RB_E_ARG: a view of other strides
  host->err_clear();
  const RbTensor* first = view;
  while (const RbTensor* up = host->view_parent(first)) first = up;
  static const RbOp* const restrided = host->find_op("restrided");
  const RbValue args[2] = {tensor_value(root), ints_value(first->strides, first->ndim)};
  Ref laid_out;
  if (const int32_t failed = call1(restrided, args, 2, laid_out)) return failed;
  root = std::move(laid_out);
  return host->view_replay(view, root.get(), out.out());
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

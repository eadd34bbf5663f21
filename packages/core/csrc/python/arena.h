// Memory and references that live as long as one call from Python.
#pragma once
#include <cstddef>

#include "ref.h"
#include "tensor/tensor.h"

namespace rabbet::python {

/// Memory for lists and complex numbers of one call, and objects that must outlive it.
class Arena {
 public:
  Arena() = default;
  ~Arena() {
    if (__builtin_expect(held_ != nullptr || more_ != nullptr, 0)) clear();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* take(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (__builtin_expect(used_ + bytes <= sizeof inline_, 1)) {
      void* p = inline_ + used_;
      used_ += bytes;
      return p;
    }
    return take_more(bytes);
  }
  template <class T>
  T* take(size_t n) {
    return static_cast<T*>(take(n * sizeof(T)));
  }
  /// Keep a new reference until the arena goes.
  void hold(PyObject* o);
  void hold(TensorRef t);

 private:
  struct Held {
    PyObject* object;
    Tensor* tensor;
    Held* next;
  };
  struct Chunk {
    Chunk* next;
  };
  void* take_more(size_t bytes);
  void clear();

  size_t used_ = 0;
  Held* held_ = nullptr;
  Chunk* more_ = nullptr;
  alignas(16) char inline_[512];
};

}  // namespace rabbet::python

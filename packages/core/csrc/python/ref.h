// Owning reference to a Python object.
#pragma once
#define PY_SSIZE_T_CLEAN
#include "rabbet/python.hpp"

namespace rabbet::python {

using rb::calling_python;
using rb::interpreter_alive;
using rb::WithGil;
using rb::WithoutGil;

/// Owns one reference; null is allowed. Needs Python's lock.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : p_(owned) {}  // takes the reference over
  static Ref borrow(PyObject* p) {
    Py_XINCREF(p);
    return Ref(p);
  }
  Ref(Ref&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
  Ref(const Ref& o) : p_(o.p_) { Py_XINCREF(p_); }
  Ref& operator=(Ref o) noexcept {
    PyObject* swap = p_;
    p_ = o.p_;
    o.p_ = swap;
    return *this;
  }
  ~Ref() { Py_XDECREF(p_); }
  PyObject* get() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  PyObject* release() {
    PyObject* p = p_;
    p_ = nullptr;
    return p;
  }

 private:
  PyObject* p_ = nullptr;
};

}  // namespace rabbet::python

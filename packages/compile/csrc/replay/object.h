// Owned references to Python objects, and what the files of this folder share.
#pragma once
#include <Python.h>

#include <stdexcept>
#include <utility>

#include "rabbet/autograd.h"
#include "rabbet/compile.h"
#include "rabbet/graph.h"
#include "rabbet/python.h"
#include "rabbet/trace.h"

namespace replay {

extern const RbPython* core;
extern const RbTrace* trace;
extern const RbCompile* regions;
extern PyObject* missing;  // stands for what a dict, a cell or an object lacks

/// The table of autograd; null while it is not loaded.
const RbAutograd* autograd();
/// The table of rabbet.graph; null while it is not loaded.
const RbGraph* programs();

class Ref {
 public:
  Ref() = default;
  static Ref take(PyObject* owned) {
    Ref made;
    made.object_ = owned;
    return made;
  }
  static Ref share(PyObject* borrowed) {
    Py_XINCREF(borrowed);
    return take(borrowed);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// Ends a function of ours after it has set a Python exception.
[[noreturn]] inline void give_up() { throw std::runtime_error("a Python exception is set"); }

/// The value of a Python integer. Throws after setting an exception.
inline long as_number(PyObject* object) {
  const long found = PyLong_AsLong(object);
  if (found == -1 && PyErr_Occurred()) give_up();
  return found;
}

/// Whether a program that gets one of two objects can notice: they are the same, or equal numbers,
/// strings, or tuples of them. Runs no Python code. Floats are compared by their bits.
bool same(PyObject* a, PyObject* b);

}  // namespace replay

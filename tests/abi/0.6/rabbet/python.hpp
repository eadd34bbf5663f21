// rabbet/python.hpp: Python's lock, for the C++ of plugin parts that bind Python.
#pragma once
#include <Python.h>

#include "rabbet/thread_end.hpp"

namespace rb {

/// Run `body`, which may run Python code or ask for Python's lock: a thread that Python ends is
/// held here. What `body` itself owned is destroyed before that, without the lock, so it should own
/// nothing of Python.
template <class Body>
auto calling_python(Body&& body) {
  try {
    return body();
  } catch (const ThreadEnd&) {
    hold_thread();
  }
}

/// Holds Python's lock; may be nested, on any thread.
class WithGil {
 public:
  WithGil() : state_(calling_python(PyGILState_Ensure)) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Leaves Python's lock to others, on a thread that holds it.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    calling_python([this] { PyEval_RestoreThread(thread_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

/// Whether the interpreter can still run code; deleters on other threads ask before they take the
/// lock.
inline bool interpreter_alive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

}  // namespace rb

// The thread's error record as Python exceptions and back.
#pragma once
#include "ref.h"
#include "thread/error.h"

namespace rabbet::python {

/// Thrown inside the binding while a Python exception is set already.
struct PythonError {};

/// Make the exception classes and add them to `module`; false with a Python exception set.
bool init_errors(PyObject* module);

/// Raise the thread's error record as a Python exception and clear the record; returns null.
PyObject* raise_error(int32_t code);
/// Move the current Python exception into the thread's error record; returns RB_E_FOREIGN.
int32_t capture_error();
/// The exception being handled, from inside a catch block, as a Python exception.
void raise_current_exception() noexcept;

/// Raise a Python exception with a printf-like text (PyErr_Format's language) and throw
/// PythonError.
template <class... Args>
[[noreturn]] void raise(PyObject* type, const char* format, Args... args) {
  PyErr_Format(type, format, args...);
  throw PythonError{};
}
/// Warn Python's user; throws PythonError where the warning is an error.
inline void warn(const char* message) {
  if (PyErr_WarnEx(PyExc_UserWarning, message, 1) < 0) throw PythonError{};
}
/// For functions of the C API that return null with an exception set.
inline PyObject* must(PyObject* p) {
  if (!p) throw PythonError{};
  return p;
}

/// Run `body` as a function called by Python: exceptions become Python's, the result `failed`.
template <class R, class Body>
R boundary(R failed, Body&& body) noexcept {
  try {
    return body();
  } catch (const PythonError&) {
  } catch (...) {
    raise_current_exception();
  }
  return failed;
}

/// The same for functions that return an object.
template <class Body>
PyObject* object_boundary(Body&& body) noexcept {
  return boundary<PyObject*>(nullptr, static_cast<Body&&>(body));
}

}  // namespace rabbet::python

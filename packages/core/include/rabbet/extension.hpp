// rabbet/extension.hpp: makes C++ functions a Python module, without pybind11. Header only.
// rabbet.utils.cpp_extension builds such modules and defines RABBET_EXTENSION_NAME.
//
//   rb::Ref scaled_sum(const RbTensor& x, const RbTensor& y, double by) {
//     static const rb::Operator add("add");
//     return add(x, y, by);
//   }
//   RABBET_MODULE(m) { m.def<scaled_sum>("scaled_sum", "x + by * y"); }
//
// Parameters may be tensors (`const RbTensor&`, `const RbTensor*`, which is null for None, or the
// owner `rb::Ref`), bool, integers, float, double, std::string, and std::optional and std::vector
// of these. A function returns one of these types, a std::tuple of them, or void. It runs without
// Python's lock and may throw (rb::fail). Arguments are positional.
#ifndef RABBET_EXTENSION_HPP
#define RABBET_EXTENSION_HPP

#include <Python.h>

#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rabbet/plugin.hpp"
#include "rabbet/python.h"
#include "rabbet/python.hpp"

namespace rb {

/// Core's table of functions for Python. RABBET_MODULE sets it.
inline const RbPython* python = nullptr;

// ---- operators and tensors

inline RbValue to_value(const RbTensor& t) { return tensor_value(const_cast<RbTensor*>(&t)); }
inline RbValue to_value(const RbTensor* t) {
  return t ? tensor_value(const_cast<RbTensor*>(t)) : none_value();
}
inline RbValue to_value(const Ref& t) { return to_value(t.get()); }
inline RbValue to_value(std::nullptr_t) { return none_value(); }
inline RbValue to_value(const RbValue& v) { return v; }
inline RbValue to_value(bool b) { return bool_value(b); }
inline RbValue to_value(const char* s) { return str_value(s, std::strlen(s)); }
inline RbValue to_value(const std::string& s) { return str_value(s.data(), s.size()); }
inline RbValue to_value(const std::vector<int64_t>& v) { return ints_value(v.data(), v.size()); }
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
RbValue to_value(T number) {
  if constexpr (std::is_floating_point_v<T>) {
    RbValue v{};
    v.tag = RB_FLOAT;
    v.v.f = static_cast<double>(number);
    return v;
  } else {
    return int_value(static_cast<int64_t>(number));
  }
}

/// An operator with one result, found by its name. Calls behave as in Python: gradients are
/// recorded, and transforms apply.
class Operator {
 public:
  explicit Operator(const char* name) : op_(host->find_op(name)) {
    if (!op_) fail(RB_E_ARG, "there is no operator '%s'", name);
    if (host->op_info(op_)->nrets != 1)
      fail(RB_E_ARG, "the operator '%s' has %d results: use host->call", name,
           host->op_info(op_)->nrets);
  }
  /// Omitted arguments take their defaults.
  template <class... A>
  Ref operator()(const A&... arguments) const {
    const RbValue values[sizeof...(A) + 1] = {to_value(arguments)...};
    Ref out;
    check(call1(op_, values, static_cast<int32_t>(sizeof...(A)), out));
    return out;
  }

 private:
  const RbOp* op_;
};

template <class T>
constexpr int32_t dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return RB_BOOL8;
  else if constexpr (std::is_same_v<T, float>)
    return RB_F32;
  else if constexpr (std::is_same_v<T, double>)
    return RB_F64;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    return std::is_signed_v<T> ? RB_I8 : RB_U8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 2)
    return std::is_signed_v<T> ? RB_I16 : RB_U16;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return std::is_signed_v<T> ? RB_I32 : RB_U32;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? RB_I64 : RB_U64;
  else
    return static_cast<int32_t>(RB_DTYPE_NONE);
}

/// The elements of a contiguous tensor on the CPU. Errors refer to the tensor by `name`.
template <class T>
T* data(const RbTensor& t, const char* name = "the tensor") {
  static_assert(dtype_of<T>() != static_cast<int32_t>(RB_DTYPE_NONE), "no dtype has such elements");
  if (t.flags & (RB_T_WRAPPER | RB_T_COMPOSITE) || t.device.type != 1)
    fail(RB_E_TYPE, "%s must be a plain tensor on the CPU", name);
  if (t.dtype_id != dtype_of<T>())
    fail(RB_E_TYPE, "%s must be %s, not %s", name, dtype_info(dtype_of<T>()).name,
         dtype_info(t.dtype_id).name);
  if (!(t.flags & RB_T_CONTIGUOUS)) fail(RB_E_ARG, "%s must be contiguous", name);
  return static_cast<T*>(t.data);
}

/// A contiguous tensor of this shape with the dtype and device of `like`, not initialized.
inline Ref empty(const RbTensor& like, const std::vector<int64_t>& shape) {
  Ref made;
  check(host->tensor_new(like.backend, like.device.id, like.dtype_id,
                         static_cast<int32_t>(shape.size()), shape.data(), nullptr, made.out()));
  return made;
}
inline Ref empty_like(const RbTensor& t) { return empty(t, {t.shape, t.shape + t.ndim}); }

// ---- arguments from Python, results to Python

/// Thrown when a Python exception is set.
struct PythonError {};

/// Identifies an argument in error messages.
struct Argument {
  const char* function;
  Py_ssize_t number;
  [[noreturn]] void refuse(const char* expected, PyObject* got) const {
    PyErr_Format(PyExc_TypeError, "%s: argument %zd must be %s, not %.100s", function, number,
                 expected, Py_TYPE(got)->tp_name);
    throw PythonError{};
  }
};

/// Converts a Python object to `value`, a parameter of type T. The caller keeps the object alive
/// until the call ends.
template <class T, class = void>
struct FromPython;

inline RbTensor* tensor_from(PyObject* object, const Argument& which) {
  RbTensor* const t = python->unwrap(object);
  if (!t) which.refuse("a Tensor", object);
  return t;
}
template <>
struct FromPython<const RbTensor*> {
  const RbTensor* value = nullptr;
  FromPython(PyObject* object, const Argument& which) {
    if (object == Py_None) return;
    value = python->unwrap(object);
    if (!value) which.refuse("a Tensor or None", object);
  }
};
template <>
struct FromPython<const RbTensor&> {
  const RbTensor& value;
  FromPython(PyObject* object, const Argument& which) : value(*tensor_from(object, which)) {}
};
template <>
struct FromPython<RbTensor&> {
  RbTensor& value;
  FromPython(PyObject* object, const Argument& which) : value(*tensor_from(object, which)) {}
};
template <>
struct FromPython<Ref> {
  Ref value;
  FromPython(PyObject* object, const Argument& which)
      : value(Ref::share(tensor_from(object, which))) {}
};
template <>
struct FromPython<bool> {
  bool value;
  FromPython(PyObject* object, const Argument& which) : value(object == Py_True) {
    if (!PyBool_Check(object)) which.refuse("a bool", object);
  }
};
template <class T>
struct FromPython<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  T value;
  FromPython(PyObject* object, const Argument& which) {
    if (!PyIndex_Check(object)) which.refuse("an int", object);
    PyObject* const whole = PyNumber_Index(object);
    if (!whole) throw PythonError{};
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(whole, &overflow);
    Py_DECREF(whole);
    if (number == -1 && PyErr_Occurred()) throw PythonError{};
    value = static_cast<T>(number);
    if (overflow || static_cast<long long>(value) != number || (number < 0) != (value < T{})) {
      PyErr_Format(PyExc_OverflowError, "%s: argument %zd does not fit %zu bytes", which.function,
                   which.number, sizeof(T));
      throw PythonError{};
    }
  }
};
template <class T>
struct FromPython<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  T value;
  FromPython(PyObject* object, const Argument& which) {
    if (!PyFloat_Check(object) && !PyIndex_Check(object)) which.refuse("a float", object);
    value = static_cast<T>(PyFloat_AsDouble(object));
    if (PyErr_Occurred()) throw PythonError{};
  }
};
template <>
struct FromPython<std::string> {
  std::string value;
  FromPython(PyObject* object, const Argument& which) {
    if (!PyUnicode_Check(object)) which.refuse("a str", object);
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw PythonError{};
    value.assign(text, static_cast<size_t>(size));
  }
};
template <class T>
struct FromPython<std::optional<T>> {
  std::optional<T> value;
  FromPython(PyObject* object, const Argument& which) {
    if (object != Py_None) value.emplace(std::move(FromPython<T>(object, which).value));
  }
};
template <class T>
struct FromPython<std::vector<T>> {
  std::vector<T> value;
  FromPython(PyObject* object, const Argument& which) {
    if (!PyList_Check(object) && !PyTuple_Check(object)) which.refuse("a list or tuple", object);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      PyObject* const item = Py_NewRef(PySequence_Fast_GET_ITEM(object, i));
      try {
        value.push_back(std::move(FromPython<T>(item, which).value));
      } catch (...) {
        Py_DECREF(item);
        throw;
      }
      Py_DECREF(item);
    }
  }
};

/// The type that FromPython converts to for a parameter of type T: T itself for a reference to a
/// tensor, else T without references and const.
template <class T>
using Parameter = std::conditional_t<std::is_same_v<std::decay_t<T>, RbTensor>, T, std::decay_t<T>>;

inline PyObject* to_python(Ref t) {
  if (!t) Py_RETURN_NONE;
  return python->wrap(t.take());
}
inline PyObject* to_python(bool b) { return PyBool_FromLong(b); }
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
PyObject* to_python(T number) {
  if constexpr (std::is_floating_point_v<T>)
    return PyFloat_FromDouble(number);
  else if constexpr (std::is_unsigned_v<T>)
    return PyLong_FromUnsignedLongLong(number);
  else
    return PyLong_FromLongLong(number);
}
inline PyObject* to_python(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}
template <class T>
PyObject* to_python(std::optional<T> maybe) {
  if (!maybe) Py_RETURN_NONE;
  return to_python(std::move(*maybe));
}
template <class T>
PyObject* to_python(std::vector<T> items);
template <class... T>
PyObject* to_python(std::tuple<T...> items) {
  PyObject* const made = PyTuple_New(sizeof...(T));
  const auto put = [&](Py_ssize_t i, auto&& item) {
    PyObject* const object = to_python(std::move(item));
    if (object) PyTuple_SET_ITEM(made, i, object);
    return object != nullptr;
  };
  Py_ssize_t i = 0;
  const bool whole =
      made && std::apply([&](auto&... item) { return (put(i++, std::move(item)) && ...); }, items);
  if (whole) return made;
  Py_XDECREF(made);
  return nullptr;
}
template <class T>
PyObject* to_python(std::vector<T> items) {
  PyObject* const made = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; made && i < items.size(); ++i) {
    PyObject* const object = to_python(std::move(items[i]));
    if (!object) {
      Py_DECREF(made);
      return nullptr;
    }
    PyList_SET_ITEM(made, static_cast<Py_ssize_t>(i), object);
  }
  return made;
}

// ---- modules

template <class R, class... P>
struct Bound {
  template <size_t... I>
  static PyObject* call(R (*function)(P...), [[maybe_unused]] const char* name,
                        [[maybe_unused]] PyObject* const* args, std::index_sequence<I...>) {
    // Braces guarantee that arguments are converted from left to right.
    std::tuple<FromPython<Parameter<P>>...> converted{
        FromPython<Parameter<P>>(args[I], Argument{name, static_cast<Py_ssize_t>(I) + 1})...};
    const auto run = [&] {
      return function(std::forward<Parameter<P>>(std::get<I>(converted).value)...);
    };
    int32_t code = RB_OK;
    if constexpr (std::is_void_v<R>) {
      {
        const WithoutGil unlocked;
        code = guarded(run);
      }
      if (code == RB_OK) Py_RETURN_NONE;
    } else {
      std::optional<R> result;
      {
        const WithoutGil unlocked;
        code = guarded([&] { result.emplace(run()); });
      }
      if (code == RB_OK) return to_python(std::move(*result));
    }
    return python->raise_error(code);
  }
  static PyObject* call(R (*function)(P...), const char* name, PyObject* const* args,
                        Py_ssize_t n) {
    if (n != static_cast<Py_ssize_t>(sizeof...(P))) {
      PyErr_Format(PyExc_TypeError, "%s: expected %zu arguments, got %zd", name, sizeof...(P), n);
      return nullptr;
    }
    try {
      return call(function, name, args, std::index_sequence_for<P...>());
    } catch (const PythonError&) {
      return nullptr;
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    }
  }
};
template <class R, class... P>
PyObject* call_bound(R (*function)(P...), const char* name, PyObject* const* args, Py_ssize_t n) {
  return Bound<R, P...>::call(function, name, args, n);
}
/// The name of F in error messages.
template <auto F>
inline const char* name_of = nullptr;
template <auto F>
PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return call_bound(F, name_of<F>, args, n);
}

/// The Python module under construction.
class Module {
 public:
  /// Add the function F. `name` and `doc` must stay valid until the process ends.
  template <auto F>
  void def(const char* name, const char* doc = nullptr) {
    static std::deque<PyMethodDef> definitions;  // Python keeps pointers to its elements
    definitions.push_back({name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(entry<F>)),
                           METH_FASTCALL, doc});
    name_of<F> = name;
    PyObject* const owner = PyModule_GetNameObject(module_);
    PyObject* const made = owner ? PyCFunction_NewEx(&definitions.back(), module_, owner) : nullptr;
    Py_XDECREF(owner);
    if (!made) throw PythonError{};
    const int failed = PyModule_AddObjectRef(module_, name, made);
    Py_DECREF(made);
    if (failed) throw PythonError{};
  }
  /// The module object, for additions that `def` does not support.
  PyObject* get() const { return module_; }

  /// Create a module and fill it. Returns null with a Python exception on failure.
  static PyObject* make(const char* name, void (*fill)(Module&)) {
    python = static_cast<const RbPython*>(PyCapsule_Import(RB_PYTHON_CAPSULE, 0));
    if (!python) return nullptr;
    host = python->host;
    if (host->major != RB_ABI_MAJOR || host->minor < RB_ABI_NEEDED) {
      PyErr_Format(PyExc_ImportError,
                   "%s was built for version %d.%d of rabbet's plugin ABI, rabbet has %d.%d: build "
                   "it again",
                   name, RB_ABI_MAJOR, RB_ABI_NEEDED, static_cast<int>(host->major),
                   static_cast<int>(host->minor));
      return nullptr;
    }
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, nullptr, nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
    definition.m_name = name;
    Module made(PyModule_Create(&definition));
    if (!made.module_) return nullptr;
    try {
      fill(made);
      return made.module_;
    } catch (const PythonError&) {
    } catch (const Error& error) {
      PyErr_SetString(PyExc_ImportError, error.what());
    }
    Py_DECREF(made.module_);
    return nullptr;
  }

 private:
  explicit Module(PyObject* module) : module_(module) {}
  PyObject* module_;
};

}  // namespace rb

#define RABBET_JOIN_(a, b) a##b
#define RABBET_JOIN(a, b) RABBET_JOIN_(a, b)
#define RABBET_TEXT_(a) #a
#define RABBET_TEXT(a) RABBET_TEXT_(a)

/// Defines the Python module of the extension. The following block fills the rb::Module `m`.
#define RABBET_MODULE(m)                                                               \
  static void rabbet_fill_module(::rb::Module& m);                                     \
  extern "C" RB_EXPORT PyObject* RABBET_JOIN(PyInit_, RABBET_EXTENSION_NAME)() {       \
    return ::rb::Module::make(RABBET_TEXT(RABBET_EXTENSION_NAME), rabbet_fill_module); \
  }                                                                                    \
  static void rabbet_fill_module([[maybe_unused]] ::rb::Module& m)

#endif

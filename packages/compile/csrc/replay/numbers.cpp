#include "replay/numbers.h"

#include <cstring>

namespace replay {

PyObject* unique_number(PyObject* number) {
  if (PyFloat_CheckExact(number)) return PyFloat_FromDouble(PyFloat_AS_DOUBLE(number));
#if PY_VERSION_HEX < 0x030C0000
  if (PyLong_CheckExact(number)) {
    const Py_ssize_t size = Py_SIZE(number), digits = size < 0 ? -size : size;
    PyLongObject* made = _PyLong_New(digits);
    if (!made) return nullptr;
    std::memcpy(made->ob_digit, reinterpret_cast<PyLongObject*>(number)->ob_digit,
                static_cast<size_t>(digits) * sizeof(digit));
    Py_SET_SIZE(made, size);
    return reinterpret_cast<PyObject*>(made);
  }
#endif
  PyErr_Format(PyExc_TypeError, "unique_number: expected an int or a float, got %s",
               Py_TYPE(number)->tp_name);
  return nullptr;
}

namespace {

using Binary = PyObject* (*)(PyObject*, PyObject*);

PyObject* power(PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); }

// In the order of CPython's BINARY_OP.
const Binary kBinaries[] = {
    PyNumber_Add,      PyNumber_And,        PyNumber_FloorDivide, PyNumber_Lshift, nullptr,
    PyNumber_Multiply, PyNumber_Remainder,  PyNumber_Or,          power,           PyNumber_Rshift,
    PyNumber_Subtract, PyNumber_TrueDivide, PyNumber_Xor};
using Unary = PyObject* (*)(PyObject*);
const Unary kUnaries[] = {PyNumber_Negative, PyNumber_Positive, PyNumber_Invert};

}  // namespace

Numbers::Numbers(PyObject* steps) {
  static const Py_ssize_t sizes[kKinds] = {4, 2, 5, 4, 4, 5, 3};
  if (!PyList_Check(steps)) {
    PyErr_SetString(PyExc_TypeError, "Numbers: expected a list");
    give_up();
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(steps); ++i) {
    PyObject* given = PyList_GET_ITEM(steps, i);
    const long kind = PyTuple_Check(given) && PyTuple_GET_SIZE(given)
                          ? as_number(PyTuple_GET_ITEM(given, 0))
                          : -1;
    if (kind < 0 || kind >= kKinds || PyTuple_GET_SIZE(given) != sizes[kind]) {
      PyErr_Format(PyExc_ValueError, "Numbers: step %zd is of no known kind", i);
      give_up();
    }
    const auto part = [&](Py_ssize_t at) { return PyTuple_GET_ITEM(given, at); };
    Step step{static_cast<Kind>(kind), 0, {}, {}, {}, {}};
    const auto use = [&](PyObject* number) {
      const long at = as_number(number);
      if (at < 0 || at >= i) {
        PyErr_Format(PyExc_ValueError, "Numbers: step %zd uses a later one", i);
        give_up();
      }
      step.numbers.push_back(static_cast<size_t>(at));
    };
    switch (step.kind) {
      case kEntry:
        step.a = Ref::share(part(1));
        step.b = Ref::share(part(2));
        step.expected = Ref::share(part(3));
        break;
      case kFixed:
        step.a = Ref::share(part(1));
        break;
      case kBinary:
      case kCompare:
        step.op = as_number(part(1));
        use(part(2));
        use(part(3));
        step.expected = Ref::share(part(4));
        if (step.kind == kBinary && (step.op < 0 || step.op >= 13 || !kBinaries[step.op])) {
          PyErr_Format(PyExc_ValueError, "Numbers: there is no operator %ld", step.op);
          give_up();
        }
        break;
      case kUnary:
        step.op = as_number(part(1)) % 3;
        use(part(2));
        step.expected = Ref::share(part(3));
        break;
      case kCall:
        step.a = Ref::share(part(1));
        for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(part(2)); ++n)
          use(PyTuple_GET_ITEM(part(2), n));
        step.expected = Ref::share(part(3));
        break;
      case kTruth:
        use(part(1));
        step.expected = Ref::share(part(2));
        break;
      default:
        break;
    }
    steps_.push_back(std::move(step));
  }
}

// A new reference to the result, or null, perhaps with an exception.
PyObject* Numbers::compute_step(const Step& step, const std::vector<Ref>& values) const {
  const auto value = [&](size_t i) { return values[step.numbers[i]].get(); };
  switch (step.kind) {
    case kEntry:
      return Py_XNewRef(PyDict_GetItemWithError(step.a.get(), step.b.get()));
    case kFixed:
      return Py_NewRef(step.a.get());
    case kBinary:
      return kBinaries[step.op](value(0), value(1));
    case kUnary:
      return kUnaries[step.op](value(0));
    case kCompare:
      return PyObject_RichCompare(value(0), value(1), static_cast<int>(step.op));
    case kTruth:
      return PyBool_FromLong(PyObject_IsTrue(value(0)));
    case kCall: {
      std::vector<PyObject*> args;
      for (size_t i = 0; i < step.numbers.size(); ++i) args.push_back(value(i));
      return PyObject_Vectorcall(step.a.get(), args.data(), args.size(), nullptr);
    }
    default:
      return nullptr;
  }
}

bool Numbers::compute(std::vector<Ref>& values) const {
  values.reserve(steps_.size());
  for (const Step& step : steps_) {
    Ref made = Ref::take(compute_step(step, values));
    if (!made) {
      PyErr_Clear();  // the function raises it
      return false;
    }
    PyObject* expected = step.expected.get();
    if (step.kind == kCompare || step.kind == kTruth) {
      if (made.get() != expected) return false;
    } else if (expected && reinterpret_cast<PyObject*>(Py_TYPE(made.get())) != expected) {
      return false;
    }
    values.push_back(std::move(made));
  }
  return true;
}

int Numbers::traverse(visitproc visit, void* arg) const {
  for (const Step& step : steps_) {
    Py_VISIT(step.a.get());
    Py_VISIT(step.b.get());
    Py_VISIT(step.expected.get());
  }
  return 0;
}

}  // namespace replay
